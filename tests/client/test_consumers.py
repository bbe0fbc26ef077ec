"""A consumer of the tools: permits and acknowledgements."""

import asyncio
import contextlib

import pytest

from magnetar.client.address import Credentials
from magnetar.client.consumers import PERMITS, TopicConsumer, Wanted
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.client.pushing_topic import PushingTopic, batch

TOPIC = "persistent://public/default/t"


@contextlib.asynccontextmanager
async def consuming(topic):
    wanted = Wanted(TOPIC, "s", kind=pb.CommandSubscribe.Shared)
    async with (
        topic.broker() as broker,
        TopicConsumer(broker.address, Credentials(), wanted) as consumer,
    ):
        yield consumer, broker


async def received(consumer, count):
    async with asyncio.timeout(5):
        return [await consumer.receive() for _ in range(count)]


@pytest.mark.parametrize(
    ("entry", "messages"),
    [(batch(100, encrypted=True), 1), (batch(100, compacted_out=range(99)), 1)],
    ids=["encrypted", "compacted"],
)
async def test_permits_of_messages_that_an_entry_lacks_return(entry, messages):
    count = 4 * PERMITS // 100
    async with consuming(PushingTopic(*[entry] * count)) as (consumer, _):
        assert len(await received(consumer, count * messages)) == count * messages


async def test_acknowledged_messages_of_a_batch_use_no_permits():
    topic = PushingTopic(*[(*batch(50), *range(49))] * 40)
    async with consuming(topic) as (consumer, _):
        await received(consumer, 40)
        assert topic.permits <= PERMITS


async def test_the_last_delivered_message_of_a_batch_acknowledges_the_entry():
    topic = PushingTopic((*batch(4), 0, 2), batch(3, compacted_out=[1]))
    async with consuming(topic) as (consumer, _):
        first, second, third, fourth = await received(consumer, 4)
        assert [m.batch_index for m in (first, second, third, fourth)] == [1, 3, 0, 2]
        await consumer.acknowledge(first)
        assert topic.acknowledged == []
        await consumer.acknowledge(second)
        await consumer.acknowledge(third)
        await consumer.acknowledge(fourth)
        assert topic.acknowledged == [0, 1]
