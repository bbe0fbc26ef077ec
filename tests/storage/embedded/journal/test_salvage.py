"""Records out of damaged frames."""

from __future__ import annotations

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.journal.salvage import LostRecord, SalvagedRecord, salvage
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.recovery.replay import LedgerReplay
from tests.storage.engine_for_tests import ROOT, ManualClock
from tests.storage.records_for_tests import record
from tests.twins.sim_files import SimDisk

PAGE = 4096


def no_proof(_ledger_id: int) -> int:
    """As of a ledger of an earlier version."""
    return 0


def misdirected() -> bytes:
    """A page of a later frame lies on the middle of a large record; a small record follows."""
    large, small = record(7, 0, b"x" * 3 * PAGE), record(7, 1, b"small")
    page = record(7, 5, b"of a later frame").ljust(PAGE, b"\0")
    return large[:PAGE] + page + large[2 * PAGE :] + small


def test_records_behind_a_page_of_another_frame_are_found():
    found = salvage(misdirected(), {7}, no_proof, exact=True)
    assert isinstance(found[0], LostRecord)
    assert [each.entry_id for each in found if isinstance(each, SalvagedRecord)] == [5, 1]


def test_zeros_end_a_payload_whose_end_is_not_known():
    payload = record(7, 0, b"a") + bytes(100) + record(7, 1, b"b")
    assert [each.entry_id for each in salvage(payload, {7}, no_proof)] == [0]
    assert [each.entry_id for each in salvage(payload, {7}, no_proof, exact=True)] == [0, 1]


def test_a_record_of_a_later_frame_costs_none_of_those_between():
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    files = LedgerFiles(disk, layout, b"s" * 16, ManualClock(), max_open=2)
    replay = LedgerReplay(files, 7, (0, 0))
    expected = [record(7, number, b"%d" % number) for number in range(7)]
    replay.add(0, expected[0])
    replay.doubt(5, expected[5])
    replay.doubt(2, expected[2])
    replay.doubt(1, expected[1])
    replay.add(3, expected[3])
    replay.add(4, expected[4])
    replay.add(6, expected[6])
    replay.settle()
    replay.finish()
    assert files.read(7, 10_000, FILE_HEADER_BYTES) == b"".join(expected)
    assert replay.damaged == []


def test_a_doubtful_record_counts_at_the_end_and_the_gap_before_is_damage():
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    replay = LedgerReplay(LedgerFiles(disk, layout, b"s" * 16, ManualClock(), max_open=2), 7, (0, 0))
    replay.add(0, record(7, 0, b"a"))
    replay.doubt(2, record(7, 2, b"c"))
    replay.doubt(3, record(7, 3, b"d"))
    replay.settle()
    assert [position.entry_id for position in replay.damaged] == [1]
    assert replay.next_entry == 4


def test_a_torn_frame_cuts_no_file_of_a_closed_ledger():
    """A page of an earlier use of the segment, within the torn frame, names the first entry once more."""
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    files = LedgerFiles(disk, layout, b"s" * 16, ManualClock(), max_open=2)
    expected = [record(7, number, b"%d" % number) for number in range(7)]
    files.write(7, [b"".join(expected)], FILE_HEADER_BYTES)
    replay = LedgerReplay(files, 7, (0, 0), (7, sum(map(len, expected))))
    replay.add(0, expected[0])
    replay.finish()
    assert files.read(7, 10_000, FILE_HEADER_BYTES) == b"".join(expected)
    assert replay.damaged == []


def test_a_record_that_the_file_has_is_not_added_behind_the_gap_it_fills():
    disk, layout = SimDisk(), Layout(ROOT)
    disk.make_dir(layout.ledgers)
    files = LedgerFiles(disk, layout, b"s" * 16, ManualClock(), max_open=2)
    expected = [record(7, number, b"%d" % number) for number in range(7)]
    files.write(7, [b"".join(expected)], FILE_HEADER_BYTES)
    replay = LedgerReplay(files, 7, (0, 0))
    replay.add(3, expected[3])
    replay.finish()
    assert files.read(7, 10_000, FILE_HEADER_BYTES) == b"".join(expected)
    assert replay.next_entry == 7


def test_a_search_passes_over_zeros_at_once():
    payload = bytes(32 << 20) + record(7, 1, b"b")
    assert [each.entry_id for each in salvage(payload, {0, 7}, no_proof, exact=True)] == [1]


def test_every_ledger_may_be_known():
    """``verify`` does not know which ledgers there were when the metadata are damaged."""
    damaged = bytearray(record(7, 0, b"a") + record(7, 1, b"b"))
    damaged[33] ^= 1
    assert [each.entry_id for each in salvage(bytes(damaged), range(1 << 62), no_proof)] == [0, 1]
