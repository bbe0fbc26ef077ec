"""The cost of an idle topic for the garbage collector, which looks at every object of every loaded topic."""

import asyncio
import gc
import weakref

import pytest

from magnetar.broker.consumers.consumer import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Consumer, ConsumerSpec
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol.topic_name import TopicName
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.cycles import cycles
from tests.model.simulated_broker import Simulation
from tests.twins.fake_connection import FakeConnection

TOPICS = 20
MOST_OBJECTS = 93
"""The allowed objects of a topic without clients and messages. Only a smaller number may replace the figure."""


def load(world, numbers):
    async def loaded():
        for number in numbers:
            await world.broker.topics.get(TopicName.parse(f"persistent://public/default/t{number}"), create=True)

    world.run(loaded())


@pytest.fixture
def world():
    made = Simulation()
    made.start()
    yield made
    made.close()


def test_the_objects_of_an_idle_topic_have_a_bound(world):
    """With 137 objects a topic, a full collection took 77 to 213 ms of processor time at 20,000 topics."""
    load(world, range(5))  # creates the objects that all topics share
    gc.collect()
    before = len(gc.get_objects())
    load(world, range(5, 5 + TOPICS))
    gc.collect()
    found = len(gc.get_objects()) - before
    assert 50 * TOPICS < found <= MOST_OBJECTS * TOPICS, f"{found / TOPICS:.1f} objects a topic"


def test_a_topic_that_is_unloaded_does_not_wait_for_the_garbage_collector(world):
    """With 6,000 topics the collections that found closed topics took a second."""

    async def unload(numbers):
        for number in numbers:
            await world.broker.topics.unload(TopicName.parse(f"persistent://public/default/t{number}"))

    load(world, range(3))
    world.run(unload(range(3)))
    gc.collect()
    gc.disable()
    try:
        load(world, range(3, 6))
        loaded = [weakref.ref(topic) for topic in world.broker.topics.loaded.values()]
        world.run(unload(range(3, 6)))
        assert loaded
        assert not cycles()
        assert not [topic for topic in loaded if topic() is not None]
    finally:
        gc.enable()


@pytest.mark.parametrize("sub_type", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
async def test_nor_does_a_subscription_that_had_consumers(sub_type):
    bench = TopicBench(max_unacked_messages_per_broker=100)
    gc.collect()
    gc.disable()
    try:
        await bench.open()
        await bench.publish(b"x")
        await subscribe_and_receive(bench, sub_type)
        parts = bench.topic, bench.topic.ledger, bench.topic.subscriptions.by_name["s"]
        weak = [weakref.ref(part) for part in parts]
        del parts
        await bench.topic.close()
        del bench.topic
        bench.ground.scheduler.timers = [each for each in bench.ground.scheduler.timers if not each.cancelled]
        assert not cycles()
        assert [part() for part in weak] == [None] * 3
    finally:
        gc.enable()


async def subscribe_and_receive(bench, sub_type):
    outbox = FakeConnection()
    consumer = Consumer(outbox, ConsumerSpec(1, NAME, "s", sub_type))
    await bench.topic.subscriptions.subscribe(consumer, SubscribeRequest("s", from_earliest=True))
    consumer.subscription.on_flow(consumer, 10)
    for _ in range(3):
        bench.pass_time(2)
        await asyncio.sleep(0)
    assert "MESSAGE" in outbox.names()
