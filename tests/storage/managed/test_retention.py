"""Which ledgers a trim deletes: Pulsar's rule, case by case, and its properties on random input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.managed.retention import first_needed_ledger, ledgers_to_drop
from magnetar.storage.position import EARLIEST, Position

CLOSED = [LedgerSlot(k, 10, 100, closed_at_ms=1000 * k) for k in (1, 2, 3)]
OPEN = LedgerSlot(4, 5, 50)
SLOTS = [*CLOSED, OPEN]


def drop(mark_deletes, time_ms=0, size=0, now_ms=10_000, slots=SLOTS):
    return ledgers_to_drop(slots, mark_deletes, time_ms, size, now_ms)


def test_without_cursors_everything_but_the_open_ledger_goes():
    assert drop([]) == [1, 2, 3]


def test_the_last_ledger_of_a_terminated_topic_stays():
    assert ledgers_to_drop(CLOSED, [], 0, 0, 10_000, keep_last=True) == [1, 2]
    assert ledgers_to_drop(CLOSED[:1], [Position(1, 9)], 0, 0, 10_000, keep_last=True) == []
    assert ledgers_to_drop([], [], 0, 0, 10_000, keep_last=True) == []


def test_the_slowest_cursor_decides():
    assert drop([Position(4, 2), Position(2, 3)]) == [1]
    assert drop([EARLIEST]) == []
    assert drop([Position(1, -1)]) == []


def test_a_ledger_whose_last_entry_is_mark_delete_is_not_needed():
    assert drop([Position(2, 9)]) == [1, 2]
    assert drop([Position(2, 8)]) == [1]
    assert drop([Position(3, 9)]) == [1, 2, 3]


def test_a_cursor_in_a_gap_needs_later_ledgers():
    assert drop([Position(0, 7)]) == []


def test_kept_while_both_limits_hold():
    assert drop([], time_ms=-1, size=-1) == []
    assert drop([], time_ms=8500, size=-1) == [1]  # closed at 1000, 9 s ago
    assert drop([], time_ms=9000, size=-1) == []
    assert drop([], time_ms=-1, size=250) == [1]  # 350 - 100 are still 250
    assert drop([], time_ms=-1, size=251) == []


def test_the_first_that_is_kept_ends_the_scan():
    young_first = [LedgerSlot(1, 10, 100, 9_999), LedgerSlot(2, 10, 100, 1)]
    assert drop([], time_ms=5000, size=-1, slots=young_first) == []


def test_first_needed_ledger():
    assert first_needed_ledger(SLOTS, []) is None
    assert first_needed_ledger(SLOTS, [Position(9, 0)]) is None
    assert first_needed_ledger(SLOTS, [Position(4, 4)]) is None
    assert first_needed_ledger(SLOTS, [Position(3, 9)]) == 4


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50), st.integers(1, 100)), max_size=6),
    st.lists(st.builds(Position, st.integers(0, 7), st.integers(-1, 5)), max_size=3),
    st.integers(-1, 100),
    st.integers(-1, 200),
)
def test_nothing_unconsumed_goes_and_only_a_prefix(raw, mark_deletes, time_ms, size):
    slots = [LedgerSlot(k, entries, length, closed) for k, (entries, length, closed) in enumerate(raw)]
    dropped = drop(mark_deletes, time_ms, size, now_ms=120, slots=slots)
    assert dropped == list(range(len(dropped)))
    for ledger_id in dropped:
        last = Position(ledger_id, slots[ledger_id].entries - 1)
        assert all(mark_delete >= last for mark_delete in mark_deletes)
    assert time_ms != -1 or size != -1 or not dropped
