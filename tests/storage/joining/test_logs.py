"""The log of a topic as of a moment: kept entries, cut entries, and no acknowledgements beyond its end."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.joining.logs import Source, cursors_at_earliest, join_logs, source_of
from magnetar.storage.managed.entry_index import LEDGER_INDEX
from magnetar.storage.managed.ledger_list import INDEX_PROPERTY
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.managed.stored_layout import CursorRecord, ListRecord
from magnetar.storage.position import Position

NOW = 1_000


def slot(ledger_id, entries, **properties):
    return LedgerSlot(ledger_id, entries, entries * 10, closed_at_ms=5, properties=properties)


def shape(log):
    return [(each.ledger_id, each.entries) for each in log.record.ledgers]


@pytest.mark.parametrize(
    ("before", "behind", "source"),
    [
        (None, None, Source.NEITHER),
        (10, None, Source.BEFORE),
        (None, 50, Source.BEHIND),
        (None, 51, Source.NEITHER),
        (None, 0, Source.BEHIND),
        (10, 10, Source.BOTH),
        (0, 0, Source.BOTH),
        (10, 50, Source.BEHIND),
        (10, 51, Source.BEFORE),
        (10, 0, Source.BEFORE),
    ],
)
def test_where_a_topic_comes_from(before, behind, source):
    records = [None if created is None else ListRecord(created_ms=created) for created in (before, behind)]
    assert source_of(*records, 50) is source


def test_a_ledger_that_grew_is_cut_and_one_that_was_trimmed_comes_back():
    before = ListRecord([slot(1, 4), slot(3, 2)], properties={"a": "b"}, created_ms=7)
    behind = ListRecord([slot(3, 9, **{LEDGER_INDEX: "12"}), slot(8, 5)], created_ms=7)
    log = join_logs(before, behind, Position(3, 6), NOW)
    assert shape(log) == [(1, 4), (3, 6)]
    assert log.taken == {3: 6}
    assert log.record.properties == {"a": "b"}
    cut = log.record.ledgers[-1]
    assert LEDGER_INDEX not in cut.properties, "its last index is another one now"
    assert cut.closed_at_ms == NOW


def test_whole_ledgers_keep_their_index_and_unchanged_ones_are_not_taken():
    before = ListRecord([slot(1, 4)])
    behind = ListRecord([slot(1, 4), slot(2, 3, **{LEDGER_INDEX: "6"}), slot(5, 2)])
    log = join_logs(before, behind, Position(5, 0), NOW)
    assert shape(log) == [(1, 4), (2, 3)]
    assert log.taken == {2: 3}
    assert log.record.ledgers[-1].properties == {LEDGER_INDEX: "6"}


def test_a_new_topic_that_is_cut_counts_its_index_anew_from_its_entries():
    behind = ListRecord([slot(4, 3)], Position(4, 2), {INDEX_PROPERTY: "2", "a": "b"}, 9)
    cut = join_logs(None, behind, Position(4, 1), NOW).record
    assert (cut.terminated, cut.properties) == (None, {"a": "b"})
    whole = join_logs(None, behind, Position(4, 3), NOW).record
    assert (whole.terminated, whole.properties) == (Position(4, 2), behind.properties)


def test_a_topic_without_an_entry_up_to_the_moment_is_empty():
    log = join_logs(None, ListRecord([slot(4, 3)], created_ms=9), Position(4, 0), NOW)
    assert (shape(log), log.taken) == ([], {})
    assert cursors_at_earliest({"s": CursorRecord()}, set(), log.record.ledgers, 50)["s"].mark_delete == (-1, -1)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.data(),
)
def test_the_log_equals_the_stored_entries_up_to_the_end(sizes, data):
    """The copy before is a prefix, the copy behind a suffix of one log; an end between gives the log up to it."""
    entries = [Position(ledger, entry) for ledger, size in enumerate(sizes) for entry in range(size)]
    trimmed = data.draw(st.integers(0, len(sizes)))
    at_before = data.draw(st.integers(0, len(entries)))
    behind = ListRecord([slot(ledger, size) for ledger, size in enumerate(sizes) if ledger >= trimmed])
    held = [(ledger, list(group)) for ledger, group in itertools.groupby(entries[:at_before], lambda each: each[0])]
    before = ListRecord([slot(ledger, len(group)) for ledger, group in held])
    log_behind = LedgerMap(behind.ledgers)
    low = log_behind.ordinal_after(LedgerMap(before.ledgers).last_confirmed)
    ordinal = data.draw(st.integers(low, log_behind.total_entries))
    end = log_behind.at(ordinal) if ordinal < log_behind.total_entries else log_behind.end
    log = join_logs(before, behind, end, NOW)
    found = [Position(each.ledger_id, entry) for each in log.record.ledgers for entry in range(each.entries)]
    in_behind = [each for each in entries if each[0] >= trimmed]
    assert found == sorted({*entries[:at_before], *in_behind[:ordinal]})
    assert all(len([each for each in found if each[0] == ledger]) == kept for ledger, kept in log.taken.items())


def test_younger_subscriptions_begin_at_the_earliest_entry():
    behind = {
        "known": CursorRecord(created_ms=1),
        "young": CursorRecord(7, Position(3, 3), cursor_properties={"a": "b"}, created_ms=50),
        "too young": CursorRecord(created_ms=51),
    }
    found = cursors_at_earliest(behind, {"known"}, [slot(2, 5)], 50)
    assert list(found) == ["young"]
    assert (found["young"].ledger_id, found["young"].mark_delete) == (-1, Position(2, -1))
    assert found["young"].cursor_properties == {"a": "b"}
