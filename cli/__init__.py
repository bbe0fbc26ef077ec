"""The command line for users and operators: it calls a running broker over the admin REST API and the binary protocol,
and therefore works with Apache Pulsar too. The commands that run or repair a broker are in `magnetar.broker.cli`.
"""
