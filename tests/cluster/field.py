"""A cluster whose processes reach each other through a network that can be cut, silenced and slowed down (``network``)."""

from __future__ import annotations

from tests.cluster.broker_processes import free_port, initialize
from tests.cluster.network import FRONT, Network
from tests.cluster.real_cluster import RealCluster
from tests.cluster.scenes import SHORT_LEDGERS, two_members

__all__ = ["Field"]


class Field:
    """Every process is reached through the network."""

    def __init__(self, directory):
        self.network = Network()
        self.cluster = RealCluster(directory)
        self.members = []

    def up(self, directory, **settings):
        self.cluster.up(0)
        self.zookeeper_port = int(self.cluster.zookeeper.rpartition(":")[2])
        self.network.serve(self.zookeeper_port)
        self.cluster.zookeeper = f"{FRONT}:{self.zookeeper_port}"
        uri = f"metadataServiceUri=zk+hierarchical://{self.cluster.zookeeper}/ledgers"
        self._up(uri)
        self.cluster.zookeeper = f"{FRONT}:{self.zookeeper_port}"
        self.bookie_ports = [int(bookie.rpartition(":")[2]) for bookie in self.cluster.bookies]
        for port in self.bookie_ports:
            self.network.serve(port)
        initialize(self.cluster)
        self.members = two_members(
            directory, self.cluster.zookeeper, advertisedAddress=FRONT, **SHORT_LEDGERS, **settings
        )
        for each in self.members:
            each.program = "tests.cluster.redirected_broker"
            each.settings |= {"brokerServicePort": free_port(), "webServicePort": free_port()}
            each.start()
            self.network.serve(each.settings["brokerServicePort"])
            self.network.serve(each.settings["webServicePort"])
        return self

    def _up(self, uri):
        """Start the bookies; a bookie ends when its first session does not open within its three seconds."""
        for last in (False, False, True):
            try:
                self.cluster.up(3, BK_CONF=uri)
            except AssertionError:
                if last:
                    raise
            else:
                return

    def bookie_process(self, number):
        return int((self.cluster.directory / f"b{number + 1}.pid").read_text())

    def down(self):
        for each in self.members:
            each.end()
        self.network.close()
        self.cluster.down()
