"""The clusters that serve a namespace."""

import pytest

from magnetar.broker.policies.records import Policies
from magnetar.broker.policies.serving_clusters import foreign_namespace, is_served_elsewhere
from magnetar.broker.policies.values import ClusterData

OWN = "standalone"
CLUSTERS = {
    OWN: ClusterData(peer_cluster_names=["peer", "later"]),
    "away": ClusterData(broker_service_url="pulsar://a:1"),
    "peer": ClusterData(service_url="http://p:1"),
    "later": ClusterData(service_url="http://l:1"),
    "former": ClusterData(),
}


@pytest.mark.parametrize(
    ("replication", "allowed", "elsewhere"),
    [
        ([OWN], [], False),
        ([OWN, "away"], [], False),
        (["away"], [OWN, "away"], False),
        (["former"], [], False),
        (["unknown"], [], False),
        ([], [], False),
        (["away"], [], True),
        (["former", "away"], [], True),
        (["away"], ["away"], True),
    ],
)
def test_a_namespace_is_served_by_its_clusters_that_have_an_address(replication, allowed, elsewhere):
    policies = Policies(replication_clusters=replication, allowed_clusters=allowed)
    assert is_served_elsewhere(policies, OWN, CLUSTERS.get) is elsewhere


@pytest.mark.parametrize(
    ("replication", "allowed", "peer"),
    [
        (["away"], [], None),
        (["away", "later"], [], "later"),
        (["later", "peer"], [], "peer"),
        (["away"], ["peer"], "peer"),
    ],
)
def test_clients_go_to_the_first_peer_that_serves_the_namespace(replication, allowed, peer):
    policies = Policies(replication_clusters=replication, allowed_clusters=allowed)
    refusal = foreign_namespace("t/n", policies, OWN, CLUSTERS.get)
    assert refusal.peer == peer
    assert str(refusal) == (
        f"Namespace missing local cluster name in clusters list: local_cluster={OWN} ns=t/n clusters=[{', '.join(replication)}]"
    )


def test_a_cluster_without_peers_sends_clients_nowhere():
    policies = Policies(replication_clusters=["peer"])
    assert foreign_namespace("t/n", policies, "former", CLUSTERS.get).peer is None
