"""The open connections: their figures."""

from types import SimpleNamespace

from magnetar.broker.network.connections import Connections
from magnetar.broker.prometheus.exposition import BrokerMetrics


def test_bytes_that_wait_for_sockets_are_the_sum_of_all_connections():
    connections = Connections(0, 0)
    opened = [Peer(100), Peer(11)]
    for peer in opened:
        connections.admit(peer, "a")
    assert connections.waiting_bytes == 111
    connections.forget(opened[0])
    found = BrokerMetrics(waiting_bytes=connections.waiting_bytes).values()
    assert found["pulsar_broker_pending_bytes_to_dispatch"] == 11


class Peer:
    def __init__(self, waiting_bytes):
        self.output = SimpleNamespace(waiting_bytes=waiting_bytes)

    def close(self):
        """Do nothing."""
