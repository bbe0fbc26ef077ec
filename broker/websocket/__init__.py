"""Producers, consumers and readers over WebSockets, as Apache Pulsar's WebSocket service has them.

A session is a client of this broker in its own process: `link` gives its commands to a `network.Connection` whose
transport is the WebSocket's socket, so rights, limits, flow control and accounts are those of every connection.
"""
