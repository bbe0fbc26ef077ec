"""Subscriptions of non-persistent topics."""

from __future__ import annotations

import asyncio
from array import array

import pytest

from magnetar.broker.dispatchers.turns import DispatchTurns
from magnetar.broker.errors import ConsumerBusyError, MetadataError, SubscriptionBusyError
from magnetar.broker.policies.subscription_settings import SubscriptionSettings
from magnetar.broker.subscriptions.closed_consumers import _NOTICES_IN_ONE_TURN, NOTICES_AT_ONCE
from magnetar.broker.subscriptions.non_persistent_subscription import NonPersistentSubscription, as_slab
from magnetar.broker.subscriptions.subscription_stats import subscription_stats
from magnetar.protocol.runs import EntryRun
from tests.broker.dispatch_fakes import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, TOPIC, Bench, KeySharedPolicy, entry
from tests.calls import PYTHON, Calls


def run_of(*bodies: bytes) -> EntryRun:
    offsets = array("q", [0])
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    n = len(bodies)
    ones = array("q", [1] * n).tobytes()
    data, zeros = b"".join(bodies), bytes(8 * n)
    return EntryRun(1, n, data, offsets.tobytes(), zeros, zeros, ones, None, bytes(4 * n), 0, 0, n, True, len(data))


class NonPersistentBench(Bench):
    def __init__(self, **settings) -> None:
        super().__init__()
        self.subscription = NonPersistentSubscription(
            topic_name=TOPIC,
            name="sub",
            settings=SubscriptionSettings(**settings),
            turns=DispatchTurns(self.clock.call_later),
            now_ms=self.clock.now_ms,
            on_empty=self.empty.append,
        )

    def send(self, *bodies: bytes) -> None:
        self.subscription.publish(as_slab(run_of(*bodies)))


def payloads(consumer) -> list[bytes]:
    messages = consumer.outbox.take()
    assert all(m.position == (0, 0) for m in messages)
    return [m.payload[-1:] for m in messages]


async def test_entries_that_cannot_be_read_are_dropped():
    bench = NonPersistentBench()
    c = await bench.join(EXCLUSIVE)
    bench.flow(c, 5)
    bench.send(entry(b"1"), b"garbage", entry(b"2"))
    assert payloads(c) == [b"1", b"2"]
    assert subscription_stats(bench.subscription).msg_drop_counter == 1


async def test_without_permits_messages_are_dropped_and_counted():
    bench = NonPersistentBench()
    bench.send(entry(b"0"))
    c = await bench.join(EXCLUSIVE)
    bench.send(entry(b"1"))
    bench.flow(c, 2)
    bench.send(entry(b"2"), entry(b"3"), entry(b"4"))
    assert payloads(c) == [b"2", b"3"]
    assert c.outbox.writes == 1
    assert subscription_stats(bench.subscription).msg_drop_counter == 3
    c.outbox.writable = False
    bench.flow(c, 5)
    bench.send(entry(b"5"))
    assert payloads(c) == []


async def test_a_batch_costs_its_messages():
    bench = NonPersistentBench()
    c = await bench.join(SHARED, permits=2)
    bench.send(entry(b"1", batch=3), entry(b"2"))
    assert payloads(c) == [b"1"]
    assert c.permits.available == -1
    assert c.permits.unacked == 0


async def test_shared_takes_turns():
    bench = NonPersistentBench(max_consumers=2)
    a = await bench.join(SHARED, permits=2)
    b = await bench.join(SHARED, permits=10)
    bench.send(*[entry(b"%d" % i) for i in range(6)])
    assert (payloads(a), payloads(b)) == ([b"0", b"2"], [b"1", b"3", b"4", b"5"])
    with pytest.raises(ConsumerBusyError):
        await bench.join(SHARED)


async def test_key_shared_by_ranges():
    bench = NonPersistentBench()
    low = await bench.join(KEY_SHARED, permits=10, key_shared=KeySharedPolicy(sticky=True, ranges=((0, 32767),)))
    bench.send(entry(b"1", key="k1"), entry(b"2", key="key01"), entry(b"3", key="key1"))
    assert payloads(low) == [b"1", b"3"]
    assert (
        subscription_stats(bench.subscription).key_shared_mode is None
    )  # Apache Pulsar shows it of persistent topics only
    with pytest.raises(SubscriptionBusyError):
        await bench.join(KEY_SHARED)


async def test_exclusive_and_types():
    bench = NonPersistentBench()
    first = await bench.join(EXCLUSIVE, permits=10)
    with pytest.raises(ConsumerBusyError):
        await bench.join(EXCLUSIVE)
    with pytest.raises(SubscriptionBusyError):
        await bench.join(SHARED)
    first.outbox.alive = False
    second = await bench.join(EXCLUSIVE, permits=10)
    bench.send(entry(b"1"))
    assert (payloads(first), payloads(second)) == ([], [b"1"])
    with pytest.raises(MetadataError):
        bench.subscription.unsubscribe(first)
    with pytest.raises(MetadataError, match="Consumer was not connected"):
        bench.subscription.unsubscribe(first, force=True)
    bench.subscription.unsubscribe(second)
    assert not bench.subscription.consumers


async def test_failover_tells_only_a_joiner_that_is_not_chosen():
    """Verified against Apache Pulsar 4.2.4."""
    bench = NonPersistentBench()
    a = await bench.join(FAILOVER, "a", permits=10)
    b = await bench.join(FAILOVER, "b", permits=10, priority=1)
    bench.send(entry(b"1"))
    bench.leave(a)
    bench.send(entry(b"2"))
    assert (payloads(a), payloads(b)) == ([b"1"], [b"2"])
    assert a.outbox.frames == []
    assert b.outbox.frames == [("ACTIVE_CONSUMER_CHANGE", False)]
    c = await bench.join(FAILOVER, "c", permits=10)
    bench.send(entry(b"3"))
    assert payloads(c) == [b"3"]
    assert c.outbox.frames == []


async def test_the_topic_hears_of_its_last_leaver():
    bench = NonPersistentBench()
    c = await bench.join(SHARED)
    await bench.subscription.seek(None)
    bench.redeliver(c)
    assert bench.ack(c, (0, 0), request_id=1) is None
    assert bench.empty == []
    bench.leave(c)
    assert bench.empty == [bench.subscription]
    await bench.subscription.close()


async def test_the_first_of_equal_failover_names_stays_active():
    """Verified against Apache Pulsar 4.2.4: without partitions, the consumer in place 0 is active, not one of a ring."""
    bench = NonPersistentBench()
    first = await bench.join(FAILOVER, "x", permits=10)
    second = await bench.join(FAILOVER, "x", permits=10)
    bench.send(entry(b"1"))
    assert (payloads(first), payloads(second)) == ([b"1"], [])
    assert second.outbox.frames == [("ACTIVE_CONSUMER_CHANGE", False)]


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
async def test_markers_reach_no_consumer_and_are_not_counted(kind):
    """Verified against Apache Pulsar 4.2.4."""
    bench = NonPersistentBench()
    c = await bench.join(kind, permits=2)
    bench.send(entry(b"1"), entry(b"x", marker_type=10), entry(b"y", marker_type=99), entry(b"2"), entry(b"3"))
    assert payloads(c) == [b"1", b"2"]
    assert c.permits.available == 0
    assert subscription_stats(bench.subscription).msg_drop_counter == 1


async def test_a_connection_that_ends_during_its_check_does_not_end_the_subscription_of_the_next_consumer():
    """The PING that checks the old connection is answered with a reset: its consumer leaves before the next joins."""
    bench = NonPersistentBench()
    old = await bench.join(EXCLUSIVE, permits=10)
    old.outbox.alive = False
    joining = asyncio.ensure_future(bench.join(EXCLUSIVE, permits=10))
    await asyncio.sleep(0)
    assert not joining.done()
    old.connection_lost()
    assert (bench.empty, bench.subscription.is_deserted) == ([], False)
    bench.leave(await joining)
    assert bench.empty == [bench.subscription]


async def test_a_run_that_no_consumer_can_take_is_dropped_without_a_choice_for_each_entry():
    """250 entries to 3,000 subscriptions without permits took 1.1 s."""
    bench = NonPersistentBench()
    for _ in range(3):
        await bench.join(SHARED)
    slab = as_slab(run_of(*[entry(b"x")] * 1000))
    with Calls(PYTHON, file="dispatchers") as calls:  # the pure helper calls for each entry
        bench.subscription.publish(slab)
    assert 0 < calls.count < 100
    assert subscription_stats(bench.subscription).msg_drop_counter == 1000


def told(consumers) -> int:
    return sum("CLOSE_CONSUMER" in consumer.outbox.names() for consumer in consumers)


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED, FAILOVER])
@pytest.mark.parametrize("command", ["unsubscribe", "close"])
async def test_the_notices_of_thousands_of_consumers_have_turns(command, sub_type):
    """An UNSUBSCRIBE by force closed 20,000 consumers in one turn of 0.13 s."""
    bench = NonPersistentBench()
    consumers = [await bench.join(sub_type) for _ in range(NOTICES_AT_ONCE + 2 * _NOTICES_IN_ONE_TURN)]
    rest = consumers
    if command == "unsubscribe":
        bench.subscription.unsubscribe(consumers[-1], force=True)
        rest = consumers[:-1]  # the client of the command gets an answer
    ended = asyncio.ensure_future(bench.subscription.close())
    await asyncio.sleep(0)
    assert (told(rest), len(bench.subscription.consumers)) == (NOTICES_AT_ONCE, 0)
    assert not any(consumer.outbox.consumers for consumer in rest), "later commands have an effect"
    bench.subscription.context.turns._round()
    assert told(rest) == NOTICES_AT_ONCE + _NOTICES_IN_ONE_TURN
    await asyncio.sleep(0)
    assert not ended.done()
    bench.clock.run()
    assert told(rest) == len(rest)
    await ended


async def test_messages_of_closed_consumers_count():
    bench = NonPersistentBench()
    consumers = [await bench.join(SHARED) for _ in range(NOTICES_AT_ONCE + 1)]
    consumers[-1].out.add(3, 300)
    bench.subscription.disconnect_all()
    assert (bench.subscription.gone.total_messages, bench.subscription.gone.total_bytes) == (3, 300)
