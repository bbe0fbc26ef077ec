"""Subscriptions of a topic: what is done to them from outside."""

from tests.broker.topic_for_tests import TopicBench

IN_MEMORY = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"


async def test_who_skips_everything_awaits_nothing_delayed():
    bench = TopicBench(delayed_delivery_tracker_factory_class_name=IN_MEMORY)
    await bench.open()
    subscription = await bench.subscribe()
    positions = await bench.publish(b"a", b"b", b"c")
    delay = subscription.context.delay
    for position in positions:
        assert delay.offer(bench.context.now_ms() + 3_600_000, position)
    await bench.topic.subscriptions.skip(subscription, 1)
    assert delay.pending_count == 3, "its reads will not meet the other two again"
    await bench.topic.subscriptions.skip(subscription, 2)
    assert delay.pending_count == 0
