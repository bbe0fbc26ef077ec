"""Crash at every operation of the metadata log: changes, new logs, snapshots, removals, the start itself.

``make test`` takes a fixed seeded sample, ``MAGNETAR_CRASH_LONG=1`` takes all.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from magnetar.storage.errors import StorageFailedError, StorageFullError
from tests.crash.metadata_scenario import FOLDER, MetadataRun, MetadataWorld, Told, check, state_of
from tests.storage.engine_for_tests import run_until_crash
from tests.twins.sim_files import SimulatedCrash

LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
LOSSES = [("nothing", 0), ("everything", 0), *(("some", seed) for seed in range(1, 17 if LONG else 5))]


def whole_run(seed: int = 1) -> MetadataWorld:
    world = MetadataWorld()
    assert run_until_crash(world.disk, MetadataRun(world, Told(), seed).run()) is None
    return world


OPERATIONS = whole_run().disk.operations
POINTS = range(OPERATIONS) if LONG else sorted(random.Random(3).sample(range(OPERATIONS), min(OPERATIONS, 120)))


def test_the_run_makes_several_logs_and_snapshots_and_removes_old_ones():
    world = whole_run()
    assert set(world.disk.log) >= {"write", "sync", "create", "rename", "remove", "sync_dir"}
    names = [path.removeprefix(FOLDER + "/") for path in world.files()]
    assert sum(name.endswith(".snapshot") for name in names) == 2
    assert "00000001.log" not in names
    assert OPERATIONS > 120


def test_an_uninterrupted_run_keeps_everything():
    world, told = MetadataWorld(), Told()
    run_until_crash(world.disk, MetadataRun(world, told).run())
    assert told.durable == 26
    run_until_crash(world.disk, check(world, told))


@pytest.mark.parametrize("operation", POINTS)
def test_a_crash_in_life(operation: int):
    world, told = MetadataWorld(), Told()
    world.disk.crash_at = operation
    assert isinstance(run_until_crash(world.disk, MetadataRun(world, told).run()), SimulatedCrash)
    for mode, seed in LOSSES:
        after = world.after_crash(mode, seed * 1000 + operation)
        assert run_until_crash(after.disk, check(after, told)) is None


@pytest.mark.parametrize("operation", POINTS if LONG else POINTS[::6])
def test_a_crash_in_the_start(operation: int):
    world, told = MetadataWorld(), Told()
    world.disk.crash_at = operation
    run_until_crash(world.disk, MetadataRun(world, told).run())
    chance = random.Random(operation)
    for mode, seed in LOSSES if LONG else LOSSES[:4]:
        probe = world.after_crash(mode, seed * 1000 + operation)
        run_until_crash(probe.disk, _open(probe))
        points = range(probe.disk.operations)
        for point in points if LONG else chance.sample(points, min(len(points), 4)):
            once = world.after_crash(mode, seed * 1000 + operation)
            once.disk.crash_at = point
            run_until_crash(once.disk, _open(once))
            twice = once.after_crash(("nothing", "everything", "some")[point % 3], point)
            assert run_until_crash(twice.disk, check(twice, told)) is None


async def _open(world: MetadataWorld) -> None:
    world.open()


WRITES = [number for number, kind in enumerate(whole_run().disk.log) if kind == "write"]
SYNCS = [number for number, kind in enumerate(whole_run().disk.log) if kind in {"sync", "sync_dir"}]


@pytest.mark.parametrize("operation", WRITES if LONG else WRITES[::3])
def test_no_space_at_one_write(operation: int):
    """The group fails as a whole with a typed error; the next group succeeds."""
    world, told = MetadataWorld(), Told()
    world.disk.full_at = operation
    run = MetadataRun(world, told)

    async def main() -> None:
        try:
            await run.run()
        except OSError:
            assert run.store is None  # the start was refused; ``check`` starts again

    run_until_crash(world.disk, main())
    for mode in ("everything", "nothing"):
        after = world.after_crash(mode)
        assert run_until_crash(after.disk, check(after, told)) is None


def test_a_full_disk_leaves_room_for_deletions():
    """Deletions, which give space back, fit into the space that the log and the spare file have reserved."""
    world, told = MetadataWorld(), Told()

    async def main() -> None:
        store = world.open()
        for number in range(4):
            await store.put(f"/n/{number}", b"x")
        world.disk.capacity_bytes = sum(len(world.disk.content(path)) for path in world.disk.paths())
        for number in range(4):
            await store.delete(f"/n/{number}")
        assert await state_of(store) == {}
        await store.close()

    assert run_until_crash(world.disk, main()) is None
    world.disk.capacity_bytes = None
    assert run_until_crash(world.disk, check(world, told)) is None


def test_reads_are_answered_beside_writes_that_find_no_space():
    """Consumers continue while the disk is full, and their reads begin with a read of the metadata."""
    world = MetadataWorld()

    async def main() -> None:
        store = world.open()
        await store.put("/n/0", b"x")
        world.disk.full_at = world.disk.operations
        put = asyncio.ensure_future(store.put("/n/1", b"y"))
        got, names = await asyncio.gather(store.get("/n/0"), store.children("/n"))
        assert got == (b"x", 0)
        assert names == ["0"]
        with pytest.raises(StorageFullError):
            await put
        await store.put("/n/1", b"z")
        assert await store.get("/n/1") == (b"z", 0)
        await store.close()
        again = world.open()
        assert await again.get("/n/1") == (b"z", 0)
        await again.close()

    assert run_until_crash(world.disk, main()) is None


@pytest.mark.parametrize("operation", SYNCS if LONG else SYNCS[::3])
def test_a_failing_sync_ends_all_writing(operation: int):
    """Changes answered before the failure are durable; no operation succeeds after it."""
    world, told = MetadataWorld(), Told()
    world.disk.fail_sync_at = operation
    run = MetadataRun(world, told)
    seen: list[StorageFailedError] = []

    async def main() -> None:
        try:
            await run.run()
        except StorageFailedError:
            assert run.store is not None
            run.store.on_failure = seen.append
            with pytest.raises(StorageFailedError):
                await run.store.put("/n/0", b"never")
            await run.store.close()
        except OSError:
            assert run.store is None

    run_until_crash(world.disk, main())
    for mode, seed in (("nothing", 0), ("some", operation)):
        after = world.after_crash(mode, seed)
        assert run_until_crash(after.disk, check(after, told)) is None
