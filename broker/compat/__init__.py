"""Imitations of the libraries that Apache Pulsar uses, not of its protocol: the order of Java's hash tables, the error
pages of Jetty, the leniency of Jackson, figures of absent features; and the tables of refusals in Apache Pulsar's
words. Clients and tools rely on these details.

A reader of the broker's source can skip this package: it does not affect the handling of messages.
"""
