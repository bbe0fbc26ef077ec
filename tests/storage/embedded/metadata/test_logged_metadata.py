"""The most bytes of one frame of the metadata log, and the use of the last free space."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from magnetar.storage.embedded.engine import open_embedded
from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.embedded.metadata.logged_metadata import MOST_GROUP_BYTES
from magnetar.storage.errors import StorageFullError
from magnetar.storage.interfaces import MUST_NOT_EXIST
from tests.crash.metadata_scenario import LOG_BYTES, MetadataWorld
from tests.storage.engine_for_tests import run_until_crash

VALUE = bytes(256 << 10)
COUNT = 64


async def test_operations_that_come_together_are_split_by_their_size(tmp_path):
    storage = await open_embedded(str(tmp_path))
    before = storage.metadata.transactions
    await asyncio.gather(*(storage.metadata.put(f"/n/{number}", VALUE) for number in range(COUNT)))
    assert storage.metadata.transactions - before >= COUNT * len(VALUE) // MOST_GROUP_BYTES
    assert len(await storage.metadata.children("/n")) == COUNT
    await storage.close()


async def fill(store, value):
    """New nodes with the value until there is no space; return their paths."""
    paths = []
    with contextlib.suppress(StorageFullError):
        for number in range(10_000):
            await store.put(f"/n/{number}", value, MUST_NOT_EXIST)
            paths.append(f"/n/{number}")
    assert 0 < len(paths) < 10_000
    return paths


@pytest.mark.parametrize("size", [16, 8 << 10])
def test_growth_leaves_the_last_space_to_deletions(size):
    """Peers that may subscribe fill the disk with subscriptions; deletions make room, each by several changes."""
    world = MetadataWorld()
    world.disk.capacity_bytes = 1 << 20

    async def main():
        store = world.open()
        paths = await fill(store, bytes(size))
        for number, path in enumerate(paths):
            await store.put(f"/deletions/{number}", b"[1]")
            _, version = await store.get(path)
            await store.put(path, bytes(size + 16), version)
            await store.put(f"/ledgers/{number}", b"{}", MUST_NOT_EXIST)
            await store.delete(f"/ledgers/{number}")
            await store.delete(path)
            await store.delete(f"/deletions/{number}")
        await store.put("/n/new", bytes(size), MUST_NOT_EXIST)
        await store.close()

    assert run_until_crash(world.disk, main()) is None


def test_a_node_does_not_grow_much_in_the_last_space():
    """An operation that grows is refused alone: the others of its frame take effect."""
    world = MetadataWorld()

    async def main():
        store = world.open()
        await store.put("/n/1", b"", MUST_NOT_EXIST)
        await store.put("/n/2", b"", MUST_NOT_EXIST)
        used = sum(len(world.disk.content(path)) for path in world.disk.paths())
        world.disk.capacity_bytes = used + 7 * LOG_BYTES
        with pytest.raises(StorageFullError):
            await store.put("/n/1", bytes(5 << 10), 0)
        together = await asyncio.gather(
            store.put("/n/3", b"", MUST_NOT_EXIST), store.delete("/n/2"), return_exceptions=True
        )
        assert isinstance(together[0], StorageFullError)
        assert together[1] is None
        assert await store.get("/n/1") == (b"", 0)
        world.disk.capacity_bytes = None
        await store.put("/n/1", bytes(5 << 10), 0)
        await store.put("/n/3", b"", MUST_NOT_EXIST)
        await store.close()

    assert run_until_crash(world.disk, main()) is None


async def test_a_tenant_that_fills_the_memory_of_large_values_takes_nothing_from_others(tmp_path):
    """A role with the right to consume made 4,800 subscriptions with properties of 64 KB: 630 MiB, of which each later
    start kept 350 MiB. Nothing but the disk bounded that.
    """
    settings = EngineSettings(metadata_large_bytes=2 << 20)
    value, roots = (
        bytes(64 << 10),
        ("/managed-ledgers/attacker/n/persistent/t", "/managed-ledgers/victim/n/persistent/t"),
    )

    async def fill_room(metadata, root):
        for number in range(100):
            try:
                await metadata.put(f"{root}/{number}", value, MUST_NOT_EXIST)
            except StorageFullError:
                return number
        return 100

    storage = await open_embedded(str(tmp_path), settings)
    assert [await fill_room(storage.metadata, root) for root in roots] == [32, 16]
    await storage.close()
    storage = await open_embedded(str(tmp_path), settings)
    metadata, (attacked, other) = storage.metadata, roots
    for root in roots:
        with pytest.raises(StorageFullError, match="memory"):
            await metadata.put(f"{root}/new", value, MUST_NOT_EXIST)
    await metadata.put(f"{attacked}/new", b"usual", MUST_NOT_EXIST)
    await metadata.put(f"{attacked}/0", value + bytes(4 << 10), 0)
    with pytest.raises(StorageFullError):
        await metadata.put(f"{attacked}/1", 2 * value, 0)
    await metadata.put(f"{attacked}/2", b"short", 0)
    await metadata.put("/ledgers/7", value, MUST_NOT_EXIST)
    for number in range(8):
        await metadata.delete(f"{other}/{number}")
    assert await fill_room(metadata, f"{other}/again") == 8
    await storage.close()
