"""The in-memory tracker by itself, and as the naive twin of the bucket index: both deliver the same at the same times."""

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.delayed.delay_settings import DelayPolicy
from magnetar.delayed.memory_tracker import MemoryDelayIndex, MemoryDelayView
from magnetar.storage.position import Position
from tests.delayed.world import Clock, World


class View:
    """A view with its clock; `woken` counts."""

    def __init__(self, lookahead=0, **policy):
        self.clock, self.woken = Clock(), 0
        policy = DelayPolicy(**{"tick_ms": 100, "strict": True} | policy)
        self.view = MemoryDelayView(policy, self.clock.now_ms, self.clock.call_later, self._wake, lookahead)

    def _wake(self):
        self.woken += 1

    def offer(self, delay_ms, entry_id):
        return entry_id in self.view.offer(0, [(entry_id, self.clock.now + delay_ms)])

    def advance(self, ms):
        self.clock.now += ms
        while self.clock.run_due():
            if self.view.has_due():
                return


def test_held_until_due_in_the_order_of_time_then_position():
    world = View()
    assert not world.offer(0, 0) and not world.offer(-5, 1)
    assert all(world.offer(delay, k) for k, delay in ((2, 300), (3, 100), (5, 200), (4, 200)))
    assert world.view.pending_count == 4 and not world.view.has_due()
    world.advance(99)
    assert not world.view.has_due() and not world.woken
    world.advance(201)
    assert world.woken and [p.entry_id for p in world.view.take_due(3)] == [3, 4, 5]
    assert [p.entry_id for p in world.view.take_due(3)] == [2] and not world.view.pending_count


def test_not_strict_is_at_most_a_tick_early():
    world = View(strict=False)
    assert not world.offer(100, 0) and world.offer(101, 1)
    world.advance(1)
    assert world.view.has_due()


def test_switched_off_all_is_due():
    world = View()
    world.offer(5000, 1)
    world.view.set_policy(DelayPolicy(active=False))
    assert world.woken == 1 and world.view.take_due(9) == [Position(0, 1)]


def test_a_clock_that_was_set_back_and_right_again_delays_by_a_minute_at_most():
    world = View()
    world.clock.now -= 7_200_000
    wall = world.clock.now_ms
    world.view.offer(0, [(1, wall() + 7_200_000 + 500)])
    ahead = 7_200_000
    world.view._now_ms = lambda: wall() + ahead
    world.advance(60_000)
    assert world.woken and world.view.take_due(9) == [Position(0, 1)]


def test_cleared_nothing_is_held_and_no_timer_runs():
    world = View()
    world.offer(50, 1)
    world.view.clear()
    assert world.clock.next_timer is None and world.view.memory_bytes == 0


def test_reading_pauses_when_enough_of_a_fixed_delay_is_held():
    world = View(lookahead=3)
    for k in range(2):
        world.offer(1000 + k, k)
    assert not world.view.pauses_reading
    world.offer(1000 - 90, 2)  # within a tick of the highest: clocks of producers differ
    assert world.view.pauses_reading
    world.advance(950)
    assert world.view.has_due() and not world.view.pauses_reading
    world.view.take_due(10)
    assert not world.view.pauses_reading, "there is room again"
    world.offer(5000, 5)
    assert world.view.pauses_reading


def test_reading_does_not_pause_when_delays_differ_until_all_are_gone():
    world = View(lookahead=2)
    for k, delay in enumerate((5000, 1000, 6000)):
        world.offer(delay, k)
    assert not world.view.pauses_reading
    world.advance(6000)
    world.view.take_due(10)
    for k in range(2):
        world.offer(100 + k, k)
    assert world.view.pauses_reading
    assert not View(lookahead=0).view.pauses_reading


class MemoryWorld(World):
    """The same world with the in-memory tracker."""

    def start(self, *, turn=True):
        super().start(turn=turn)
        self.index = MemoryDelayIndex(self.policy, self.clock.now_ms, self.clock.call_later)
        for subscription in self.subscriptions.values():
            subscription.attach()
            subscription.rewind()


DELAYS = st.lists(st.sampled_from([None, 0, 1, 500, 1000, 1500, 20_000]), min_size=1, max_size=12)
STEPS = st.one_of(
    st.tuples(st.just("publish"), DELAYS),
    st.tuples(st.just("advance"), st.sampled_from([1, 499, 500, 1000, 25_000])),
    st.tuples(st.just("ack"), st.integers(0, 5)),
    st.tuples(st.just("reconnect"), st.none()),
    st.tuples(st.just("seek"), st.integers(0, 10)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("roll"), st.none()),
)


def step(world, what, value, both):
    """``both``: the entries that both worlds have delivered; this tracker may be some milliseconds later."""
    sub = world.subscriptions["sub"]
    if what == "publish":
        world.publish(*value)
    elif what == "advance":
        world.advance(value)
    elif what == "ack":
        sub.ack(both[:value])
    elif what == "reconnect":
        sub.disconnect()
        sub.connect()
    elif what == "seek":
        positions = list(world.log.positions())
        if positions:
            sub.seek(positions[min(value, len(positions) - 1)])
    elif what == "restart":
        world.restart()
    else:
        world.log.roll()
    world.settle()
    sub.poll()


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
def test_both_trackers_deliver_the_same(steps):
    worlds = [World(max_buckets=2, bitmap_bytes=0), MemoryWorld()]
    try:
        for world in worlds:
            world.subscribe("sub")
        for what, value in [*steps, ("advance", 30_000)]:
            got = []
            both = sorted(set.intersection(*(set(world.subscriptions["sub"].outstanding) for world in worlds)))
            for world in worlds:
                step(world, what, value, both)
                sub = world.subscriptions["sub"]
                assert not sub.early and not sub.twice and not world.problems
                got.append(set(sub.outstanding))
            ours, twin = worlds
            late = [twin.clock.now - twin.log.time(p) for p in got[1] - got[0]]
            assert got[0] <= got[1] and all(ms <= ours.settings.min_fire_interval_ms for ms in late)
    finally:
        for world in worlds:
            world.close()
