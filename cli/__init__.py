"""The command line for whoever uses or operates a broker: it speaks to a running one over its admin REST API and the
binary protocol, so it works with Apache Pulsar too. What runs or repairs a broker itself is `magnetar.broker.cli`.
"""
