"""The last frame of the journal: torn by a power loss, unless a later frame or a ledger file shows that the frame was
acknowledged. Then the frame is damaged.

A start may be interrupted while it writes the records of a torn frame into ledger files.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.verify.command import verify_store
from tests.crash.test_lost_frames import BEFORE, BEHIND, LARGE, ONE_SEGMENT, PAGE, SEALED, proven
from tests.storage.engine_for_tests import ROOT, World, append, found_entries, run_until_crash, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from magnetar.storage.embedded.recovery.recovery_report import RecoveryReport
    from tests.twins.sim_files import SimDisk

JOURNAL = f"{ROOT}/journal/00000000.journal"
FIRST = f"{ROOT}/ledgers/000000000000.ledger"
SECOND = f"{ROOT}/ledgers/000000000001.ledger"
LATER = [b"later", b"later" * 1000]
Found = dict[int, list[bytes | None]]


def filled(fill: Callable[[World], Coroutine[Any, Any, Any]], files: str = "nothing") -> SimDisk:
    """The disk after the process died at the end of ``fill``; ``files``: which unsynced writes survive."""
    world = World()
    assert run_until_crash(world.disk, fill(world)) is None
    return world.after_crash(files).disk


def torn(disk: SimDisk) -> SimDisk:
    """The last frame lacks a part of its fourth large record."""
    disk.overwrite(JOURNAL, disk.content(JOURNAL).rindex(LARGE[3]) + 100, bytes(PAGE))
    return disk


def flip(disk: SimDisk, path: str, body: bytes) -> None:
    disk.flip_bit(path, (disk.content(path).rindex(body) + 1) * 8)


def start(disk: SimDisk) -> tuple[RecoveryReport, Found]:
    """The report of the start, and the entries of each ledger, None for a damaged entry. Checks that ``verify`` finds
    the same torn and damaged frames.
    """
    results: list[RecoveryReport] = []
    checked = verify_store(ROOT, files=disk.copy()).findings
    found: Found = {}

    async def main() -> None:
        storage = await World(disk).open()
        results.append(storage.recovery)
        found.update(await found_entries(storage.ledgers))
        await storage.close()

    assert run_until_crash(disk, main()) is None
    of_journal = {(each.severity, each.kind) for each in checked if each.file.startswith(f"{ROOT}/journal/0")}
    assert (("note", "torn-tail") in of_journal) is (results[0].torn_frame is not None)
    assert (("damage", "frame") in of_journal) is bool(results[0].damaged_files)
    return results[0], found


def half_written(disk: SimDisk, first: bytes, last: bytes) -> SimDisk:
    """The disk after a start that was interrupted while it wrote the file of ledger 0, without the bytes from ``first``
    to the begin of ``last``.
    """
    before = disk.copy()
    start(disk)
    content = bytearray(disk.content(FIRST))
    begin, end = content.index(first), content.index(last) + 512
    content[begin:end] = bytes(end - begin)
    before.put(FIRST, bytes(content))
    return before


async def two_ledgers(world: World) -> None:
    """The last frame has four large records of ledger 0."""
    storage = await world.open(ONE_SEGMENT)
    writer, other = await storage.ledgers.create(), await storage.ledgers.create()
    await append(writer, BEFORE)
    await append(other, SEALED)
    await append(writer, LARGE[:4])


def lost(report: RecoveryReport) -> list[tuple[int, int]]:
    return [(each.ledger_id, each.entry_id) for each in report.damaged_entries]


def test_records_of_a_torn_frame_in_a_ledger_file_raise_no_alarm():
    """An earlier start was interrupted while it wrote these records: a gap between them is no lost entry."""
    report, found = start(half_written(torn(filled(two_ledgers)), LARGE[0], LARGE[0]))
    assert report.torn_frame is not None
    assert not report.damaged_files
    assert not report.damaged_entries
    assert found == {0: [*BEFORE, *LARGE[:3]], 1: SEALED}


def test_a_power_loss_in_the_start_after_a_kill_raises_no_alarm():
    """A kill came between write and sync of the last frame: the first start saw the whole frame, the start after the
    power loss finds parts of the frame in the journal and in a ledger file.
    """

    async def fill(world: World) -> None:
        storage = await world.open(ONE_SEGMENT)
        writer = await storage.ledgers.create()
        await append(writer, BEFORE)
        await settle()
        world.disk.crash_at = world.disk.operations
        await append(writer, LARGE[:4])

    world = World()
    run_until_crash(world.disk, fill(world))
    assert world.disk.crashed
    assert world.disk.content(JOURNAL).count(LARGE[3]) == 1
    operation = 0
    while True:
        disk = world.disk.after_kill()
        disk.crash_at = operation
        run_until_crash(disk, World(disk).open(ONE_SEGMENT))
        if not disk.crashed:
            break
        for seed in range(3):
            report, found = start(disk.after_crash("some", seed))
            assert not report.damaged_files
            assert found[0] == [*BEFORE, *LARGE[:4]][: len(found[0])]
        operation += 1
    assert operation > 3


def test_a_lost_frame_before_a_torn_frame_is_reported_beside_its_records_in_a_ledger_file():
    """The device loses the first frame of a ledger; of the ledger file that an interrupted start wrote, only the end is
    left.
    """
    disk = half_written(torn(filled(two_ledgers)), BEFORE[0], LARGE[0])
    disk.overwrite(JOURNAL, disk.content(JOURNAL).index(BEFORE[0]) // PAGE * PAGE, bytes(PAGE))
    report, _ = start(disk)
    assert report.torn_frame is not None
    assert lost(report) == [(0, number) for number in range(len(BEFORE))]


@pytest.mark.parametrize("number", range(4))
def test_a_torn_frame_shows_that_the_frame_before_was_acknowledged(number: int):
    """One flipped bit of that frame costs the entry that it hits, and no later entry."""

    async def fill(world: World) -> None:
        storage = await world.open(ONE_SEGMENT)
        writer = await storage.ledgers.create()
        await append(writer, BEFORE)
        await append(writer, LARGE[:4])
        await append(writer, LATER)

    disk = filled(fill)
    disk.overwrite(JOURNAL, disk.content(JOURNAL).rindex(LATER[1]) + 100, bytes(PAGE))
    flip(disk, JOURNAL, LARGE[number])
    expected = [None if each is LARGE[number] else each for each in LARGE[:4]]
    findings = verify_store(ROOT, files=disk.copy()).findings
    assert [each.kind for each in findings if each.severity == "damage"] == ["frame"]
    report, found = start(disk)
    assert found == {0: [*BEFORE, *expected, *LATER[:1]]}
    assert report.damaged_files
    assert lost(report) == [(0, len(BEFORE) + number)]


@pytest.mark.parametrize("number", range(4))
def test_an_entry_in_a_ledger_file_shows_that_the_last_frame_was_acknowledged(number: int):
    """The same entry is damaged in the frame and in the ledger file, which also has the later entries."""
    disk = filled(two_ledgers, "everything")
    for path in (JOURNAL, FIRST):
        flip(disk, path, LARGE[number])
    report, found = start(disk)
    is_last = number == 3
    expected = [None if each is LARGE[number] else each for each in LARGE[: 3 if is_last else 4]]
    assert found == {0: [*BEFORE, *expected], 1: SEALED}
    assert lost(report) == ([] if is_last else [(0, len(BEFORE) + number)])
    assert bool(report.damaged_files) is not is_last


def test_an_entry_in_a_ledger_file_saves_other_ledgers_of_the_last_frame():
    """The ledger file has an intact copy of the damaged entry; the next entry, of another ledger, is in the frame
    alone.
    """

    async def fill(world: World) -> None:
        storage = await world.open(ONE_SEGMENT)
        writer, other = await storage.ledgers.create(), await storage.ledgers.create()
        await append(writer, BEFORE)
        await asyncio.gather(append(writer, LARGE[:1]), append(other, BEHIND))

    disk = filled(fill, "everything")
    disk.remove(SECOND)
    disk.sync_dir(f"{ROOT}/ledgers")
    flip(disk, JOURNAL, LARGE[0])
    report, found = start(disk)
    assert found == {0: [*BEFORE, LARGE[0]], 1: BEHIND}
    assert report.damaged_files
    assert not report.damaged_entries


def test_a_closed_ledger_shows_that_the_last_frame_was_acknowledged():
    async def fill(world: World) -> None:
        storage = await world.open(ONE_SEGMENT)
        writer = await storage.ledgers.create()
        await append(writer, LARGE)
        await writer.close()

    disk = filled(fill)
    flip(disk, JOURNAL, LARGE[0])
    report, found = start(disk)
    assert found == {0: [None, *LARGE[1:]]}
    assert report.damaged_files
    assert lost(report) == [(0, 0)]


def test_records_of_an_earlier_use_in_a_torn_frame_raise_no_alarm():
    """A power loss tore the frame: one of its pages has records of a ledger that was closed and written long ago."""

    async def fill(world: World) -> None:
        storage = await world.open(ONE_SEGMENT)
        writer, other = await storage.ledgers.create(), await storage.ledgers.create()
        await append(other, SEALED)
        await other.close()
        await append(writer, BEFORE)
        await storage.checkpoint()
        await append(writer, LARGE[:4])

    disk = filled(fill)
    page = disk.content(JOURNAL).index(LARGE[0]) // PAGE * PAGE + 2 * PAGE
    old = b"".join(proven(disk, 1, number, SEALED[number]) for number in (1, 2))
    old += proven(disk, 0, 0, BEFORE[0])
    disk.overwrite(JOURNAL, page, old.ljust(PAGE, b"\0"))
    report, found = start(disk)
    assert report.torn_frame is not None
    assert not report.damaged_files
    assert not report.damaged_entries
    assert found == {0: [*BEFORE, *LARGE[:2]], 1: SEALED}
