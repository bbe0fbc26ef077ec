"""The entries of a subscription when much is due at once."""

import pytest

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.bucket_view import BucketDelayView
from magnetar.delayed.delay_settings import DelayPolicy
from magnetar.delayed.firing import Firing
from magnetar.delayed.mutable_bucket import Chunk
from magnetar.delayed.sorted_run import Columns
from magnetar.storage.position import Position
from tests.delayed.world import World

NOBODY = BitmapShelf(1 << 20, lambda: None)


class Cursor:
    mark_delete = Position(0, -1)
    read_position = Position(9, 0)


class Many:
    """Entries of ledger 0 with these times, and a subscription that has read past them."""

    def __init__(self, times, *, slice_indexes=8, ready_limit=16):
        self.now = 0
        self.firing = Firing(DelayPolicy(tick_ms=1000, strict=True), lambda: self.now, slice_indexes, NOBODY)
        self.view = self.firing.views["sub"] = BucketDelayView(self.firing, Cursor(), lambda: None, ready_limit)
        self.view.pending(0)
        entries = list(enumerate(times))
        assert self.firing.hold_all(0, entries) == list(range(len(entries)))

    def fire_all(self):
        while self.firing.fire():
            pass


def test_up_to_the_limit_it_comes_in_order_of_time():
    many = Many([30, 10, 20])
    many.now = 30
    many.fire_all()
    assert many.view.take_due(9) == [(0, 1), (0, 2), (0, 0)]


def test_beyond_the_limit_it_comes_by_position_round_the_log():
    many = Many([100 - entry_id for entry_id in range(60)], ready_limit=8)
    many.now = 100
    many.fire_all()
    assert [p.entry_id for p in many.view.take_due(8)] == list(range(59, 51, -1))
    assert [p.entry_id for p in many.view.take_due(40)] == list(range(40))
    for entry_id in range(3):  # published since, and due
        many.firing.hold_all(1, [(entry_id, 200)])
        many.firing.hold_all(0, [(100 + entry_id, 200)])
    many.now = 200
    many.fire_all()
    assert [p.entry_id for p in many.view.take_due(12)] == list(range(40, 52)), "goes on where it stopped"
    assert many.view.take_due(9) == [(0, 100), (0, 101), (0, 102), (1, 0), (1, 1), (1, 2)]
    assert not many.view.has_due()


def test_the_round_begins_anew_at_the_end_of_the_log():
    many = Many([5] * 40, ready_limit=0)
    many.now = 5
    many.fire_all()
    many.view.take_due(10)
    many.view.fired(Columns.of([(5, 0, 3)]))  # another entry before the read position
    assert [p.entry_id for p in many.view.take_due(100)] == list(range(10, 40))
    assert many.view.take_due(100) == [(0, 3)]


def test_while_the_index_is_behind_little_is_given_per_slice():
    many = Many([7] * 5000, slice_indexes=1000, ready_limit=100)
    many.now = 7
    assert many.firing.fire() and many.firing.behind
    first = many.view.take_due(5000)
    assert 0 < len(first) < 1000 and not many.view.has_due(), "the rest waits for its neighbours"
    assert many.firing.fire()
    assert many.view.has_due()
    many.fire_all()
    assert not many.firing.behind
    rest = many.view.take_due(5000)
    assert sorted(first + rest) == [(0, k) for k in range(5000)]


@pytest.mark.parametrize("ready_limit", [0, 1, 1000])
def test_every_entry_is_given_once_and_not_before_its_time(ready_limit):
    times = [(k * 37) % 500 + 1 for k in range(2000)]
    many, got = Many(times, ready_limit=ready_limit), []
    for many.now in range(0, 510, 50):
        many.fire_all()
        while many.view.has_due():
            taken = many.view.take_due(64)
            assert all(times[p.entry_id] <= many.now for p in taken)
            got += taken
    assert sorted(got) == [(0, k) for k in range(2000)]


def test_a_span_is_known_to_hold_nothing_back_once_all_of_it_has_fired():
    many = Many([10, 20, 30])
    assert not many.view.holds_none(10, 0, 0, 0)
    many.now = 20
    assert not many.view.holds_none(20, 0, 0, 1), "due, but it has not fired: it comes by the view"
    many.fire_all()
    assert many.view.holds_none(20, 0, 0, 1) and many.view.holds_none(20, 7, 0, 9)
    assert not many.view.holds_none(20, 0, 1, 2), "one of them waits"
    assert not many.view.holds_none(21, 0, 0, 1), "one of them is not due"
    many.firing.cancelled.add(7, 7)
    assert not many.view.holds_none(20, 0, 0, 1), "each must be looked at"


def test_delays_switched_off_make_everything_due_and_nothing_is_kept_back():
    many = Many(range(1000, 3000), slice_indexes=64)
    many.firing.policy = DelayPolicy(tick_ms=1000, strict=True, active=False)
    many.fire_all()
    assert not many.firing.behind
    assert len(many.view.take_due(5000)) == 2000


def test_an_offer_of_many_entries_sets_the_timer_once_and_looks_at_no_chunk(monkeypatch):
    """After a restart a dispatcher read 12,800 entries in a turn: each looked at the head of every chunk of 4096 that
    the index had by then (176 - 250 ms; with a million entries, several times as long).
    """
    world, seen = World(min_index_count=1 << 30), []
    latest_ms = world.clock.now + 3_600_000
    view = world.subscribe("sub").view
    monkeypatch.setattr(Chunk, "head_time", property(lambda chunk: seen.append(chunk) or chunk._min_time))
    monkeypatch.setattr(world.index, "_arm", lambda arm=world.index._arm: (seen.append(world.index), arm()))
    for first in range(0, 200_000, 100):
        entries = [(first + k, latest_ms - first - k) for k in range(100)]
        held = view.offer(0, entries)
        assert all(entry_id in held for entry_id, _ in entries)
    assert world.index.pending_count == 200_000
    assert len(seen) <= 2_010
    world.close()
