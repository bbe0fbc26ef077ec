"""A device that loses writes of the journal: pages of a frame are zeros, or hold bytes of an earlier use.

Only records on these pages are lost, and of these only records that no ledger file holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded.ledger_head import proof_from_id
from magnetar.storage.embedded.verify.command import verify_store
from tests.storage.engine_for_tests import ROOT, TINY, World, append, found_entries, run_until_crash, settle
from tests.storage.records_for_tests import record

if TYPE_CHECKING:
    from magnetar.storage.embedded.engine import EngineSettings
    from tests.twins.sim_files import SimDisk

PAGE = 4096
ONE_SEGMENT = replace(
    TINY,
    journal_first_segment_bytes=64 << 10,
    journal_segment_bytes=64 << 10,
    journal_zeroed_bytes=64 << 10,
    journal_max_frame_bytes=32 << 10,
)
SEGMENT_PER_FRAME = replace(
    ONE_SEGMENT, journal_first_segment_bytes=24 << 10, journal_segment_bytes=24 << 10, journal_zeroed_bytes=24 << 10
)
"""A frame of four pages and its successor do not fit into one segment."""

SEALED = [b"one", b"two", b"three", b"four", b"five"]
BEFORE = [b"before"]
LARGE = [b"%d" % number * 3000 for number in range(5)]
"""One append, so one frame: the first page holds the first record and a part of the second."""
BEHIND = [b"behind"]


async def _fill(world: World, settings: EngineSettings) -> None:
    """Ledger 0 sealed; ledger 1 checkpointed after its first entry, then two frames of ledger 1 and a confirming frame."""
    storage = await world.open(settings)
    first, second = await storage.ledgers.create(), await storage.ledgers.create()
    await append(first, SEALED)
    await first.close()
    await append(second, BEFORE)
    await storage.checkpoint()
    await append(second, LARGE)
    await append(second, BEHIND)
    for _ in range(2):
        world.scheduler.advance(1.5)
        await settle()


def stopped(settings: EngineSettings = ONE_SEGMENT, files: str = "nothing") -> World:
    world = World()
    run_until_crash(world.disk, _fill(world, settings))
    return world.after_crash(files)


def overwrite(world: World, page: int, data: bytes) -> None:
    """Put ``data`` in place of this page of the frame with the large records."""
    for name in world.disk.paths():
        content = world.disk.content(name)
        if "/journal/" in name and (at := content.find(LARGE[0])) >= 0:
            begin = at // PAGE * PAGE + page * PAGE
            world.disk.put(name, content[:begin] + data.ljust(PAGE, b"\0") + content[begin + PAGE :])
            return
    raise AssertionError("the frame is not there")


def proven(disk: SimDisk, ledger_id: int, entry_id: int, body: bytes) -> bytes:
    """The record of an entry of this store."""
    store_id = bytes.fromhex(disk.content(f"{ROOT}/VERSION").split()[2].decode())
    return record(ledger_id, entry_id, body, proof_from_id(store_id, ledger_id))


def outcome(world: World) -> dict[int, list[bytes | None]]:
    """Entries of each ledger, None for a damaged entry. The start has reported the damage."""
    found: dict[int, list[bytes | None]] = {}

    async def main() -> None:
        storage = await world.open()
        assert storage.recovery.damaged_files
        found.update(await found_entries(storage.ledgers))
        await storage.close()

    run_until_crash(world.disk, main())
    return found


@pytest.mark.parametrize("settings", [ONE_SEGMENT, SEGMENT_PER_FRAME], ids=["within", "last of its segment"])
def test_a_lost_first_page_costs_the_records_on_it(settings: EngineSettings):
    world = stopped(settings)
    overwrite(world, 0, b"")
    assert outcome(world) == {0: SEALED, 1: [*BEFORE, None, None, *LARGE[2:], *BEHIND]}


@pytest.mark.parametrize("settings", [ONE_SEGMENT, SEGMENT_PER_FRAME], ids=["within", "last of its segment"])
def test_a_lost_frame_costs_nothing_that_a_ledger_file_holds(settings: EngineSettings):
    world = stopped(settings, "everything")
    for page in (3, 2, 1, 0):
        overwrite(world, page, b"")
    assert outcome(world) == {0: SEALED, 1: [*BEFORE, *LARGE, *BEHIND]}


@pytest.mark.parametrize("page", range(4))
@pytest.mark.parametrize("files", ["nothing", "everything"])
def test_records_of_an_earlier_use_cut_no_ledger_file(page: int, files: str):
    world = stopped(files=files)
    overwrite(world, page, b"".join(proven(world.disk, 0, number, SEALED[number]) for number in (1, 2)))
    found = outcome(world)
    assert found[0] == SEALED
    assert found[1][-1:] == BEHIND
    assert files == "nothing" or found[1] == [*BEFORE, *LARGE, *BEHIND]


@pytest.mark.parametrize("page", range(4))
def test_a_record_that_was_never_confirmed_is_not_added_to_a_closed_ledger(page: int):
    """The page has records of a frame that was torn in an earlier use of the segment; their ledger was closed before."""
    world = stopped()
    before = world.disk.content(f"{ROOT}/ledgers/000000000000.ledger")
    torn = [proven(world.disk, 0, len(SEALED) + number, body) for number, body in enumerate((b"torn", b"torn too"))]
    overwrite(world, page, b"".join(torn))
    assert outcome(world)[0] == SEALED
    assert world.disk.content(f"{ROOT}/ledgers/000000000000.ledger") == before


def test_entries_of_a_ledger_of_which_no_whole_frame_tells_are_taken_from_its_file():
    world = World()

    async def fill() -> None:
        storage = await world.open(ONE_SEGMENT)
        quiet, other = await storage.ledgers.create(), await storage.ledgers.create()
        await append(quiet, BEFORE)
        await append(other, BEFORE)
        await storage.checkpoint()
        await append(quiet, LARGE)
        await append(other, BEHIND)
        for _ in range(2):
            world.scheduler.advance(1.5)
            await settle()

    run_until_crash(world.disk, fill())
    after = world.after_crash("everything")
    for page in (3, 2, 1, 0):
        overwrite(after, page, b"")
    assert outcome(after) == {0: [*BEFORE, *LARGE], 1: [*BEFORE, *BEHIND]}


def test_records_of_an_earlier_use_do_not_excuse_a_short_file():
    """``verify`` regards entries in the journal as safe, but not records of an earlier use of the segment, whose frames
    were checkpointed.
    """
    world = stopped()
    path = f"{ROOT}/ledgers/000000000000.ledger"
    world.disk.put(path, world.disk.content(path)[: 4096 + 40])
    overwrite(world, 1, b"".join(proven(world.disk, 0, number, SEALED[number]) for number in (1, 2)))
    report = verify_store(ROOT, files=world.disk, clock=world.clock)
    assert [(each.entry_id, each.last_entry_id) for each in report.findings if each.kind == "short-file"] == [
        (1, len(SEALED) - 1)
    ]


def test_a_record_with_a_fantastic_number_fills_no_file():
    """A damaged frame has bytes of a client that look like a record with a huge entry id."""
    world = stopped()
    overwrite(world, 3, record(1, 1 << 40, b"of a client"))
    assert len(outcome(world)[1]) == len([*BEFORE, *LARGE, *BEHIND])


def test_a_lost_page_of_a_ledger_that_was_closed_since_the_checkpoint():
    """Each entry up to the end of the ledger in the metadata is read or reported as damaged."""
    world = World()

    async def fill() -> None:
        storage = await world.open(ONE_SEGMENT)
        closed, other = await storage.ledgers.create(), await storage.ledgers.create()
        await append(closed, LARGE)
        await closed.close()
        await append(other, BEHIND)
        for _ in range(2):
            world.scheduler.advance(1.5)
            await settle()

    run_until_crash(world.disk, fill())
    for page, lost in ((0, {0, 1}), (1, {1, 2}), (3, {4})):
        after = world.after_crash("nothing")
        overwrite(after, page, b"")
        expected = [None if number in lost else body for number, body in enumerate(LARGE)]
        assert outcome(after) == {0: expected, 1: BEHIND}
