"""Operations in any order: every published message is delivered to every subscription, once, never early."""

from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.delayed.bitmap_shelf import BitmapShelf
from magnetar.delayed.catalogue import catalogue_path, decode
from magnetar.storage.position import EARLIEST, Position
from tests.delayed.world import NAME, World

pytestmark = pytest.mark.timeout(300)
FAR = (1 << 63) - 1
DELAYS = st.sampled_from([None, None, 0, -5, 1, 999, 1000, 1001, 5_000, 300_000, 86_400_000, FAR])
NAMES = st.sampled_from(["a", "b", "c"])
OUTCOMES = st.lists(st.sampled_from(["ok", "ok", "before", "after"]), max_size=6)


class DelayedIndexMachine(RuleBasedStateMachine):
    """The model: the log lists all entries; each subscription knows its delivered, held and acknowledged entries."""

    def __init__(self):
        super().__init__()
        self.world = None
        self.clean = True

    @initialize(
        max_buckets=st.sampled_from([1, 2, 3, 4, 64]),
        segment=st.sampled_from([1, 2, 7]),
        strict=st.booleans(),
        ready_limit=st.sampled_from([1, 3, 1000]),
        uncovered=st.sampled_from([5, 1000]),
        prefetch_ms=st.sampled_from([0, 30_000]),
        bitmap_bytes=st.sampled_from([None, 0, 300]),
    )
    def open(self, max_buckets, segment, strict, ready_limit, uncovered, prefetch_ms, bitmap_bytes):
        self.world = World(
            bitmap_bytes=bitmap_bytes,
            max_buckets=max_buckets,
            max_segment_indexes=segment,
            ready_limit=ready_limit,
            uncovered_entries=uncovered,
            prefetch_ms=prefetch_ms,
        )
        self.world.set_policy(strict=strict)
        self.world.subscribe("a")

    @rule(delays=st.lists(DELAYS, min_size=1, max_size=12))
    def publish(self, delays):
        self.world.publish(*delays)

    @rule(delay=st.integers(0, 20_000), count=st.integers(1, 20))
    def publish_burst(self, delay, count):
        self.world.publish(*[delay] * count)

    @rule(count=st.integers(1, 30), data=st.data())
    def publish_random(self, count, data):
        self.world.publish(*data.draw(st.lists(st.integers(1, 40_000), min_size=count, max_size=count)))

    @rule()
    def roll(self):
        self.world.log.roll()

    @rule(turns=st.integers(1, 25))
    def turn(self, turns):
        self.world.turn(turns)

    @rule(ms=st.sampled_from([1, 10, 500, 1000, 3000, 20_000, 400_000]))
    def advance(self, ms):
        self.world.faults.script.clear()
        self.world.faults.outage = False
        self.world.advance(ms)

    @rule(ms=st.sampled_from([1, 1000, 60_000]))
    def clock_jumps_back(self, ms):
        self.world.allowed()
        self.world.clock.now -= ms

    @rule(ms=st.sampled_from([1, 1000, 60_000]))
    def clock_jumps_ahead(self, ms):
        self.world.clock.now += ms

    @rule(name=NAMES, limit=st.integers(1, 10))
    def consume(self, name, limit):
        if name in self.world.subscriptions:
            self.world.allowed()
            self.world.subscriptions[name].poll(limit)

    @rule(name=NAMES, data=st.data())
    def ack(self, name, data):
        subscription = self.world.subscriptions.get(name)
        if subscription is not None and subscription.outstanding:
            chosen = data.draw(st.sets(st.sampled_from(sorted(subscription.outstanding)), min_size=1))
            subscription.ack(sorted(chosen))

    @rule(name=NAMES)
    def disconnect_or_connect(self, name):
        subscription = self.world.subscriptions.get(name)
        if subscription is not None:
            (subscription.disconnect if subscription.connected else subscription.connect)()

    @rule(name=NAMES, latest=st.booleans())
    def subscribe(self, name, latest):
        if name not in self.world.subscriptions:
            log = self.world.log
            before_first = EARLIEST if log.first_position is None else log.first_position.previous()
            self.world.subscribe(name, log.last_confirmed if latest else before_first)

    @precondition(lambda self: self.world is not None and len(self.world.subscriptions) > 1)
    @rule(name=NAMES)
    def unsubscribe(self, name):
        if name in self.world.subscriptions:
            self.world.unsubscribe(name)

    @rule(name=NAMES, data=st.data())
    def seek(self, name, data):
        positions = list(self.world.log.positions())
        if name in self.world.subscriptions and positions:
            self.world.subscriptions[name].seek(data.draw(st.sampled_from(positions)))

    @rule(name=NAMES, count=st.integers(1, 5))
    def skip(self, name, count):
        """Clear backlog, skip, expire: acknowledged without having been delivered."""
        subscription = self.world.subscriptions.get(name)
        if subscription is not None:
            positions = list(self.world.log.positions(subscription.cursor.mark_delete))[:count]
            subscription.ack(positions)

    @rule()
    def trim(self):
        self.world.log.trim([s.cursor.mark_delete for s in self.world.subscriptions.values()])

    @rule(outcomes=OUTCOMES)
    def faults(self, outcomes):
        self.world.faults.script = list(outcomes)

    @rule(on=st.booleans())
    def outage(self, on):
        self.world.faults.outage = on

    @rule()
    def unload(self):
        self.world.unload()

    @rule()
    def crash(self):
        self.world.restart()

    @rule(bytes_=st.sampled_from([0, 150, 100_000]))
    def change_budget(self, bytes_):
        if self.world.shelf is not None:
            self.world.shelf.limit_bytes = bytes_

    @rule(on=st.booleans())
    def scratch_file_takes_no_more(self, on):
        if self.world.shelf is not None:
            self.world.shelf.put = (lambda _bitmap: None) if on else partial(BitmapShelf.put, self.world.shelf)

    @rule(strict=st.booleans(), tick=st.sampled_from([1, 100, 1000]))
    def change_policy(self, strict, tick):
        self.world.set_policy(strict=strict, tick_ms=tick)

    @rule(active=st.booleans())
    def switch(self, active):
        self.world.set_policy(active=active)

    @rule(name=NAMES)
    def switch_off_and_on(self, name):
        """Another subscription may read while delays are off."""
        self.world.set_policy(active=False)
        self.world.turn(10)
        self.consume(name, 10)
        self.world.set_policy(active=True)

    @rule(data=st.data(), how=st.sampled_from(["corrupt", "delete", "truncate"]))
    def damage(self, data, how):
        """One snapshot is lost."""
        stored = sorted(self.world.stored())
        if not stored:
            return
        ledger_id = data.draw(st.sampled_from(stored))
        writer = self.world.ledgers._ledgers[ledger_id]
        if how == "delete":
            del self.world.ledgers._ledgers[ledger_id]
        elif how == "corrupt":
            self.world.ledgers.corrupt.add(Position(ledger_id, data.draw(st.integers(0, writer.last_add_confirmed))))
        else:
            writer.last_add_confirmed = data.draw(st.integers(-1, writer.last_add_confirmed))

    @rule(data=st.data())
    def flip_catalogue(self, data):
        path = catalogue_path(NAME)
        node = self.world.metadata._nodes.get(path)
        if node is not None:
            at = data.draw(st.integers(0, len(node[0]) - 1))
            flipped = node[0][:at] + bytes([node[0][at] ^ 1]) + node[0][at + 1 :]
            self.world.metadata._nodes[path] = (flipped, node[1])
            self.clean = False

    # --- invariants ---

    @invariant()
    def nothing_early_nothing_twice(self):
        if self.world is None:
            return
        assert not self.world.problems, self.world.problems
        for subscription in self.world.subscriptions.values():
            assert not subscription.early
            assert not subscription.twice

    @invariant()
    def skipped_entries_are_pending_for_all(self):
        """Only delayed entries are ever pending; that all of them fire is shown at the end."""
        if self.world is None:
            return
        pending = set(self.world.firing.pending.positions())
        assert len(self.world.firing.pending) == len(pending)
        for position in pending:
            if position.ledger_id in self.world.log.ledgers:
                assert self.world.log.time(position) is not None

    def teardown(self):
        if self.world is None:
            return
        try:
            self._drain()
        finally:
            self.world.close()

    def _drain(self):
        world = self.world
        world.faults.script.clear()
        world.faults.outage = False
        world.advance(300_000)
        world.allowed()
        for subscription in world.subscriptions.values():
            if not subscription.connected:
                subscription.connect()
        world.clock.now += 200_000_000
        world.advance(200_000)
        world.advance(100_000)
        self.nothing_early_nothing_twice()
        now = world.cutoff()
        for subscription in world.subscriptions.values():
            for position in world.log.positions():
                time = world.log.time(position)
                if subscription.cursor.is_deleted(position) or (time is not None and time > now):
                    continue
                assert position in subscription.outstanding, f"{subscription.name} never got {position}"
        for position in list(world.firing.pending.positions()):
            assert world.log.time(position) > now
        # All entries acknowledged, none due far ahead: the stores contain exactly the ledgers of the catalogue.
        for subscription in world.subscriptions.values():
            subscription.ack(list(world.log.positions()))
        world.log.roll()
        world.log.trim([s.cursor.mark_delete for s in world.subscriptions.values()])
        world.advance(100_000)
        world.run(world.index.close())
        if self.clean:
            node = world.metadata._nodes.get(catalogue_path(NAME))
            record = decode(node[0]) if node is not None else None
            named = {b.ledger_id for b in record.buckets} | set(record.doomed) if record is not None else set()
            assert world.stored() <= named
            assert not any(b.ledger_id not in world.stored() for b in record.buckets) if record is not None else True


TestDelayedIndex = DelayedIndexMachine.TestCase
TestDelayedIndex.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
