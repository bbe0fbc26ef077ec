"""Key_Shared as clients see it, and the order of keys while consumers come and go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.dispatchers.ports import Parked, Transformed
from magnetar.broker.errors import ConsumerAssignError, SubscriptionBusyError
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.subscriptions.subscription_stats import subscription_stats
from magnetar.protocol.key_hash import murmur3_32
from magnetar.storage.slab import Span
from tests.broker.dispatch_fakes import KEY_SHARED, SHARED, Bench, KeySharedPolicy, entry, got
from tests.calls import Calls

STICKY_LOW = KeySharedPolicy(sticky=True, ranges=((0, 32767),))
STICKY_HIGH = KeySharedPolicy(sticky=True, ranges=((32768, 65535),))


def ring_hash(key: str) -> int:
    return murmur3_32(key.encode()) % 65535 + 1


async def test_a_key_stays_with_one_consumer_in_order():
    bench = Bench()
    consumers = [await bench.join(KEY_SHARED, name, permits=1000) for name in ("left", "right", "middle")]
    keys = [f"key-{i}" for i in range(30)]
    for _ in range(5):
        bench.publish(*[entry(key=k) for k in keys])
    owners: dict[int, set] = {}
    for consumer in consumers:
        ids = got(consumer)
        assert ids
        assert ids == sorted(ids)
        for entry_id in ids:
            owners.setdefault(entry_id % 30, set()).add(consumer.name)
    assert all(len(who) == 1 for who in owners.values())
    assert sum(map(len, owners.values())) == 30


async def test_permits_count_entries():
    """Verified against Apache Pulsar 4.2.4: FLOW 2, 3, 5, 4 on batches of three give 2, 0, 4, 0 entries."""
    bench = Bench()
    consumer = await bench.join(KEY_SHARED)
    bench.publish(*[entry(batch=3) for _ in range(12)])
    sent = []
    for permits in (2, 3, 5, 4):
        bench.flow(consumer, permits)
        sent.append(len(got(consumer)))
    assert sent == [2, 0, 4, 0]


async def test_a_refused_first_consumer_gives_the_subscription_its_type():
    """Verified against Apache Pulsar 4.2.4."""
    bench = Bench()
    with pytest.raises(ConsumerAssignError):
        await bench.join(KEY_SHARED, key_shared=KeySharedPolicy(sticky=True, ranges=()))
    stats = subscription_stats(bench.subscription)
    assert (stats.type_name, stats.key_shared_mode) == ("Key_Shared", "STICKY")
    assert not stats.consumers
    bench.publish(entry(key="k"))
    consumer = await bench.join(SHARED, permits=10)
    assert got(consumer) == [0]


async def test_sticky_ranges_and_their_errors():
    bench = Bench()
    low = await bench.join(KEY_SHARED, permits=10, key_shared=STICKY_LOW)
    bench.publish(entry(key="k1"), entry(key="key01"), entry(key="key1"))  # 24618, 47652, 293
    assert got(low) == [0, 2]
    for ranges in ((), ((5, 4),), ((32767, 40000),)):
        with pytest.raises(ConsumerAssignError):
            await bench.join(KEY_SHARED, key_shared=KeySharedPolicy(sticky=True, ranges=ranges))
    for policy in (
        None,
        KeySharedPolicy(),
        KeySharedPolicy(sticky=True, ranges=((40000, 40001),), allow_out_of_order=True),
    ):
        with pytest.raises(SubscriptionBusyError):
            await bench.join(KEY_SHARED, key_shared=policy)
    high = await bench.join(KEY_SHARED, permits=10, key_shared=STICKY_HIGH)
    bench.clock.run()
    assert got(high) == [1]
    stats = subscription_stats(bench.subscription)
    assert stats.key_shared_mode == "STICKY"
    assert [c.key_hash_ranges for c in stats.consumers] == [((0, 32767),), ((32768, 65535),)]


async def moved_keys(bench, first, name="right"):
    """A second consumer, and keys that it takes over and that it does not."""
    second = await bench.join(KEY_SHARED, name, permits=100)
    selector = bench.subscription.dispatcher.selector
    keys = [f"key-{i}" for i in range(40)]
    moved = [k for k in keys if selector.select(ring_hash(k)) is second]
    stayed = [k for k in keys if selector.select(ring_hash(k)) is first]
    bench.leave(second)
    return moved, stayed


async def test_a_moved_key_waits_until_the_old_consumer_is_done_with_it():
    bench = Bench()
    first = await bench.join(KEY_SHARED, "left", permits=100)
    (moved, other, *_), (stayed, *_) = await moved_keys(bench, first)
    held = bench.publish(entry(key=moved), entry(key=moved), entry(key=stayed))
    assert got(first) == [0, 1, 2]
    second = await bench.join(KEY_SHARED, "right", permits=100)
    bench.publish(entry(key=moved), entry(key=stayed), entry(key=other))
    assert got(first) == [4]
    assert got(second) == [5]
    stats = subscription_stats(bench.subscription)
    assert stats.draining_hashes_count == 1
    draining = stats.consumers[0].draining_hashes[0]
    assert (draining.key_hash, draining.unacked_entries, draining.blocked_attempts) == (ring_hash(moved), 2, 1)
    bench.ack(first, held[0])
    assert got(second) == []
    bench.ack(first, held[1])
    assert got(second) == [3]
    stats = subscription_stats(bench.subscription)
    assert (stats.draining_hashes_count, stats.draining_hashes_cleared_total) == (0, 1)


async def test_giving_back_or_leaving_frees_a_draining_hash_in_order():
    bench = Bench()
    first = await bench.join(KEY_SHARED, "left", permits=100)
    (moved, *_), _ = await moved_keys(bench, first)
    held = bench.publish(entry(key=moved), entry(key=moved))
    got(first)
    second = await bench.join(KEY_SHARED, "right", permits=100)
    bench.publish(entry(key=moved))
    assert got(second) == []
    bench.redeliver(first, held[1])
    assert got(first) == got(second) == []
    bench.redeliver(first)
    assert [(m.position.entry_id, m.count) for m in second.outbox.take()] == [(0, 1), (1, 1), (2, 0)]


async def test_a_leaver_hands_over_before_new_messages():
    bench = Bench()
    first = await bench.join(KEY_SHARED, "left", permits=100)
    (moved, *_), _ = await moved_keys(bench, first)
    bench.publish(entry(key=moved), entry(key=moved))
    second = await bench.join(KEY_SHARED, "right", permits=100)
    bench.publish(entry(key=moved))
    bench.leave(first)
    assert [(m.position.entry_id, m.count) for m in second.outbox.take()] == [(0, 0), (1, 0), (2, 0)]


async def test_a_hash_that_comes_back_is_free():
    bench = Bench()
    first = await bench.join(KEY_SHARED, "left", permits=100)
    (moved, *_), _ = await moved_keys(bench, first)
    bench.publish(entry(key=moved))
    second = await bench.join(KEY_SHARED, "right", permits=100)
    bench.publish(entry(key=moved))
    bench.leave(second)
    assert got(first) == [0, 1]
    again = await bench.join(KEY_SHARED, "right", permits=100)
    assert subscription_stats(bench.subscription).consumers[0].draining_hashes[0].unacked_entries == 2
    for entry_id in (0, 1):
        bench.ack(first, (7, entry_id))
    bench.publish(entry(key=moved))
    assert got(again) == [2]


async def test_out_of_order_delivery_does_not_wait():
    bench = Bench()
    loose = KeySharedPolicy(allow_out_of_order=True)
    first = await bench.join(KEY_SHARED, "left", permits=100, key_shared=loose)
    selector = bench.subscription.dispatcher.selector
    bench.publish(*[entry(key=f"key-{i}") for i in range(40)])
    second = await bench.join(KEY_SHARED, "right", permits=100, key_shared=loose)
    moved = next(k for k in (f"key-{i}" for i in range(40)) if selector.select(ring_hash(k)) is second)
    bench.publish(entry(key=moved))
    assert got(first) == list(range(40))
    assert got(second) == [40]
    assert subscription_stats(bench.subscription).allow_out_of_order_delivery


async def test_look_ahead_past_a_consumer_without_permits_is_bounded():
    bench = Bench(key_shared_look_ahead_per_consumer=10, key_shared_look_ahead_per_subscription=30)
    slow = await bench.join(KEY_SHARED, permits=1, key_shared=STICKY_LOW)
    fast = await bench.join(KEY_SHARED, permits=1000, key_shared=STICKY_HIGH)
    bench.publish(*[entry(key="k1") for _ in range(15)], *[entry(key="key01") for _ in range(5)])
    assert got(slow) == [0]
    assert got(fast) == list(range(15, 20))
    bench.publish(*[entry(key="k1") for _ in range(300)], entry(key="key01"))
    assert got(fast) == []
    assert 20 <= subscription_stats(bench.subscription).msg_in_replay < 20 + 100
    bench.flow(slow, 400)
    assert got(slow) == [*range(1, 15), *range(20, 320)]
    assert got(fast) == [320]


async def test_a_join_that_raises_the_bound_of_looking_ahead_continues_reading():
    bench = Bench(key_shared_look_ahead_per_consumer=5, max_read_entries=5)
    await bench.join(KEY_SHARED, key_shared=STICKY_LOW)
    fast = await bench.join(KEY_SHARED, permits=1000, key_shared=KeySharedPolicy(sticky=True, ranges=((32768, 65534),)))
    bench.publish(*[entry(key="k1") for _ in range(10)], entry(key="key01"))
    assert got(fast) == []
    await bench.join(KEY_SHARED, key_shared=KeySharedPolicy(sticky=True, ranges=((65535, 65535),)))
    await bench.settle()
    assert got(fast) == [10]


@pytest.mark.parametrize(("per_consumer", "per_subscription", "most"), [(0, 30, 30), (10, 0, 20), (0, 0, 60)])
async def test_look_ahead_of_0_is_no_limit(per_consumer, per_subscription, most):
    bench = Bench(
        key_shared_look_ahead_per_consumer=per_consumer,
        key_shared_look_ahead_per_subscription=per_subscription,
        max_read_entries=1,
    )
    slow = await bench.join(KEY_SHARED, permits=1, key_shared=STICKY_LOW)
    fast = await bench.join(KEY_SHARED, permits=1000, key_shared=STICKY_HIGH)
    bench.publish(*[entry(key="k1") for _ in range(61)], entry(key="key01"))
    assert got(slow) == [0]
    assert got(fast) == ([61] if most == 60 else [])
    assert subscription_stats(bench.subscription).msg_in_replay == most
    bench.flow(slow, 60)
    assert got(slow) == list(range(1, 61))


async def test_without_a_look_ahead_limit_that_of_unacked_messages_counts():
    bench = Bench(
        key_shared_look_ahead_per_consumer=0,
        key_shared_look_ahead_per_subscription=0,
        max_unacked_per_consumer=10,
        max_read_entries=1,
    )
    await bench.join(KEY_SHARED, permits=1, key_shared=STICKY_LOW)
    await bench.join(KEY_SHARED, permits=1000, key_shared=STICKY_HIGH)
    bench.publish(*[entry(key="k1") for _ in range(50)])
    assert subscription_stats(bench.subscription).msg_in_replay == 20


async def test_blocked_walks_through_the_replay_queue_are_not_repeated():
    bench = Bench()
    slow = await bench.join(KEY_SHARED, permits=1, key_shared=STICKY_LOW)
    fast = await bench.join(KEY_SHARED, permits=1000, key_shared=STICKY_HIGH)
    bench.publish(*[entry(key="k1") for _ in range(50)])
    reads = bench.cursor.reads
    bench.publish(*[entry(key="key01") for _ in range(50)])
    assert got(fast) == list(range(50, 100))
    assert bench.cursor.reads - reads <= 2
    assert got(slow) == [0]


async def test_unacked_limit_counts_entries_by_the_average_batch():
    bench = Bench(max_unacked_per_consumer=10)
    c = await bench.join(KEY_SHARED, permits=100)
    first = bench.publish(*[entry(batch=4) for _ in range(3)])
    assert len(got(c)) == 3
    assert subscription_stats(bench.subscription).consumers[0].blocked_on_unacked
    bench.publish(*[entry(batch=4) for _ in range(9)])
    bench.ack(c, *first[:2])
    assert len(got(c)) == 2  # 4 unacked, room for 6: two entries of four
    assert subscription_stats(bench.subscription).consumers[0].blocked_on_unacked


# --- the history checker -----------------------------------------------------------------------------------------

KEYS = [f"key-{i}" for i in range(8)]


class History:
    """The messages of each consumer; checked are order per key, losses and unexplained duplicates."""

    def __init__(self) -> None:
        self.keys: dict[int, str] = {}
        self.held: dict[int, object] = {}
        self.acked: set[int] = set()
        self.sent_before: set[int] = set()
        self.given_back: set[int] = set()

    def published(self, positions, keys) -> None:
        self.keys.update((p.entry_id, k) for p, k in zip(positions, keys, strict=True))

    def sent(self, consumer, entry_id: int) -> None:
        key = self.keys[entry_id]
        assert entry_id not in self.acked, "an acknowledged message came again"
        assert entry_id not in self.held, "a message that is held was sent"
        assert entry_id not in self.sent_before or entry_id in self.given_back, "a duplicate without redelivery"
        earlier = [e for e in self.keys if e < entry_id and self.keys[e] == key and e not in self.acked]
        assert all(self.held.get(e) is consumer for e in earlier), f"{entry_id} overtook {earlier} of {key}"
        self.held[entry_id] = consumer
        self.sent_before.add(entry_id)
        self.given_back.discard(entry_id)

    def let_go(self, consumer) -> None:
        for entry_id in [e for e, c in self.held.items() if c is consumer]:
            del self.held[entry_id]
            self.given_back.add(entry_id)


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=6)),
    st.tuples(st.just("join"), st.sampled_from(["a", "b", "c", "d"])),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("ack"), st.integers(0, 30)),
    st.tuples(st.just("flow"), st.tuples(st.integers(0, 5), st.integers(1, 5))),
    st.tuples(st.just("redeliver"), st.integers(0, 5)),
    st.tuples(st.just("settle"), st.none()),
)


class Run:
    def __init__(self, *, cold: bool, kind=KEY_SHARED, **how) -> None:
        self.bench, self.history, self.consumers, self.kind = Bench(cold=cold, **how), History(), [], kind

    async def step(self, what, value) -> None:
        consumers, bench, history = self.consumers, self.bench, self.history
        chosen = (
            consumers[(value[0] if what == "flow" else value) % len(consumers)]
            if consumers and isinstance(value, int | tuple)
            else None
        )
        if what == "publish":
            keys = [KEYS[k] for k in value]
            first = bench.log.entries
            history.keys.update((first + i, k) for i, k in enumerate(keys))
            bench.publish(*[entry(key=k) for k in keys])
        elif what == "join":
            await self.join(value)
        elif what == "leave" and chosen is not None and len(consumers) > 1:
            consumers.remove(chosen)
            history.let_go(chosen)
            bench.leave(chosen)
        elif what == "ack" and history.held:
            entry_id = sorted(history.held)[value % len(history.held)]
            consumer = history.held.pop(entry_id)
            history.acked.add(entry_id)
            bench.ack(consumer, (bench.log.ledger_id, entry_id))
        elif what == "flow" and chosen is not None:
            bench.flow(chosen, value[1])
        elif what == "redeliver" and chosen is not None:
            history.let_go(chosen)
            bench.redeliver(chosen)
        elif what == "settle":
            await bench.settle()

    async def join(self, name):
        consumer = self.bench.new(self.kind, name)
        consumer.outbox.on_message = lambda m: self.history.sent(consumer, m.position.entry_id)
        await self.bench.subscription.add_consumer(consumer)
        self.consumers.append(consumer)
        self.bench.flow(consumer, 6)

    async def finish(self) -> None:
        """With permits for all and acks for everything, nothing may be left."""
        for _ in range(len(self.history.keys) + 2):
            for consumer in self.consumers:
                self.bench.flow(consumer, 100)
            await self.bench.settle()
            for entry_id, consumer in sorted(self.history.held.items()):
                del self.history.held[entry_id]
                self.history.acked.add(entry_id)
                self.bench.ack(consumer, (self.bench.log.ledger_id, entry_id))
            await self.bench.settle()
            if len(self.history.acked) == len(self.history.keys):
                break
        assert self.history.acked == set(self.history.keys), "lost"
        stats = subscription_stats(self.bench.subscription)
        assert (stats.unacked_messages, stats.msg_in_replay, stats.draining_hashes_count) == (0, 0, 0)
        assert stats.msg_backlog == 0
        await self.bench.subscription.close()


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEPS, min_size=15, max_size=70), cold=st.booleans(), ring=st.booleans())
async def test_keys_keep_their_order_through_churn(steps, cold, ring):
    run = Run(cold=cold, key_shared_consistent_hashing=ring, max_read_entries=7)
    await run.join("first")
    for what, value in steps:
        await run.step(what, value)
    await run.finish()


async def test_a_raised_limit_of_unacked_messages_sends_the_entries_that_waited():
    """The last walk through the waiting entries was in vain, and nothing but the limit has changed since."""
    bench = Bench(max_unacked_per_consumer=2)
    full = await bench.join(KEY_SHARED, "full", permits=100)
    other = await bench.join(KEY_SHARED, "other", permits=100)
    bench.publish(*[entry(key=f"k{i}") for i in range(20)])
    while sent := got(other):
        bench.ack(other, *[(bench.log.ledger_id, entry_id) for entry_id in sent])
    waiting = bench.subscription.dispatcher.held.replay.entries
    assert full.permits.blocked
    assert len(got(full)) == 2
    assert waiting
    bench.subscription.set_settings(SubscriptionSettings(max_unacked_per_consumer=0))
    bench.clock.run()
    assert len(got(full)) == waiting


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("batch", [0, 2])
async def test_entries_behind_an_acknowledged_entry_that_waits_are_sent(batch, cold):
    """The consumer has permits for the acknowledged entry alone, which the walk finds first, and sends no other FLOW."""
    bench = Bench(cold=cold)
    leaver = await bench.join(KEY_SHARED, "leaver", permits=9)
    positions = bench.publish(*[entry(key="k", batch=batch) for _ in range(3)])
    await bench.settle()
    assert got(leaver) == [0, 1, 2]
    heir = await bench.join(KEY_SHARED, "heir")
    bench.leave(leaver)
    bench.ack(heir, positions[0])  # as a client does that received the entry before it reconnected
    bench.flow(heir, 1)
    await bench.settle()
    assert got(heir) == [1]


class FailingConverter:
    """Converts all entries but the first, which holds back its key for good."""

    flags = 0

    def __call__(self, spans, _order):
        every = [Span(slab, k, k + 1) for slab, start, end in spans for k in range(start, end)]
        failed = [Parked(span, 100, holds_key=True) for span in every if span.first_position.entry_id == 0]
        return Transformed(spans=[span for span in every if span.first_position.entry_id], parked=failed)


async def test_an_entry_that_is_not_converted_holds_back_only_its_key():
    """The consumer has permits for as many entries as the queue has in front of the others."""
    bench = Bench()
    leaver = await bench.join(KEY_SHARED, permits=9)
    bench.publish(*[entry(key=f"k{number}") for number in range(3)])
    consumer = await bench.join(KEY_SHARED)
    bench.leave(leaver)
    bench.subscription.context.transform = FailingConverter()
    for expected in (1, 2):
        bench.flow(consumer, 1)
        bench.clock.advance(1)
        assert got(consumer) == [expected]


@pytest.mark.parametrize("batch", [0, 1])
async def test_entries_with_fewer_messages_than_usual_do_not_wait_for_permits(batch):
    """The average of three messages in an entry leaves the consumer room for one entry of a read; each entry of that
    read has one message, so that there is room for two. The last walk through the waiting entries was in vain.
    """
    bench = Bench(max_unacked_per_consumer=5)
    full = await bench.join(KEY_SHARED, "full")
    open_ = await bench.join(KEY_SHARED, "open", permits=100)
    selector = bench.subscription.dispatcher.selector
    of_full, of_open = ([k for k in map(str, range(40)) if selector.select(ring_hash(k)) is c] for c in (full, open_))
    bench.publish(entry(key=of_open[0], batch=3), entry(key=of_full[0]))
    assert got(open_) == [0]
    bench.publish(entry(key=of_open[1], batch=batch), entry(key=of_open[2], batch=batch))
    assert got(open_) == [2, 3]


async def test_a_join_and_a_leave_cost_the_same_beside_many_consumers():
    """With the ranges of all members computed, a join beside 700 consumers was a turn of a tenth of a second."""
    counts = []
    for others in (20, 700):
        bench = Bench()
        consumers = [await bench.join(KEY_SHARED, f"c{i}") for i in range(others)]
        with Calls() as calls:
            await bench.join(KEY_SHARED, "late")
            bench.subscription.dispatcher.key_ranges_of(consumers[3])
            bench.subscription.remove_consumer(consumers[7])
        counts.append(calls.count)
    assert counts[1] < 2 * counts[0], counts


async def test_a_consumer_that_gives_back_entries_that_are_gone_gets_the_entries_that_waited_for_it():
    """Retention removed the entries that a reader held: nothing goes to the replay queue, but the reader has room."""
    bench = Bench(max_unacked_per_consumer=2)
    reader = await bench.join(KEY_SHARED, permits=10, key_shared=STICKY_LOW)
    await bench.join(KEY_SHARED, permits=10, key_shared=STICKY_HIGH)
    positions = bench.publish(*[entry(key="k1") for _ in range(4)])
    bench.publish(entry(key="key01"))
    assert got(reader) == [0, 1]
    bench.cursor.ack_cumulative(positions[1])
    bench.redeliver(reader)
    assert got(reader) == [2, 3]
