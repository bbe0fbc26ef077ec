"""Acknowledgements against a set of positions."""

from __future__ import annotations

import time

import hypothesis.strategies as st
from hypothesis import given

from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.parts_room import cost_of
from magnetar.storage.managed.cursors.state import CursorState
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.position import EARLIEST, LATEST, Position

SIZES = {0: 5, 2: 1, 3: 4, 9: 3}
EVERY = [Position(ledger_id, k) for ledger_id, entries in SIZES.items() for k in range(entries)]
ANY = st.one_of(st.sampled_from(EVERY), st.builds(Position, st.integers(-1, 10), st.integers(-1, 6)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), ANY),
        st.tuples(st.just("entries"), st.sampled_from([0, 2, 3, 4, 9]), st.lists(st.integers(0, 6), max_size=6)),
        st.tuples(st.just("up_to"), st.one_of(ANY, st.just(LATEST))),
        st.tuples(st.just("partly"), ANY, st.integers(0, 7)),
        st.tuples(st.just("save")),
    ),
    max_size=30,
)


def ledgers():
    return LedgerMap(LedgerSlot(ledger_id, entries) for ledger_id, entries in SIZES.items())


@given(STEPS)
def test_against_a_set(steps):
    acks = AckState(ledgers(), EARLIEST)
    acked: set[Position] = set()
    partial: dict[Position, int] = {}
    stored: CursorState | None = None
    for step in steps:
        before = (set(acked), dict(partial))
        changed = False
        if step[0] == "ack":
            changed = acks.ack(step[1])
            acked |= {step[1]} & set(EVERY)
        elif step[0] == "entries":
            fresh = {Position(step[1], entry_id) for entry_id in step[2]} & set(EVERY) - acked
            assert acks.ack_entries(step[1], step[2]) == len(fresh)
            acked |= fresh
        elif step[0] == "up_to":
            acks.ack_up_to(step[1])
            acked |= {position for position in EVERY if position <= step[1]}
        elif step[0] == "partly" and step[1] in EVERY and step[1] not in acked:
            acks.ack_partly(step[1], step[2])
            left = partial.get(step[1], 7) & step[2]
            if left:
                partial[step[1]] = left
            else:
                acked.add(step[1])
        elif step[0] == "save":
            increment = acks.take_changes({})
            assert (increment is None) == (stored is None)
            if increment is None:
                stored = acks.snapshot({})
            else:
                stored.add(increment)
        partial = {position: left for position, left in partial.items() if position not in acked}
        if step[0] == "ack":
            assert changed == ((acked, partial) != before)
        agree(acks, acked, partial)
        if step[0] == "save":
            loaded = AckState(ledgers(), EARLIEST)
            assert not loaded.load(stored)
            agree(loaded, acked, partial)


def agree(acks, acked, partial):
    left = [position for position in EVERY if position not in acked]
    assert [position for position in EVERY if not acks.is_deleted(position)] == left
    assert acks.backlog_entries == len(left)
    assert acks.partial == partial
    following = next((position for position in EVERY if position > acks.mark_delete), None)
    assert following == (left[0] if left else None)
    assert acks.deleted_count == sum(len(held) for held in acks.deleted.values())
    assert all(held for held in acks.deleted.values())
    assert acks.parts_room.used == sum(map(cost_of, partial.values()))
    assert {Position(known, k) for known, entries in acks._with_parts.items() for k in entries} == set(partial)
    assert all(acks._with_parts.values())
    assert [acks.unacknowledged(number) for number in range(-1, len(left) + 1)] == [None, *left, None]


def test_an_entry_behind_many_acknowledged_ones_is_found_without_walking():
    acks = AckState(LedgerMap([LedgerSlot(1, 10_000_000)]), EARLIEST)
    acks.ack_entries(1, [1])
    acks.deleted[1].add_range(2, 9_999_990)
    acks.deleted_count = len(acks.deleted[1])
    assert acks.unacknowledged(1) == Position(1, 9_999_990)


def test_cumulative_acknowledgements_look_only_at_the_parts_behind_which_they_move():
    """Each walked through all parts: 8 ms beside 65,000 parts, for each ACK."""
    acks = AckState(LedgerMap([LedgerSlot(1, 60_000)]), EARLIEST)
    for entry_id in range(30_000, 60_000):
        acks.ack_partly(Position(1, entry_id), 1)
    acks.snapshot({})

    def seconds(moves):
        began = time.process_time()
        for entry_id in moves:
            assert acks.ack_up_to(Position(1, entry_id))
        return time.process_time() - began

    beside_parts = seconds(range(1000))
    assert acks.ack_up_to(Position(1, 59_998))
    assert set(acks.partial) == {Position(1, 59_999)}
    acks.reset(Position(1, 1000))
    assert beside_parts < 20 * seconds(range(1001, 2001)) + 0.02


def test_mark_delete_jumps_over_holes_and_ledgers():
    acks = AckState(ledgers(), EARLIEST)
    for position in reversed(EVERY[1:]):
        acks.ack(position)
    assert acks.mark_delete == EARLIEST
    acks.ack(EVERY[0])
    assert (acks.mark_delete, acks.deleted, acks.backlog_entries) == (EVERY[-1], {}, 0)


def test_stored_acks_beyond_the_end_are_cut_and_reported():
    acks = AckState(ledgers(), EARLIEST)
    assert acks.load(CursorState(Position(9, 7)))
    assert acks.mark_delete == Position(9, 2)
    from pyroaring import BitMap

    assert acks.load(CursorState(Position(9, 0), {9: BitMap([2, 5])}))
    assert acks.deleted == {9: BitMap([2])}
    assert acks.load(CursorState(Position(9, 0), {11: BitMap([0])}))
    assert acks.backlog_entries == 2


def test_ledgers_dropped_meanwhile_are_forgotten_without_a_report():
    from pyroaring import BitMap

    acks = AckState(ledgers(), EARLIEST)
    assert not acks.load(CursorState(Position(0, 1), {1: BitMap([3]), 3: BitMap([1])}, {Position(1, 0): 1}))
    assert (acks.deleted, acks.partial, acks.backlog_entries) == ({3: BitMap([1])}, {}, len(EVERY) - 3)


def test_entries_gone():
    acks = AckState(ledgers(), EARLIEST)
    for position in (Position(0, 3), Position(2, 0), Position(3, 1)):
        acks.ack(position)
    assert acks.entries_gone(Position(0, 4))
    assert acks.mark_delete == Position(2, 0)
    assert acks.deleted_count == 1
    assert not acks.entries_gone(Position(0, 4))


def test_reset_needs_a_snapshot():
    acks = AckState(ledgers(), EARLIEST)
    acks.snapshot({})
    acks.ack(Position(0, 2))
    assert acks.take_changes({}) == CursorState(EARLIEST, acks.deleted, {}, {})
    acks.reset(Position(0, 0), {Position(0, 1): 3})
    assert acks.take_changes({}) is None
    assert acks.snapshot({}).partial == {Position(0, 1): 3}
    acks.needs_snapshot()
    assert acks.take_changes({}) is None
