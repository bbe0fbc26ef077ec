"""Estimates of the bytes behind positions of a log."""

import pytest

from magnetar.broker.topics.backlog import BytesBehind, bytes_behind
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import RECORD_HEADER_BYTES


def slot(ledger_id, entries, size):
    """A ledger whose entries have so many bytes without the headers of their records."""
    return LedgerSlot(ledger_id, entries, size + entries * RECORD_HEADER_BYTES)


@pytest.mark.parametrize(
    ("position", "size"),
    [
        (EARLIEST, 370),
        (Position(2, -1), 370),
        (Position(2, 0), 337),
        (Position(2, 1), 304),
        (Position(2, 2), 270),  # all of the ledger, whatever the average says
        (Position(2, 9), 270),
        (Position(3, 0), 270),  # of no ledger
        (Position(4, 0), 270),  # of a ledger without entries
        (Position(7, 0), 200 - 28),
        (Position(7, 6), 0),
        (Position(8, 0), 0),
    ],
)
def test_entries_up_to_a_position_have_the_average_size_of_their_ledger(position, size):
    slots = [slot(2, 3, 100), slot(4, 0, 0), slot(5, 1, 70), slot(7, 7, 200)]
    assert bytes_behind(slots, position) == size
    assert bytes_behind([], position) == 0


class Counted(LedgerSlot):
    """A ledger that counts the looks at its entries."""

    looks = 0

    def __getattribute__(self, name):
        Counted.looks += name == "entries"
        return super().__getattribute__(name)


def test_the_ledgers_are_added_up_once_for_all_positions():
    """The sum of the backlogs of 8,000 subscriptions walked the later ledgers for each."""
    behind = BytesBehind([Counted(ledger_id, 10, 1000) for ledger_id in range(300)])
    sizes = [behind.of(Position(ledger_id, 4)) for ledger_id in range(300)]
    assert sizes == sorted(sizes, reverse=True)
    assert Counted.looks <= 5 * 300


def test_figures_of_many_subscriptions_stand_for_one_moment():
    """The slices of a topic with many subscriptions failed when the log got a ledger between two of them."""
    slots = [slot(2, 10, 1000)]
    behind = BytesBehind(slots)
    slots[0].entries, slots[0].size_bytes = 20, 2000 + 20 * RECORD_HEADER_BYTES
    slots.append(slot(3, 5, 500))
    assert behind.of(Position(2, 3)) == 600
    assert behind.of(Position(2, 14)) == 0
    assert behind.of(Position(3, 2)) == 0
