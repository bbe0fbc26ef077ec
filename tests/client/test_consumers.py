"""A consumer of the tools: permits, acknowledgements, and the end of a connection."""

import asyncio
import contextlib

import pytest

from magnetar.client.address import Credentials
from magnetar.client.consumers import PERMITS, TopicConsumer, Wanted
from magnetar.client.errors import InputError, RetryError
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.client.pushing_topic import PushingTopic, batch
from tests.importing.scripted_broker import KIND, answer, error

TOPIC = "persistent://public/default/t"


@contextlib.asynccontextmanager
async def consuming(topic, credentials=None, name=TOPIC, patience_s=60.0, **script):
    wanted = Wanted(name, "s", kind=pb.CommandSubscribe.Shared, is_pattern=name != TOPIC)
    async with (
        topic.broker(**script) as broker,
        TopicConsumer(broker.address, credentials or Credentials(), wanted, patience_s) as consumer,
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


async def test_a_batch_that_comes_again_waits_for_each_message_that_the_broker_delivers_again():
    topic = PushingTopic(batch(4))
    async with consuming(topic) as (consumer, broker):
        for message in (await received(consumer, 4))[:2]:
            await consumer.acknowledge(message)
        topic.entries, topic.next = [(*batch(4), 0)], 0  # another consumer acknowledged message 0 meanwhile
        broker.disconnect()
        _, again, last = await received(consumer, 3)
        await consumer.acknowledge(again)
        assert topic.acknowledged == []
        await consumer.acknowledge(last)
        assert topic.acknowledged == [0]


async def test_a_token_that_cannot_be_read_any_more_ends_the_consumer(tmp_path):
    token = tmp_path / "token"
    token.write_text("t")
    async with consuming(PushingTopic(), Credentials(token=f"file:{token}")) as (consumer, broker):
        token.unlink()
        broker.disconnect()
        with pytest.raises(InputError, match="token"):
            await received(consumer, 1)


async def test_a_consumer_that_is_closed_with_its_answer_subscribes_again():
    topic = PushingTopic(batch(1))

    def on_subscribe(broker, command):
        closing = pb.CommandCloseConsumer(consumer_id=1, request_id=0)
        more = answer(KIND.CLOSE_CONSUMER, close_consumer=closing) if not topic.subscribed else b""
        return topic.on_subscribe(broker, command) + more

    async with consuming(topic, SUBSCRIBE=on_subscribe) as (consumer, broker):
        await received(consumer, 1)
        assert (topic.subscribed, broker.connections) == (2, 1)


async def test_a_consumer_that_is_closed_with_every_answer_pauses_and_ends():
    topic = PushingTopic()

    def on_subscribe(broker, command):
        closing = pb.CommandCloseConsumer(consumer_id=1, request_id=0)
        return topic.on_subscribe(broker, command) + answer(KIND.CLOSE_CONSUMER, close_consumer=closing)

    async with consuming(topic, patience_s=0.25, SUBSCRIBE=on_subscribe) as (consumer, _):
        with pytest.raises(RetryError, match="closed the consumer"):
            await received(consumer, 1)
    assert topic.subscribed <= 4


async def test_a_new_topic_of_a_pattern_whose_broker_is_busy_is_tried_again(monkeypatch):
    monkeypatch.setattr("magnetar.client.consumers.DISCOVERY_S", 0.01)
    topic, names = PushingTopic(batch(1)), []

    def topics(_broker, command):
        response = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=command.getTopicsOfNamespace.request_id, topics=names
        )
        return answer(KIND.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=response)

    def on_subscribe(broker, command):
        accepted = topic.on_subscribe(broker, command)
        return accepted if topic.subscribed > 1 else error(command.subscribe.request_id, pb.ServiceNotReady)

    script = {"GET_TOPICS_OF_NAMESPACE": topics, "SUBSCRIBE": on_subscribe}
    async with consuming(topic, name="public/default/t.*", **script) as (consumer, _):
        names.append(TOPIC)
        await received(consumer, 1)
        assert topic.subscribed == 2
