"""Owners of bundles are read once, until their nodes change."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.ownership.owner_nodes import OwnerNodes
from magnetar.storage.errors import StorageUnavailableError
from tests.twins.memory_cluster import MemoryCluster

PATH = "/namespace/t/n/0x00000000_0x80000000"
OTHER = "/namespace/t/n/0x80000000_0xffffffff"


async def reported():
    """Wait until the watches have reported."""
    for _ in range(3):
        await asyncio.sleep(0)


class World:
    def __init__(self, most_nodes=10):
        self.cluster = MemoryCluster()
        self.session, self.owner = self.cluster.connect(), self.cluster.connect()
        self.reads, get = 0, self.session.get

        async def counted(path):
            self.reads += 1
            await asyncio.sleep(0)
            return await get(path)

        self.session.get = counted
        self.nodes = OwnerNodes(self.session, most_nodes)


async def test_a_node_is_read_once_until_it_changes():
    world = World()
    await world.owner.create_ephemeral(PATH, b"one")
    assert [await world.nodes.get(PATH) for _ in range(5)] == [b"one"] * 5
    assert world.reads == 1
    await world.owner.delete(PATH)
    await reported()
    assert await world.nodes.get(PATH) is None
    assert await world.nodes.get(PATH) is None
    assert world.reads == 3  # a missing node is read each time
    await world.owner.create_ephemeral(PATH, b"two")
    await reported()
    assert [await world.nodes.get(PATH) for _ in range(3)] == [b"two"] * 3
    assert world.reads == 4


async def test_a_change_while_the_node_is_read_is_not_missed():
    world = World()
    await world.owner.create_ephemeral(PATH, b"one")
    get = world.session.get

    async def overtaken(path):
        found = await get(path)
        await world.owner.delete(PATH)
        await world.owner.create_ephemeral(PATH, b"two")
        return found

    world.session.get = overtaken
    assert await world.nodes.get(PATH) == b"one"
    world.session.get = get
    await reported()
    assert await world.nodes.get(PATH) == b"two"


async def test_the_number_of_kept_nodes_is_bounded():
    world = World(most_nodes=1)
    await world.owner.create_ephemeral(PATH, b"one")
    await world.owner.create_ephemeral(OTHER, b"two")
    for _ in range(2):
        assert await world.nodes.get(PATH) == b"one"
        assert await world.nodes.get(OTHER) == b"two"
    assert world.reads == 4
    await world.owner.delete(PATH)
    assert await world.nodes.get(PATH) is None


async def test_without_the_service_known_owners_are_still_named():
    world = World()
    await world.owner.create_ephemeral(PATH, b"one")
    await world.nodes.get(PATH)
    world.session.suspend()
    assert await world.nodes.get(PATH) == b"one"
    with pytest.raises(StorageUnavailableError):
        await world.nodes.get(OTHER)


async def test_nothing_is_kept_after_the_end():
    world = World()
    await world.owner.create_ephemeral(PATH, b"one")
    await world.nodes.get(PATH)
    world.nodes.close()
    await world.owner.delete(PATH)
    assert await world.nodes.get(PATH) is None


async def test_a_lookup_does_not_wait_for_a_watch_without_end(monkeypatch):
    """While ZooKeeper was away every lookup of another broker's bundle stayed in memory, and took a place among those
    that the broker permits, until ZooKeeper was back.
    """
    world, back = World(), asyncio.Event()
    monkeypatch.setattr("magnetar.broker.ownership.owner_nodes._WATCHED_WITHIN_S", 0.01)
    monkeypatch.setattr(world.session, "watching", back.wait)
    await world.owner.create_ephemeral(PATH, b"one")
    with pytest.raises(StorageUnavailableError, match="no watch"):
        await world.nodes.get(PATH)
    back.set()
    assert [await world.nodes.get(PATH) for _ in range(3)] == [b"one"] * 3
    assert world.reads == 1
