"""The bound of the parts of batches that cursors keep."""

from __future__ import annotations

from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.parts_room import PartsRoom, cost_of
from magnetar.storage.managed.cursors.state import CursorState
from magnetar.storage.managed.ledger_map import LedgerMap, LedgerSlot
from magnetar.storage.position import EARLIEST, Position


def ledgers():
    return LedgerMap([LedgerSlot(0, 5)])


def test_parts_of_batches_have_a_bound():
    room = PartsRoom(of_cursor=2000, free=0)
    acks = AckState(ledgers(), EARLIEST, room)
    large = (1 << 4000) - 1
    assert acks.ack_partly(Position(0, 1), large)
    assert acks.ack_partly(Position(0, 2), large)
    assert not acks.ack_partly(Position(0, 3), large)
    assert acks.ack_partly(Position(0, 3), 0b101)
    assert acks.ack_partly(Position(0, 2), large >> 1), "fewer messages remain"
    assert acks.ack(Position(0, 2))
    assert acks.ack_partly(Position(0, 4), large)
    acks.reset(EARLIEST)
    assert room.used == 0


def test_cursors_share_the_room_of_parts():
    """A million parts cost hundreds of MB on each of any number of subscriptions."""
    room = PartsRoom(of_all=2 * cost_of(1), free=0)
    first, second = AckState(ledgers(), EARLIEST, room), AckState(ledgers(), EARLIEST, room)
    assert first.ack_partly(Position(0, 1), 1)
    assert second.ack_partly(Position(0, 1), 1)
    assert not first.ack_partly(Position(0, 2), 1)
    assert second.ack_up_to(Position(0, 1))
    assert first.ack_partly(Position(0, 2), 1)
    first.leave_room()
    assert (room.used, set(first.partial)) == (0, {Position(0, 1), Position(0, 2)})
    assert first.ack(Position(0, 2))
    assert room.used == 0


def test_a_cursor_with_few_parts_has_room_in_any_case():
    room = PartsRoom(of_all=0, free=2 * cost_of(1))
    acks = AckState(ledgers(), EARLIEST, room)
    assert [acks.ack_partly(Position(0, k), 1) for k in (1, 2, 3)] == [True, True, False]


def test_the_room_counts_parts_of_a_stored_state():
    room = PartsRoom(of_all=0, free=0)
    AckState(ledgers(), EARLIEST, room).load(CursorState(EARLIEST, {}, {Position(0, 1): 1, Position(1, 0): 1}))
    assert room.used == cost_of(1)


def test_no_trace_of_a_part_stays_behind_the_acknowledgement_of_its_entry():
    """Shared subscriptions move mark-delete without cumulative acknowledgements: a bitmap of each ledger stayed."""
    acks = AckState(LedgerMap([LedgerSlot(0, 100), LedgerSlot(1, 100)]), EARLIEST)
    for entry_id in range(100):
        acks.ack_partly(Position(0, entry_id), 1)
    for entry_id in range(50):
        acks.ack(Position(0, entry_id))
    acks.ack_entries(0, range(50, 100))
    assert (acks.mark_delete, acks.partial, acks._with_parts) == (Position(0, 99), {}, {})
