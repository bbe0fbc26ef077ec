"""A client puts bytes into its message that form records, of any entry and any ledger; then the device damages exactly
that entry. Recovery, readers and ``verify`` lose the entry and accept none of the forged records in its place: every
record has the proof of its ledger, which no client knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from magnetar.storage.embedded import ledger_store
from magnetar.storage.embedded.ledger_head import BIRTH_ENTRY_ID
from magnetar.storage.embedded.verify.command import verify_store
from magnetar.storage.errors import CorruptEntryError
from magnetar.storage.reading.data_directory import DataDirectory
from magnetar.storage.slab import RECORD_HEADER_BYTES
from tests.storage.engine_for_tests import ROOT, TINY, World, append, run_until_crash, settle
from tests.storage.records_for_tests import record

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

SETTINGS = replace(
    TINY,
    journal_first_segment_bytes=64 << 10,
    journal_segment_bytes=64 << 10,
    journal_zeroed_bytes=64 << 10,
    journal_max_frame_bytes=32 << 10,
)
FORGED = b"forged"


def _forged_records() -> bytes:
    """Records that name the damaged entry, later entries, another ledger, and the begin of a ledger. A client can guess
    the third field of records of an earlier version.
    """
    ids = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (2, 0), (0, BIRTH_ENTRY_ID), (1, BIRTH_ENTRY_ID)]
    return b"".join(
        record(ledger_id, entry_id, FORGED, confirmed) for confirmed in (0, -1, 1) for ledger_id, entry_id in ids
    )


EVIL = b"message " + _forged_records() + b" end"
FIRST = [b"before", EVIL, b"behind", b"last"]
SECOND = [b"other"]
BITS = [*range(0, 8 * RECORD_HEADER_BYTES, 11), 8 * RECORD_HEADER_BYTES + 3]
"""Bits of the entry's record: some of its header, and one of its body."""


def _run(world: World, work: Coroutine[Any, Any, Any]) -> None:
    assert run_until_crash(world.disk, work) is None


def _store(*, checkpoint: bool) -> World:
    """Ledger 0 has the entry with the forged records, ledger 1 another entry; the process dies after the last receipt."""
    world = World()

    async def fill() -> None:
        storage = await world.open(SETTINGS)
        first, second = await storage.ledgers.create(), await storage.ledgers.create()
        await append(second, SECOND)
        await append(first, FIRST)
        if checkpoint:
            await first.close()
            await storage.checkpoint()
        for _ in range(2):  # a later frame confirms the frame of the entry
            world.scheduler.advance(1.5)
            await settle()

    _run(world, fill())
    return world.after_crash("nothing")


def _place(world: World, path: str) -> int:
    """Where the record of the entry with the forged records begins."""
    return world.disk.content(path).index(EVIL) - RECORD_HEADER_BYTES


def _journal_path(world: World) -> str:
    paths = [path for path in world.disk.paths() if path.endswith(".journal") and EVIL in world.disk.content(path)]
    assert len(paths) == 1
    return paths[0]


def _entries(world: World) -> dict[int, list[bytes | None]]:
    """The entries that the broker reads after a start, None for a damaged entry."""
    found: dict[int, list[bytes | None]] = {}

    async def read() -> None:
        storage = await world.open(SETTINGS)
        for ledger_id in await storage.ledgers.list_ledgers():
            info = await storage.ledgers.open_recover(ledger_id)
            entries = found[ledger_id] = []
            for entry in range(info.last_entry_id + 1):
                try:
                    [slab, *_] = await storage.ledgers.read(ledger_id, entry, entry, 1)
                except CorruptEntryError:
                    entries.append(None)
                else:
                    entries.append(bytes(slab.span(entry, entry).body(0)))
        await storage.close()

    _run(world, read())
    return found


@pytest.mark.parametrize("in_journal", [True, False], ids=["journal", "ledger file"])
def test_a_damaged_entry_gives_way_to_no_record_in_its_body(in_journal: bool):
    pristine = _store(checkpoint=not in_journal)
    path = _journal_path(pristine) if in_journal else f"{ROOT}/ledgers/000000000000.ledger"
    at = _place(pristine, path)
    lost = 0
    for bit in BITS:
        world = pristine.after_crash("nothing")
        world.disk.flip_bit(path, 8 * at + bit)
        found = _entries(world)
        assert found[0] in (FIRST, [FIRST[0], None, *FIRST[2:]]), f"bit {bit}"
        assert found[1] == SECOND, f"bit {bit}"
        lost += found[0][1] is None
    assert lost > len(BITS) // 2, "a record whose ids alone are damaged is found by its checksum"


def test_a_reader_beside_the_broker_finds_no_record_in_a_damaged_entry():
    pristine = _store(checkpoint=True)
    path = f"{ROOT}/ledgers/000000000000.ledger"
    at = _place(pristine, path)
    for bit in BITS:
        world = pristine.after_crash("nothing")
        world.disk.flip_bit(path, 8 * at + bit)
        with DataDirectory(ROOT, world.disk).open_ledger(0) as ledger:
            assert ledger.entries == len(FIRST)
            with pytest.raises(CorruptEntryError):
                ledger.read(1)
            for entry in (0, 2, 3):
                assert bytes(ledger.read(entry).span(entry, entry).body(0)) == FIRST[entry], f"bit {bit}"


@pytest.mark.parametrize("in_journal", [True, False], ids=["journal", "ledger file"])
def test_verify_reports_one_entry(in_journal: bool):
    pristine = _store(checkpoint=not in_journal)
    path = _journal_path(pristine) if in_journal else f"{ROOT}/ledgers/000000000000.ledger"
    pristine.disk.flip_bit(path, 8 * _place(pristine, path))
    report = verify_store(ROOT, files=pristine.disk)
    entries = {(each.ledger_id, each.entry_id) for each in report.findings if each.entry_id is not None}
    assert entries == {(0, 1)}
    assert not any(entry > 1 for _, entry in entries)


def test_a_ledger_of_an_earlier_version_is_read_by_the_checksums_of_its_records(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(ledger_store, "with_proof", dict)
        old, closed = _store(checkpoint=False), _store(checkpoint=True)
    for world in (old, closed):
        assert _entries(world.after_crash("nothing")) == {0: FIRST, 1: SECOND}
        assert verify_store(ROOT, files=world.disk).findings == [] or world is old
    path = _journal_path(old)
    old.disk.flip_bit(path, 8 * _place(old, path))
    found = _entries(old)
    assert FORGED in found[0], "without a proof the forged record counts: what the proof is for"
