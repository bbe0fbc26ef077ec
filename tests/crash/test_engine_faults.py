"""A full disk at every write, and back; a failing fsync at every sync."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import StorageFailedError, StorageFullError
from tests.crash.engine_scenario import Promise, Scenario, check
from tests.storage.engine_for_tests import ROOT, TINY, World, append, read_all, run_until_crash, settle
from tests.storage.records_for_tests import slab_of

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerWriter


class Persistent(Scenario):
    """A client that repeats each failed call until the disk has space."""

    async def append(self, writer: LedgerWriter, bodies: list[bytes]) -> None:
        self.promise.pushed[writer.ledger_id] += bodies
        while True:
            try:
                await append(writer, bodies)
                break
            except StorageFullError:
                assert writer.last_add_pushed == writer.last_add_confirmed
                self.world.scheduler.advance(10)
                await settle()
        self.promise.acked[writer.ledger_id] = len(self.promise.pushed[writer.ledger_id])

    async def create(self) -> LedgerWriter:
        while True:
            try:
                return await super().create()
            except StorageFullError:
                self.world.scheduler.advance(10)

    async def seal(self, writer: LedgerWriter) -> None:
        while True:
            try:
                return await super().seal(writer)
            except StorageFullError:
                self.world.scheduler.advance(10)

    async def delete(self, ledger_id: int) -> None:
        while True:
            try:
                return await super().delete(ledger_id)
            except StorageFullError:
                self.world.scheduler.advance(10)

    async def checkpoint(self) -> None:
        waiting = asyncio.ensure_future(super().checkpoint())
        while not waiting.done():
            self.world.scheduler.advance(10)
            await settle()
        await waiting

    def append_nowait(self, writer: LedgerWriter, bodies: list[bytes]) -> None:
        """Send no burst: this client repeats no append of a burst, and the next awaited append would overtake it."""


def operations_of_kind(kind: str, scenario: type[Scenario]) -> list[int]:
    world = World()
    assert run_until_crash(world.disk, scenario(world, Promise()).run()) is None
    return [number for number, found in enumerate(world.disk.log) if found == kind]


WRITES = operations_of_kind("write", Persistent)
SYNCS = operations_of_kind("sync", Scenario) + operations_of_kind("sync_dir", Scenario)


@pytest.mark.parametrize("operation", WRITES)
def test_disk_full_at_every_write_and_back(operation: int):
    """The failed append leaves no gap, the engine resumes by itself, nothing acknowledged is lost."""
    world, promise = World(), Promise()
    world.disk.full_at = operation

    async def main() -> None:
        scenario = Persistent(world, promise)
        try:
            await scenario.run()
        except StorageFullError:
            assert scenario.storage is None  # the start was refused; ``check`` starts again

    run_until_crash(world.disk, main())
    after = world.after_crash("everything")
    assert run_until_crash(after.disk, check(after, promise)) is None


@pytest.mark.parametrize("operation", SYNCS)
def test_failing_sync_stops_acknowledgement_at_once(operation: int):
    """Every earlier acknowledgement holds; the engine gives none later and reports the failure once."""
    world, promise = World(), Promise()
    world.disk.fail_sync_at = operation
    seen: list[StorageFailedError] = []

    async def main() -> None:
        scenario = Scenario(world, promise)
        try:
            await scenario.run()
        except StorageFailedError:
            pass
        except OSError:
            assert scenario.storage is None
        if scenario.storage is None:
            return
        storage = scenario.storage
        storage.health.on_failure(seen.append)
        assert len(seen) == 1
        if not storage._closed:
            acked = dict(promise.acked)
            with pytest.raises(StorageFailedError):
                await append(await storage.ledgers.create(), [b"never"])
            assert acked == promise.acked
            await storage.close()

    run_until_crash(world.disk, main())
    for mode, seed in (("nothing", 0), ("some", operation)):
        after = world.after_crash(mode, seed)
        assert run_until_crash(after.disk, check(after, promise)) is None


async def test_a_disk_without_space_fails_appends_and_serves_reads():
    world = World()
    storage = await world.open(replace(TINY, checkpoint_bytes=1 << 30))
    writer = await storage.ledgers.create()
    await append(writer, [b"kept"])
    world.disk.capacity_bytes = 0
    accepted = 0
    while storage.health.full is None:
        accepted += 1
        assert accepted < 20
        with contextlib.suppress(StorageFullError):
            await append(writer, [b"z" * 3000])
    with pytest.raises(StorageFullError):
        await append(writer, [b"z"])
    assert storage.health.full is not None
    assert storage.stats().state == "full"
    confirmed = writer.last_add_confirmed
    assert writer.last_add_pushed == confirmed
    assert (await read_all(storage.ledgers, writer.ledger_id, confirmed))[0] == b"kept"
    for _ in range(4):
        world.scheduler.advance(10)
        await settle()
    assert storage.health.full is not None
    world.disk.capacity_bytes = None
    world.scheduler.advance(10)
    await settle()
    assert storage.health.full is None
    await append(writer, [b"again"])
    assert await read_all(storage.ledgers, writer.ledger_id, confirmed + 1)
    await storage.close()


async def test_without_descriptors_appends_fail_until_there_are_some_again():
    """A process without free descriptors has lost no entry, so the engine reports no failure that ends the process."""
    world = World()
    storage = await world.open(TINY)
    writer = await storage.ledgers.create()
    await append(writer, [b"kept"])
    world.disk.no_descriptors = True
    accepted = 0
    while storage.health.full is None:  # until the engine has to open a file
        accepted += 1
        assert accepted < 200
        with contextlib.suppress(StorageFullError):
            await append(writer, [b"z" * 3000])
        await settle()
    assert storage.health.failed is None
    confirmed = writer.last_add_confirmed
    world.disk.no_descriptors = False
    for _ in range(5):
        world.scheduler.advance(10)
        await settle()
    assert storage.health.full is None
    await append(writer, [b"again"])
    assert (await read_all(storage.ledgers, writer.ledger_id, confirmed + 1))[0] == b"kept"
    await storage.close()


@pytest.mark.parametrize("folder", ["metadata", "journal", "ledgers"])
async def test_a_folder_that_cannot_be_opened_for_its_sync_ends_nothing(folder, monkeypatch):
    """The descriptors are used up when a snapshot, a checkpoint or a deletion wants to sync its folder."""
    world = World()
    storage = await world.open(TINY)
    doomed = await storage.ledgers.create()
    await append(doomed, [b"x" * 500])
    sync_dir, refused = world.disk.sync_dir, []

    def none_left(path):
        if path.endswith(folder):
            refused.append(path)
            raise OSError(errno.EMFILE, "Too many open files (simulated)", path)
        sync_dir(path)

    monkeypatch.setattr(world.disk, "sync_dir", none_left)
    deleting = asyncio.ensure_future(storage.ledgers.delete(doomed.ledger_id))
    for number in range(200):
        with contextlib.suppress(StorageFullError):
            await storage.metadata.put("/n", b"%d" % number * 2000)
        await settle()
        if number % 20 == 0:
            world.scheduler.advance(10)
    assert refused
    assert storage.health.failed is None
    monkeypatch.setattr(world.disk, "sync_dir", sync_dir)
    for _ in range(5):
        world.scheduler.advance(10)
        await settle()
    await asyncio.wait({deleting})
    assert storage.health.failed is None
    writer = await storage.ledgers.create()
    await append(writer, [b"again"])
    assert await read_all(storage.ledgers, writer.ledger_id, 0) == [b"again"]
    await storage.close()


async def test_a_full_disk_lets_ledgers_be_deleted_and_so_recovers():
    """Write-behind waits for space; a deletion, which frees space, must not wait for write-behind."""
    world = World()
    storage = await world.open(replace(TINY, journal_first_segment_bytes=64 << 10, journal_segment_bytes=64 << 10))
    old, new = await storage.ledgers.create(), await storage.ledgers.create()
    await append(old, [b"old" * 4000])  # more than the reserve
    await settle()
    world.disk.capacity_bytes = sum(len(world.disk.content(path)) for path in world.disk.paths())
    await append(new, [b"new" * 500])
    await settle()
    assert "write-behind" in storage.health.full_sources
    with pytest.raises(StorageFullError):
        await append(new, [b"more"])
    assert await read_all(storage.ledgers, new.ledger_id, 0) == [b"new" * 500]
    await storage.ledgers.delete(old.ledger_id)
    world.scheduler.advance(10)
    await settle()
    assert storage.health.full is None
    await append(new, [b"more"])
    await storage.close()
    storage = await world.open()
    assert await read_all(storage.ledgers, new.ledger_id, 1) == [b"new" * 500, b"more"]
    await storage.close()


async def test_appends_behind_a_failed_one_fail_in_order_and_leave_no_gap():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"first"])
    await settle()
    world.disk.full_at = world.disk.operations
    answers: list[tuple[int, bool]] = []
    for number in range(5):
        slab = slab_of(writer.ledger_id, writer.last_add_pushed + 1, [b"n%d" % number * 800], writer.record_proof)
        writer.append(slab, lambda error, number=number: answers.append((number, error is None)))
    await settle()
    assert answers == [(number, False) for number in range(5)]
    assert writer.last_add_pushed == writer.last_add_confirmed == 0
    world.scheduler.advance(10)
    await settle()
    await append(writer, [b"second"])
    assert await read_all(storage.ledgers, writer.ledger_id, 1) == [b"first", b"second"]
    await storage.close()


@pytest.mark.parametrize("bodies", [[b"late" * 9], [b"late" * 9] * 3])
async def test_a_frame_whose_sync_failed_adds_nothing_to_a_ledger_that_was_closed_behind_the_failure(
    bodies: list[bytes],
):
    """The entries of the frame stayed behind the index of the ledger file, where verify took them for damage."""
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"first"])
    await settle()
    world.disk.fail_sync_at = world.disk.operations + 1  # behind the write of the frame
    with pytest.raises(StorageFailedError):
        await append(writer, bodies)
    assert (await writer.close()).last_entry_id == 0
    await storage.close()
    assert world.disk.failures == 1

    after = World(world.disk.after_kill())
    storage = await after.open()
    assert await read_all(storage.ledgers, writer.ledger_id, 0) == [b"first"]
    await storage.close()
    report = verify_store(ROOT, files=after.disk.copy())
    assert not report.damaged, report.findings
    assert report.entries == 1


@pytest.mark.parametrize("how", ["remove", "cut", "replace", "cut and written again"])
@pytest.mark.parametrize("sealed", [False, True])
async def test_a_ledger_file_that_another_program_changes_fails_the_checkpoint_and_comes_back(how: str, sealed: bool):
    """The checkpoint counted, and the journal gave up the entries that only the removed file had."""
    bodies = [b"%d" % number * 9 for number in range(6)]
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, bodies[:3])
    await settle()
    path = f"{ROOT}/ledgers/{writer.ledger_id:012}.ledger"
    if how == "remove":
        world.disk.remove(path)
        await append(writer, bodies[3:])  # into the file without a name
    elif how == "replace":
        world.disk.put(path, world.disk.content(path) + bytes(9999))
        await append(writer, bodies[3:])
    elif how == "cut and written again":
        world.disk.open(path).truncate(4096 + 50)
        await append(writer, bodies[3:])  # the file has its length again
        await settle()
    else:
        await append(writer, bodies[3:])
        await settle()
        world.disk.open(path).truncate(4096 + 50)
    if sealed:
        await writer.close()
    await storage.checkpoint()
    assert isinstance(storage.health.failed, StorageFailedError)
    assert path in str(storage.health.failed)
    with pytest.raises(StorageFailedError):
        await append(writer if not sealed else await storage.ledgers.create(), [b"late"])
    await storage.close()

    after = World(world.disk.after_kill())
    storage = await after.open()
    assert (await storage.ledgers.open_recover(writer.ledger_id)).entries == len(bodies)
    assert await read_all(storage.ledgers, writer.ledger_id, len(bodies) - 1) == bodies
    await storage.close()
    assert not verify_store(ROOT, files=after.disk.copy()).damaged


async def test_a_missing_file_of_an_earlier_run_fails_no_checkpoint():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"first", b"second"])
    await storage.close()
    world.disk.remove(f"{ROOT}/ledgers/{writer.ledger_id:012}.ledger")
    storage = await world.open()
    await storage.ledgers.open_recover(writer.ledger_id)
    await append(await storage.ledgers.create(), [b"another"])
    await storage.checkpoint()
    assert storage.health.failed is None
    await storage.close()


async def test_a_ledger_that_is_deleted_during_a_checkpoint_does_not_fail_the_store():
    world = World()
    storage = await world.open()
    writer = await storage.ledgers.create()
    await append(writer, [b"first", b"second"])
    waiting = asyncio.ensure_future(storage.checkpoint())
    await writer.close()
    await storage.ledgers.delete(writer.ledger_id)
    await waiting
    await storage.checkpoint()
    assert storage.health.failed is None
    await storage.close()


def test_the_matrix_is_not_empty():
    assert len(WRITES) > 40
    assert len(SYNCS) > 30
