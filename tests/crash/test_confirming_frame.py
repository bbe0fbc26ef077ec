"""The journal confirms its last frame by another frame, on a full disk too: a later flaw counts as damage, not as torn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.errors import StorageFailedError, StorageFullError
from magnetar.storage.position import Position
from tests.storage.engine_for_tests import TINY, World, append, read_all, settle

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EmbeddedStorage
    from magnetar.storage.interfaces import LedgerWriter

PAGE = 4096


async def written(world: World, body: bytes = b"kept") -> tuple[EmbeddedStorage, LedgerWriter]:
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [body])
    return storage, writer


async def full_beside_its_journal(world: World, source: str) -> tuple[EmbeddedStorage, LedgerWriter]:
    room_for = world.disk.room_for
    world.disk.room_for = lambda inode, offset, size: (  # type: ignore[method-assign]
        0 if "/ledgers/" in world.disk.path_of(inode) else room_for(inode, offset, size)
    )
    storage, writer = await written(world)
    await settle()
    assert "write-behind" in storage.health.full_sources
    storage.health.set_full(StorageFullError("no space"), source)
    return storage, writer


async def pause(world: World) -> None:
    """Let more time pass than the journal waits before it confirms its last frame."""
    for _ in range(3):
        world.scheduler.advance(1.5)
        await settle()


def flip(world: World, body: bytes) -> None:
    """Flip a bit of the entry's record in the journal."""
    for path in world.disk.paths():
        at = world.disk.content(path).rfind(body) if "/journal/" in path else -1
        if at >= 0:
            world.disk.flip_bit(path, at * 8)
            return
    raise AssertionError("the entry is not in the journal")


async def losses(world: World, body: bytes) -> list[Position]:
    """The entries that the next start reports as damaged after a bit of this entry was flipped in the journal; bytes of
    ledger files that were never synced are lost.
    """
    after = world.after_crash("nothing")
    flip(after, body)
    storage = await after.open()
    found = storage.recovery.damaged_entries
    assert bool(found) == bool(storage.recovery.damaged_files)
    await storage.close()
    return found


async def fill(storage: EmbeddedStorage, writer: LedgerWriter) -> bytes:
    """Append entries of a page each until the journal has no room; return the last acknowledged entry."""
    last = b"kept"
    for number in range(40):
        body = b"entry-%02d" % number
        try:
            await append(writer, [body + bytes(3000)])
        except StorageFullError:
            assert "journal" in storage.health.full_sources
            return last
        last = body
    raise AssertionError("the journal always found room")


async def test_a_full_journal_confirms_its_last_frame():
    world = World()
    storage, writer = await written(world)
    world.disk.capacity_bytes = 0
    room_for = world.disk.room_for
    world.disk.room_for = lambda inode, offset, size: (  # type: ignore[method-assign] # ledger files have room
        size if "/ledgers/" in world.disk.path_of(inode) else room_for(inode, offset, size)
    )
    last = await fill(storage, writer)
    await pause(world)
    assert storage.health.full is not None
    after = world.after_crash("nothing")
    flip(after, last)
    storage = await after.open()
    assert storage.recovery.damaged_files, "the damage looks like a torn frame"
    assert not storage.recovery.damaged_entries, "a full journal begins a checkpoint, which syncs the ledger file"
    assert await read_all(storage.ledgers, writer.ledger_id, 0) == [b"kept"]
    await storage.close()


@pytest.mark.parametrize("source", ["write-behind", "disk usage"])
async def test_a_journal_with_room_confirms_its_last_frame_while_the_disk_is_full(source: str):
    world = World()
    storage, writer = await full_beside_its_journal(world, source)
    await pause(world)
    assert source in storage.health.full_sources
    assert await losses(world, b"kept") == [Position(writer.ledger_id, 0)]


async def test_a_stop_while_the_disk_is_full_confirms_the_last_frame():
    """While the disk is full, no checkpoint empties the journal."""
    world = World()
    storage, writer = await full_beside_its_journal(world, "write-behind")
    await storage.close()
    assert await losses(world, b"kept") == [Position(writer.ledger_id, 0)]


async def test_a_stop_confirms_the_last_frame_before_its_checkpoint():
    """The process may end before the checkpoint of the stop is complete."""
    world = World()
    storage, writer = await written(world)
    await storage._parts.appends.close()
    assert await losses(world, b"kept") == [Position(writer.ledger_id, 0)]


async def test_a_stop_behind_a_confirmed_frame_writes_no_other():
    world = World()
    storage, _ = await written(world)
    await pause(world)
    before = storage._parts.journal.next_sequence
    await storage.close()
    assert storage._parts.journal.next_sequence == before


@pytest.mark.parametrize("waits", [False, True])
async def test_a_store_that_failed_beside_its_journal_confirms_the_last_frame(waits: bool):
    world = World()
    storage, writer = await written(world)
    storage.health.fail(StorageFailedError("a sync of another file failed"))
    if waits:
        await pause(world)
    else:
        await storage.close()
    assert await losses(world, b"kept") == [Position(writer.ledger_id, 0)]


async def test_a_journal_that_failed_writes_no_other_frame():
    world = World()
    storage, writer = await written(world)
    world.disk.sync_fails = lambda: True  # type: ignore[method-assign]
    with pytest.raises(StorageFailedError):
        await append(writer, [b"never"])
    paths = [path for path in world.disk.paths() if "/journal/" in path]
    before = [world.disk.content(path) for path in paths]
    await pause(world)
    await storage.close()
    assert [world.disk.content(path) for path in paths] == before


@pytest.mark.parametrize("pages", range(3, 9))
async def test_every_segment_keeps_a_page_for_the_confirming_frame(pages: int):
    """The next frame of entries goes to another segment when the confirming frame would not fit behind it."""
    world = World()
    size = pages * PAGE
    settings = replace(TINY, journal_first_segment_bytes=size, journal_segment_bytes=size, journal_zeroed_bytes=size)
    storage = await world.open(settings)
    writer = await storage.ledgers.create()
    journal = storage._parts.journal
    for number in range(3 * pages):
        await append(writer, [b"entry-%02d" % number + bytes(3000)])
        segment = journal._segment
        assert segment is not None
        assert segment.used_bytes + PAGE <= segment.size_bytes
        if number % 3 == 0:
            await pause(world)
    assert len(await read_all(storage.ledgers, writer.ledger_id, writer.last_add_confirmed)) == 3 * pages
    await storage.close()
