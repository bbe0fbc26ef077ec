"""Imitations of the libraries that Apache Pulsar is built of, not of its protocol: the order of Java's hash tables, the
error pages of Jetty, the leniency of Jackson, texts that name classes of Java, figures of absent features. Clients and
tools have come to count on these.

A reader of the broker can pass this package by; nothing here decides what the broker does with messages.
"""
