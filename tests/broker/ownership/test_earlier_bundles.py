"""The bundles of a broker that starts again before its earlier session has ended."""

from __future__ import annotations

import pytest

from magnetar.broker.ownership.earlier_bundles import bundles_with
from magnetar.broker.ownership.ownership import Here, ServedAt
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageError, StorageUnavailableError
from tests.broker.ownership.test_bundle_ownership import NAMESPACE, TOPIC, World, node_of
from tests.twins.memory_cluster import MemoryCluster


@pytest.fixture
async def cluster():
    return MemoryCluster()


@pytest.fixture
async def brokers(cluster):
    made = [World(cluster, number) for number in (1, 2)]
    for each in made:
        await each.ownership.start()
    yield made
    for each in made:
        await each.tasks.close()


async def test_the_bundles_of_one_broker_are_found_among_those_of_all():
    session = MemoryCluster().connect()
    assert await bundles_with(session, b"own") == []
    for path, value in {
        "t/b/0x00000000_0x80000000": b"own",
        "t/a/0x80000000_0xffffffff": b"own",
        "t/a/0x00000000_0x80000000": b"other",
        "u/a/0x00000000_0xffffffff": b"own",
        "pulsar/c1/h:8080/0x00000000_0xffffffff": b"own",  # the heartbeat of an Apache broker
    }.items():
        await session.put(f"/namespace/{path}", value)
    found = ["t/a/0x80000000_0xffffffff", "t/b/0x00000000_0x80000000", "u/a/0x00000000_0xffffffff"]
    assert await bundles_with(session, b"own") == found


async def test_nodes_that_cannot_be_read_do_not_hold_a_start_up(cluster):
    session = cluster.connect()
    for path in ("t/a/0x00000000_0xffffffff", "t/b/0x00000000_0xffffffff", "u/a/0x00000000_0xffffffff"):
        await session.put(f"/namespace/{path}", b"own")
    get, children = session.get, session.children

    async def refused_get(path):
        if "t/a" in path:
            raise StorageError("refused")
        return await get(path)

    async def refused_children(path):
        if path.endswith("/u"):
            raise StorageError("refused")
        return await children(path)

    session.get, session.children = refused_get, refused_children
    assert await bundles_with(session, b"own") == ["t/b/0x00000000_0xffffffff"]


async def test_a_restarted_broker_owns_its_bundles_before_its_earlier_session_ends(brokers, cluster):
    first, second = brokers
    assert await first.lookup(authoritative=True) == Here()
    others, gone = TopicName.parse(f"persistent://{NAMESPACE}/b"), f"/namespace/{NAMESPACE}/0x00000000_0x00000001"
    assert node_of(others) != node_of()
    assert await second.lookup(others, authoritative=True) == Here()
    await first.session.create_ephemeral(gone, first.ownership._node)  # a bundle split since
    again = World(cluster, 1)
    await again.ownership.start()
    assert again.ownership.serves(TOPIC)
    assert not again.ownership.serves(others)
    assert await second.lookup() == ServedAt(again.own)
    await first.session.expire()
    assert cluster.nodes("/namespace") == sorted([node_of(), node_of(others)])
    assert cluster.nodes("/loadbalance/brokers") == [f"/loadbalance/brokers/{each.name}" for each in brokers]
    await again.tasks.close()


async def test_a_broker_starts_beside_nodes_of_its_earlier_session_that_it_cannot_take(brokers, cluster):
    first, _ = brokers
    await first.lookup(authoritative=True)
    again = World(cluster, 1)

    async def fails(_path):
        raise StorageUnavailableError("no answer")

    again.session.is_mine = fails
    again.session.delete = fails
    await again.ownership._take_again()
    assert not again.ownership.serves(TOPIC)
    await again.tasks.close()
