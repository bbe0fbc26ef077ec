"""The leader of a cluster is killed, suspended and stopped: answers as those of two brokers of Apache Pulsar.

Mixed clusters run where MAGNETAR_PULSAR_LIB names the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import json

import pytest
from kazoo.client import KazooClient

from tests.cluster.broker_processes import Member, initialize
from tests.cluster.conftest import LONG
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker
from tests.cluster.requests_of_leader import RECORDED, Failover
from tests.waiting import wait_for

needs_pulsar = pytest.mark.skipif(not LIB, reason=NO_LIB)
pytestmark = [pytest.mark.timeout(1200), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]


def wait_until_empty(zookeeper):
    """Wait for the end of the sessions of brokers that earlier tests killed: one of them may be the leader."""
    client = KazooClient(zookeeper)
    client.start(30)
    try:
        wait_for(
            lambda: not client.exists("/loadbalance/brokers") or client.get_children("/loadbalance/brokers") == [],
            60,
            "the end of all brokers",
        )
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param((Member, Member), id="ours"),
        pytest.param((Member, PulsarBroker), id="ours-leads-pulsar", marks=needs_pulsar),
        pytest.param((PulsarBroker, Member), id="pulsar-leads-ours", marks=needs_pulsar),
    ],
)
def test_answers_are_those_of_apache_pulsar(cluster, tmp_path, kinds):
    initialize(cluster)
    wait_until_empty(cluster.zookeeper)
    members = [kind(tmp_path, f"f{number}", cluster.zookeeper, **MORE) for number, kind in enumerate(kinds)]
    failover = Failover(members, cluster.zookeeper)
    try:
        failover.play()
    finally:
        for each in members:
            each.end()
    assert failover.answers == json.loads(RECORDED.read_text())
