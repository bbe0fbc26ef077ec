"""The register beside brokers whose load manager keeps owners elsewhere; test_bundle_ownership.py has the rest."""

from __future__ import annotations

import pytest

from magnetar.broker.ownership.cluster_nodes import LoadReport
from magnetar.broker.ownership.register import BrokerRegister
from magnetar.broker.tasks import TaskSet
from tests.twins.memory_cluster import MemoryCluster

EXTENSIBLE = (
    b'{"webServiceUrl":"http://h:1","pulsarServiceUrl":"pulsar://h:2","loadManagerClassName":'
    b'"org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"}'
)


@pytest.fixture
async def cluster():
    return MemoryCluster()


@pytest.fixture
async def register(cluster):
    tasks = TaskSet()

    async def report():
        return LoadReport(web_service_url="http://h:8081", pulsar_service_url="pulsar://h:6651")

    yield BrokerRegister(cluster.connect(), "h:8081", report, tasks, fresh_s=0)
    await tasks.close()


async def test_a_broker_does_not_enter_beside_a_broker_whose_owners_are_in_a_topic(cluster, register):
    await cluster.store.put("/loadbalance/brokers/h:1", EXTENSIBLE)
    with pytest.raises(
        ValueError, match=r"^broker h:1 has the load manager .*\.ExtensibleLoadManagerImpl: this broker"
    ):
        await register.enter()
    assert await cluster.store.children("/loadbalance/brokers") == ["h:1"]
    assert await cluster.store.get("/loadbalance/leader") is None


async def test_a_broker_whose_owners_are_in_a_topic_gets_no_lookup(cluster, register):
    await register.enter()
    await cluster.store.put("/loadbalance/brokers/h:1", EXTENSIBLE)
    assert set(await register.candidates(persistent=True)) == {"h:8081"}


@pytest.mark.parametrize(
    "unreadable",
    [b"{", b'{"pulsarServiceUrl":"\xff","serviceUrl":"\xff"}', b'{"unknown":' + b"[" * 100_000],
    ids=["unfinished", "no text", "deep"],
)
async def test_a_broker_enters_and_gets_lookups_beside_nodes_that_cannot_be_read(cluster, register, unreadable):
    await cluster.store.put("/loadbalance/brokers/h:1", unreadable)
    await register.enter()
    await cluster.store.put("/loadbalance/leader", unreadable)
    assert set(await register.candidates(persistent=True)) == {"h:8081"}
    assert await register.leader() is None
