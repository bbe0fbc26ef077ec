"""Imitations of the libraries that Apache Pulsar is built of, not of its protocol: the order of Java's hash tables, the
error pages of Jetty, the leniency of Jackson, figures of absent features; and the tables of refusals in its words.
Clients and tools have come to count on these.

A reader of the broker can skip this package; it has no influence on the handling of messages.
"""
