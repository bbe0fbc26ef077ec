"""A broker that leaves its cluster gives its bundles away a few at a time."""

from __future__ import annotations

import asyncio

from magnetar.broker.policies.records import even_bundles
from magnetar.protocol.topic_name import TopicName
from tests.broker.ownership.test_bundle_ownership import NAMESPACE, World
from tests.twins.memory_cluster import MemoryCluster
from tests.waiting import until


async def test_a_broker_that_stops_serves_bundles_until_their_turn():
    cluster = MemoryCluster()
    broker = World(cluster, 1)
    await broker.ownership.start()
    topics = [TopicName.parse(f"persistent://{NAMESPACE}{letter}/a") for letter in "abcdefghij"]
    broker.default_bundles = lambda _namespace: even_bundles(1)
    broker.ownership._bundles._defaults = broker.default_bundles
    for topic in topics:
        await broker.lookup(topic, authoritative=True)
    broker.unload_waits.clear()
    stopping = asyncio.ensure_future(broker.ownership.close())
    states = broker.ownership._owned.values
    await until(lambda: sum(each.state.value == "serving" for each in states()) == 6)
    broker.unload_waits.set()
    await stopping
    assert len(broker.unloaded) == len(topics)
    assert cluster.nodes("/namespace") == []
    await broker.tasks.close()
