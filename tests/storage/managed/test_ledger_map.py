"""The arithmetic of positions against a plain list of positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.position import EARLIEST, LATEST, Position

LEDGERS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), unique_by=lambda pair: pair[0]).map(sorted)
POSITION = st.one_of(st.builds(Position, st.integers(-1, 13), st.integers(-1, 6)), st.sampled_from([EARLIEST, LATEST]))


def build(pairs):
    ledgers = LedgerMap(LedgerSlot(ledger_id, entries, entries * 10) for ledger_id, entries in pairs)
    return ledgers, [Position(ledger_id, k) for ledger_id, entries in pairs for k in range(entries)]


@given(LEDGERS, POSITION, POSITION)
def test_against_a_list(pairs, one, other):
    ledgers, every = build(pairs)
    assert ledgers.total_entries == len(every)
    assert ledgers.total_bytes == len(every) * 10
    assert ledgers.ordinal_after(one) == sum(position <= one for position in every)
    assert ledgers.count_between(one, other) == sum(one < position <= other for position in every)
    assert ledgers.next_valid(one) == next((position for position in every if position > one), None)
    before = [position for position in every if position < one]
    nothing = Position(pairs[0][0], -1) if pairs else EARLIEST
    assert ledgers.previous(one) == (before[-1] if before else nothing)
    assert ledgers.is_valid(one) == (one in every)
    last = ledgers.following(every[-1]) if every else ledgers.end
    assert ledgers.at_or_after(one) == next((position for position in every if position >= one), last)
    assert ledgers.first_position == (every[0] if every else None)
    assert ledgers.last_confirmed == (every[-1] if every else EARLIEST)
    assert [ledgers.at(k) for k in range(len(every))] == every


@given(LEDGERS, POSITION)
def test_bytes_after_counts_its_own_ledger_in_proportion(pairs, position):
    ledgers, every = build(pairs)
    assert ledgers.bytes_after(position) == 10 * sum(known > position for known in every)


@pytest.mark.parametrize(
    ("position", "following"),
    [((1, 0), (1, 1)), ((1, 1), (2, 0)), ((2, 0), (4, 0)), ((4, -1), (4, 0)), ((4, 0), (4, 1)), ((3, 5), (4, 0))],
)
def test_the_place_behind_a_position_is_in_the_next_ledger_once_its_own_is_full(position, following):
    ledgers, _ = build([(1, 2), (2, 1), (4, 0)])
    assert ledgers.following(Position(*position)) == Position(*following)


def test_no_entry_with_such_an_ordinal():
    ledgers, every = build([(1, 2)])
    for ordinal in (-1, len(every)):
        with pytest.raises(IndexError):
            ledgers.at(ordinal)


def test_growing_trimming_and_putting_back():
    ledgers = LedgerMap()
    assert (ledgers.end, ledgers.total_entries, ledgers.next_ledger(-1)) == (EARLIEST.next(), 0, None)
    first, second = LedgerSlot(3), LedgerSlot(7)
    ledgers.add(first)
    ledgers.confirm(first, 4)
    ledgers.add(second)
    assert ledgers.next_ledger(3) is None  # still empty
    ledgers.confirm(second, 0)
    assert ledgers.next_ledger(3) is second
    assert ledgers.at(5) == Position(7, 0)
    removed = ledgers.remove([3])
    assert (removed, ledgers.at(0), ledgers.slot(3), ledgers.entries_of(3)) == ([first], Position(7, 0), None, 0)
    ledgers.put_back(removed)
    assert ledgers.at(0) == Position(3, 0)
    ledgers.remove([3, 7])
    assert ledgers.last_confirmed == Position(7, 0)
    with pytest.raises(AssertionError):
        build([(5, 1)])[0].add(LedgerSlot(5))
