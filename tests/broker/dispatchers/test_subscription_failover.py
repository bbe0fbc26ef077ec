"""Failover subscriptions: the choice of the active consumer, its notices, hand-over."""

from __future__ import annotations

import pytest

from magnetar.broker.errors import (
    ConsumerBusyError,
    MetadataError,
)
from magnetar.broker.subscriptions.subscription_stats import subscription_stats
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.position import EARLIEST, Position
from tests.broker.dispatch_fakes import (
    FAILOVER,
    Bench,
    entry,
    got,
)


async def test_the_first_failover_consumer_gets_notice_and_messages_after_the_delay():
    bench = Bench()
    consumer = await bench.join(FAILOVER, permits=10)
    bench.publish(entry())
    assert consumer.outbox.frames == []
    bench.clock.advance(0.999)
    assert consumer.outbox.frames == []
    bench.clock.advance(0.001)
    assert consumer.outbox.names() == ["ACTIVE_CONSUMER_CHANGE", "MESSAGE"]


async def test_a_new_active_consumer_hears_of_the_end_again():
    bench = Bench()
    first = await bench.join(FAILOVER, "first", priority=1, permits=5)
    bench.clock.advance(1)
    bench.subscription.on_terminated()
    assert first.outbox.names() == ["ACTIVE_CONSUMER_CHANGE", "REACHED_END_OF_TOPIC"]
    second = await bench.join(FAILOVER, "second", priority=0, permits=5)
    bench.clock.advance(1)
    assert second.outbox.names() == ["ACTIVE_CONSUMER_CHANGE", "REACHED_END_OF_TOPIC"]
    assert first.outbox.names()[2:] == ["ACTIVE_CONSUMER_CHANGE", "REACHED_END_OF_TOPIC"]


async def test_the_stats_name_the_active_consumer_while_its_return_is_awaited():
    bench = Bench()
    await bench.join(FAILOVER, "first", priority=0)
    assert subscription_stats(bench.subscription).active_consumer_name == "first"
    await bench.subscription.seek(EARLIEST)
    assert subscription_stats(bench.subscription).active_consumer_name is None
    await bench.join(FAILOVER, "first", priority=0)
    await bench.join(FAILOVER, "second", priority=1)
    await bench.subscription.seek(EARLIEST)
    assert subscription_stats(bench.subscription).active_consumer_name == "first"
    bench.clock.advance(10)
    assert subscription_stats(bench.subscription).active_consumer_name == "second"


async def test_a_joiner_that_is_not_chosen_gets_its_notice_at_once_and_others_none():
    bench = Bench()
    first = await bench.join(FAILOVER, "first", priority=0)
    bench.clock.advance(1)
    second = await bench.join(FAILOVER, "second", priority=1)
    assert first.outbox.frames == [("ACTIVE_CONSUMER_CHANGE", True)]
    assert second.outbox.frames == [("ACTIVE_CONSUMER_CHANGE", False)]
    bench.leave(first)
    bench.clock.advance(1)
    assert second.outbox.frames[1:] == [("ACTIVE_CONSUMER_CHANGE", True)]


async def test_a_better_joiner_takes_over_unacknowledged_messages():
    bench = Bench(topic=TopicName.parse("persistent://public/default/t-partition-0"))
    old = await bench.join(FAILOVER, "b", permits=10)
    bench.clock.advance(1)
    positions = bench.publish(*[entry() for _ in range(3)])
    assert got(old) == [0, 1, 2]
    new = await bench.join(FAILOVER, "a", permits=10)
    bench.ack(old, positions[0])
    assert got(new) == []
    bench.publish(entry())
    assert got(old) == got(new) == []
    bench.clock.advance(1)
    assert got(new) == [1, 2, 3]
    assert old.outbox.frames == [("ACTIVE_CONSUMER_CHANGE", True), ("ACTIVE_CONSUMER_CHANGE", False)]


async def test_seek_of_failover_closes_only_the_active_one_which_is_expected_back():
    bench = Bench(topic=TopicName.parse("persistent://public/default/t-partition-0"))
    active = await bench.join(FAILOVER, "a", permits=10)
    standby = await bench.join(FAILOVER, "b", permits=10)
    bench.clock.advance(1)
    bench.publish(entry(), entry())
    got(active)
    standby.outbox.frames.clear()
    await bench.subscription.seek(Position(7, 0))
    bench.clock.advance(2)
    assert active.outbox.names()[-1] == "CLOSE_CONSUMER"
    assert standby.outbox.frames == []
    back = await bench.join(FAILOVER, "a", permits=10)
    bench.clock.advance(1)
    assert got(back) == [0, 1]
    assert standby.outbox.frames == [("ACTIVE_CONSUMER_CHANGE", False)]


async def test_a_standby_takes_over_when_the_seeking_consumer_stays_away():
    bench = Bench(topic=TopicName.parse("persistent://public/default/t-partition-0"))
    await bench.join(FAILOVER, "a", permits=10)
    standby = await bench.join(FAILOVER, "b", permits=10)
    bench.clock.advance(1)
    bench.publish(entry())
    await bench.subscription.seek(Position(7, 0))
    bench.clock.advance(6.1)
    assert got(standby) == [0]


async def test_failover_takes_so_many_consumers_as_allowed():
    bench = Bench(max_consumers=1)
    await bench.join(FAILOVER)
    with pytest.raises(ConsumerBusyError):
        await bench.join(FAILOVER)


async def test_unsubscribe_of_a_lone_consumer():
    bench = Bench()
    consumer = await bench.join(FAILOVER)
    bench.subscription.unsubscribe(consumer)
    assert not bench.subscription.consumers
    with pytest.raises(MetadataError):
        bench.subscription.unsubscribe(consumer)
    with pytest.raises(MetadataError, match="Consumer was not connected"):
        bench.subscription.unsubscribe(consumer, force=True)
