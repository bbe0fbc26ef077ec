"""A client of a running broker for this project's own tools: imports, the pipeline. Applications use the official SDKs.

Broker and client share only the protocol: a tool works with Apache Pulsar as well.
"""
