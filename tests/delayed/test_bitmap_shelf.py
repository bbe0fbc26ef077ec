"""Bitmaps beyond the budget: on the shelf and back, unchanged, with any faults of the file."""

import random
import tempfile

import pytest
from pyroaring import BitMap

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.pending_entries import PendingEntries
from magnetar.delayed.sorted_run import Columns
from magnetar.storage.position import Position


@pytest.fixture
def shelf():
    shelf = BitmapShelf(0, tempfile.TemporaryFile)
    yield shelf
    shelf.close()


def settle(pending):
    for _ in range(200):
        pending.keep_within()


def test_all_but_one_bitmap_may_be_away(shelf):
    pending = PendingEntries(shelf)
    for ledger_id in range(10):
        pending.add_range(ledger_id, 0, 100 + ledger_id)
    settle(pending)
    assert pending.shelved == 9 and len(pending) == 1045
    assert pending.ledgers() == list(range(10))
    assert pending.count_after(Position(4, 50)) == (104 - 51) + 105 + 106 + 107 + 108 + 109
    assert (3, 102) in pending and (3, 103) not in pending and (77, 0) not in pending
    assert pending.of(5) == BitMap(range(105))
    assert pending.shelved == 9, "one comes, another goes"
    assert list(pending.positions()) == [Position(a, b) for a in range(10) for b in range(100 + a)]


def test_the_first_entries_are_taken_in_order(shelf):
    pending = PendingEntries(shelf)
    pending.update(4, [1, 5, 6, 70_000])
    pending.update(2, [9])
    settle(pending)
    assert pending.take_first(0) == []
    assert pending.take_first(9, Position(4, 70_000)) == pending.take_first(9, Position(5, 0)) == []
    pending.update(5, [0, 2])
    assert pending.take_first(2, Position(5, 0)) == [(5, 2)] and pending.take_first(1, Position(4, 70_000)) == [(5, 0)]
    assert pending.take_first(3) == [(2, 9), (4, 1), (4, 5)]
    assert list(pending.positions()) == [(4, 6), (4, 70_000)]
    assert pending.take_first(9) == [(4, 6), (4, 70_000)] and not pending


def test_a_budget_that_suffices_shelves_nothing(shelf):
    shelf.limit_bytes = 1 << 20
    pending = PendingEntries(shelf)
    for ledger_id in range(10):
        pending.add_range(ledger_id, 0, 100)
    settle(pending)
    assert pending.shelved == 0 and shelf.held_bytes == pending.memory_bytes > 0


def test_the_largest_holder_gives_way(shelf):
    shelf.limit_bytes = 3000
    small, large = PendingEntries(shelf), PendingEntries(shelf)
    for ledger_id in range(5):
        small.add(ledger_id, 1)
    for ledger_id in range(20):
        large.update(ledger_id, range(0, 2000, 2))
    settle(small)
    assert small.shelved == 0 and large.shelved == 19


class Measured:
    """A holder that counts how often the shelf looks at its size."""

    looks = 0

    def __init__(self, shelf, size):
        self.size, self._shelf = size, shelf
        shelf.join(self)
        shelf.changed(size)

    @property
    def held_bytes(self):
        Measured.looks += 1
        return self.size

    def put_away(self, excess):
        gone = min(excess, self.size, 10)
        self.size -= gone
        self._shelf.changed(-gone)


def test_the_budget_of_many_holders_costs_few_looks(shelf):
    """A broker has a holder for each topic: beside 70,000 each close of a topic once took 12 ms."""
    shelf.limit_bytes = 1000 * 80
    holders = [Measured(shelf, 100 + number % 7) for number in range(1000)]
    kept = shelf._holders
    Measured.looks = 0
    for _ in range(640):
        shelf.keep_within()
    assert Measured.looks < 1000 * 15 + 640 * 70
    assert min(each.size for each in holders) >= 90, "all give way in turn"
    for holder in holders[:999]:
        shelf.leave(holder)
    assert shelf._holders is kept and list(kept.values()) == holders[999:]
    shelf.limit_bytes = 0
    shelf.keep_within()
    assert holders[999].size < 100


def test_places_are_used_again(shelf):
    pending = PendingEntries(shelf)
    for ledger_id in range(50):
        pending.add_range(ledger_id, 0, 100)
    settle(pending)
    size = shelf.file_bytes
    for _ in range(5):
        for ledger_id in range(50):
            assert len(pending.of(ledger_id)) == 100
    assert shelf.file_bytes <= size + 256


def test_trimmed_ledgers_and_closed_indexes_leave_the_shelf(shelf):
    pending = PendingEntries(shelf)
    for ledger_id in range(10):
        pending.add_range(ledger_id, 0, 10)
    settle(pending)
    assert pending.drop_below(7) == 70 and pending.ledgers() == [7, 8, 9]
    settle(pending)
    pending.clear()
    assert not pending and shelf.held_bytes == 0
    assert sum(map(len, shelf._free.values())) * 128 == shelf.file_bytes


def test_a_full_disk_leaves_bitmaps_in_memory():
    class Full:
        def fileno(self):
            raise OSError(28, "No space left on device")

    shelf = BitmapShelf(0, Full)
    pending = PendingEntries(shelf)
    for ledger_id in range(10):
        pending.add_range(ledger_id, 0, 10)
    settle(pending)
    assert pending.shelved == 0 and len(pending) == 100


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_entries_of_an_unreadable_bitmap_fire_all_the_same(shelf, damage):
    pending = PendingEntries(shelf)
    pending.add_range(1, 0, 10)
    pending.add_range(2, 0, 10)
    settle(pending)
    assert pending.shelved == 1
    if damage == "flip":
        shelf._file.seek(3)
        shelf._file.write(b"\xff")
        shelf._file.flush()
    else:
        shelf._file.truncate(0)
    assert pending.of(1) is None  # so cursors read these entries, which no longer count as pending
    batch = Columns.of((5, 1, k) for k in range(4))
    assert pending.take(batch).keys() == batch.keys()
    pending.add(1, 50)
    assert pending.of(1) == BitMap([50])
    assert pending.take(Columns.of([(6, 1, 50), (6, 1, 50), (6, 2, 3), (6, 2, 3)])).keys() == [(6, 1, 50), (6, 2, 3)]


def test_it_equals_bitmaps_that_are_all_in_memory(shelf):
    chance = random.Random(5)
    ours, plain = PendingEntries(shelf), PendingEntries()
    for step in range(3000):
        ledger_id, entry_id = chance.randrange(12), chance.randrange(3000)
        what = chance.randrange(8)
        for pending in (ours, plain):
            if what < 3:
                pending.add(ledger_id, entry_id)
            elif what == 3:
                pending.add_range(ledger_id, entry_id, entry_id + 40)
            elif what == 4:
                pending.discard(ledger_id, entry_id)
        if what == 5:
            rows = sorted((1, chance.randrange(12), chance.randrange(3000)) for _ in range(60))
            assert ours.take(Columns.of(rows)).keys() == plain.take(Columns.of(rows)).keys()
        elif what == 6:
            shelf.limit_bytes = chance.choice([0, 500, 5000])
            ours.keep_within()
        elif what == 7 and step % 10 == 0:
            after = Position(ledger_id, entry_id)
            assert ours.count_after(after) == plain.count_after(after) and len(ours) == len(plain)
    assert list(ours.positions()) == list(plain.positions()) and shelf.shelved > 100


def test_an_index_whose_entries_have_all_gone_does_not_hold_up_the_others(shelf):
    shelf.limit_bytes = 3000
    gone, other = PendingEntries(shelf), PendingEntries(shelf)
    for ledger_id in range(100):
        gone.update(ledger_id, range(0, 200, 2))
    gone.keep_within()
    gone.drop_below(100)
    for ledger_id in range(20):
        other.update(ledger_id, range(0, 2000, 2))
    assert other.shelved > 10
    assert shelf.held_bytes == other.held_bytes


def test_fired_entries_do_not_keep_others_from_the_shelf(shelf):
    shelf.limit_bytes = 1 << 20
    fired = PendingEntries(shelf)
    for ledger_id in range(100):
        fired.update(ledger_id, range(0, 200, 2))
    fired.keep_within()
    for ledger_id in range(100):
        fired.take(Columns.of((1, ledger_id, k) for k in range(0, 200, 2)))
    assert not fired
    shelf.limit_bytes = 100
    settle(fired)
    assert shelf.held_bytes == fired.held_bytes == 0
