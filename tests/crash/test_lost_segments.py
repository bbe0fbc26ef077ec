"""Another program takes files of the journal from a running broker: a file without a name takes writes and syncs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import StorageFailedError
from tests.storage.engine_for_tests import ROOT, World, append, read_all, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.twins.sim_files import SimDisk

BODIES = [b"%d" % number * 9 for number in range(9)]


def remove(disk: SimDisk, path: str) -> None:
    disk.remove(path)


def replace(disk: SimDisk, path: str) -> None:
    disk.put(path, disk.content(path))


def cut(disk: SimDisk, path: str) -> None:
    disk.open(path).truncate(8192)


TAKE = pytest.mark.parametrize("take", [remove, replace, cut])


def segments(world: World) -> list[str]:
    return [path for path in world.disk.paths() if path.endswith(".journal")]


def take_all(world: World, take: Callable[[SimDisk, str], None]) -> None:
    for path in segments(world):
        take(world.disk, path)


async def check_all(world: World, ledger_id: int) -> None:
    """The next start, without the pages of the last process, has every entry."""
    after = world.after_crash("nothing")
    storage = await after.open()
    assert (await storage.ledgers.open_recover(ledger_id)).entries == len(BODIES)
    assert await read_all(storage.ledgers, ledger_id, len(BODIES) - 1) == BODIES
    assert not storage.recovery.damaged_entries
    assert not storage.recovery.missing_frames
    await storage.close()
    assert not verify_store(ROOT, files=after.disk.copy()).damaged


@TAKE
@pytest.mark.parametrize("has_frame_writer", [True, False])
async def test_a_checkpoint_lets_the_journal_leave_lost_segments(take, has_frame_writer):
    """A crash cost all entries from the removal to the next segment, 64 MiB of them."""
    world = World()
    world.has_frame_writer = has_frame_writer
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, BODIES[:3])
    taken = segments(world)
    take_all(world, take)
    await append(writer, BODIES[3:6])
    with structlog.testing.capture_logs() as logs:
        await storage.checkpoint()
        await settle()
    assert [(line["event"], line["path"]) for line in logs if line["log_level"] == "error"] == [
        ("segment.lost", path) for path in taken
    ]
    await append(writer, BODIES[6:])
    assert storage.health.problem is None
    await check_all(world, writer.ledger_id)
    with structlog.testing.capture_logs() as logs:
        await storage.checkpoint()
        await storage.close()
    assert "segment.lost" not in [line["event"] for line in logs]
    await check_all(world, writer.ledger_id)


@TAKE
async def test_a_stop_saves_the_entries_of_a_lost_segment(take):
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, BODIES)
    take_all(world, take)
    await storage.close()
    assert storage.health.failed is None
    await check_all(world, writer.ledger_id)


@TAKE
async def test_a_stop_on_a_full_disk_that_needs_a_lost_segment_fails(take):
    world = World()
    room_for = world.disk.room_for
    world.disk.room_for = lambda inode, offset, size: (
        0 if "/ledgers/" in world.disk.path_of(inode) else room_for(inode, offset, size)
    )
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, BODIES)
    await settle()
    assert storage.health.full is not None
    take_all(world, take)
    await storage.close()
    assert isinstance(storage.health.failed, StorageFailedError)
    assert "another program has removed, replaced or cut /data/journal/0" in str(storage.health.failed)


async def test_a_whole_journal_fails_no_stop_on_a_full_disk():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, BODIES)
    world.disk.capacity_bytes = 0
    await storage.close()
    assert storage.health.failed is None


async def test_the_folder_of_the_journal_is_gone():
    """No checkpoint can be written then; nothing hides that."""
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, BODIES)
    take_all(world, remove)
    world.disk._folders.discard(f"{ROOT}/journal")
    await storage.checkpoint()
    assert isinstance(storage.health.failed, StorageFailedError)
    await storage.close()
