"""The protocol's classes under the short name that scenarios use."""

from magnetar.protocol.pulsar_api_pb2 import *  # noqa: F403  # a scenario may need any message of the API
