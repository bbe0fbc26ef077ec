import pytest

from magnetar.broker.subscriptions.moved_cursors import is_consumed, shown_mark_delete
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.position import Position

SLOTS = [LedgerSlot(3, 5, closed_at_ms=1), LedgerSlot(5, 2, closed_at_ms=1), LedgerSlot(8)]


class Loaded:
    def __init__(self, now, loaded_at):
        self.now, self.loaded_at = Position(*now), loaded_at and Position(*loaded_at)

    def mark_delete_for_client(self):
        return self.now


@pytest.mark.parametrize(
    ("now", "loaded_at", "shown"),
    [
        ((3, 4), (3, 4), (5, -1)),  # the end of a ledger
        ((5, 1), (5, 1), (8, -1)),
        ((2, 7), (2, 7), (3, -1)),  # the ledger is gone
        ((3, 3), (3, 3), (3, 3)),  # an entry is left
        ((3, -1), (3, -1), (3, -1)),
        ((8, -1), (8, -1), (8, -1)),  # the open ledger
        ((3, 4), (3, 2), (3, 4)),  # acknowledged since the load
        ((3, 4), None, (3, 4)),  # created since the load
        ((9, 0), (9, 0), (9, 0)),  # no ledger follows
    ],
)
def test_where_a_cursor_is_shown(now, loaded_at, shown):
    assert shown_mark_delete(SLOTS, Loaded(now, loaded_at)) == Position(*shown)


def test_the_end_of_a_ledger():
    assert is_consumed(SLOTS, Position(3, 4))
    assert not any(is_consumed(SLOTS, Position(*place)) for place in ((3, 3), (8, -1), (4, 0)))
