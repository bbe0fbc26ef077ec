"""Producers, consumers and readers over WebSockets, as Apache Pulsar's WebSocket service has them.

A session is a client of the broker inside the broker's process: its `link` passes commands to a `network.Connection`
whose transport is the WebSocket's socket, so that rights, limits, flow control and memory accounts of every connection
apply to sessions too.
"""
