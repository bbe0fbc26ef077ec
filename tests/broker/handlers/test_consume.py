"""SUBSCRIBE of a role that loses its right meanwhile; properties of SUBSCRIBE and ACK that come twice."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.errors import AuthorizationError, ConnectionFatalError, ServiceNotReadyError
from magnetar.broker.handlers import consume
from magnetar.broker.handlers.consume import (
    FEW_WORDS,
    on_ack,
    on_consumer_stats,
    on_subscribe,
    on_unsubscribe,
    subscribe_request,
)
from magnetar.broker.handlers.request_turns import RequestTurns
from magnetar.broker.limits import MAX_ACK_SET_WORDS
from magnetar.broker.meters.rates import RateMeter
from magnetar.broker.topics.news import News
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.texts import MOST_PARTS
from tests.broker.dispatch_fakes import KEY_SHARED, Bench, KeySharedPolicy
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.twins.fake_connection import FakeConnection


class Client(FakeConnection):
    """A client of consumers, whose rights are gone once its topic is loaded."""

    def __init__(self, topic) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.foreign: set[str] = set()
        self.services = SimpleNamespace(
            topics=self,
            news=News(None, None, None, None),
            settings=topic.context.settings,
            namespaces=SimpleNamespace(is_foreign=self.foreign.__contains__),
            make_consumer=Consumer.from_command,
        )
        self._topic = topic

    async def get(self, _name, *, create):
        assert create
        self.allowed = False
        return self._topic

    def may(self, *_):
        return self.allowed

    def authorize(self, _command_type: int, _name, _subscription: str) -> None:
        if not self.allowed:
            raise AuthorizationError("no right")


async def test_a_namespace_of_other_clusters_has_no_consumers():
    client = Client(await TopicBench().open())
    client.foreign.add(NAME.namespace)
    command = pb.CommandSubscribe(topic=str(NAME), subscription="s", subType=0, consumer_id=1, request_id=1)
    with pytest.raises(ServiceNotReadyError, match="other clusters serve namespace"):
        await on_subscribe(client, command)
    assert client.consumers == {}


async def test_a_role_that_lost_its_right_while_its_topic_was_loaded_gets_no_consumer():
    bench = TopicBench()
    client = Client(await bench.open())
    command = pb.CommandSubscribe(
        topic=str(NAME), subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2
    )
    with pytest.raises(AuthorizationError):
        await on_subscribe(client, command)
    assert client.consumers == {}
    assert not bench.topic.subscriptions.consumer_count
    await bench.close()


async def test_an_ack_with_a_property_twice_ends_the_connection_and_acknowledges_nothing():
    bench = TopicBench()
    await bench.open()
    subscription = await bench.subscribe()
    (first,) = await bench.publish(b"a")
    consumer = SimpleNamespace(subscription=subscription, sub_type=pb.CommandSubscribe.Shared)
    client = SimpleNamespace(consumers={1: consumer})
    ident = pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id)
    twice = [pb.KeyLongValue(key="a", value=value) for value in (1, 2)]
    command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[ident], properties=twice)
    with pytest.raises(ConnectionFatalError):
        on_ack(client, command)
    assert subscription.cursor.backlog_entries == 1
    await bench.close()


class Counted(list):
    """A list of properties that notes whether any of them was looked at."""

    looked_at = False

    def __iter__(self):
        self.looked_at = True
        return super().__iter__()


def test_an_ack_with_endless_properties_ends_the_connection_before_they_are_read():
    properties = Counted([pb.KeyLongValue(key="", value=0)] * (MOST_PARTS + 1))
    command = SimpleNamespace(consumer_id=1, properties=properties)
    with pytest.raises(ConnectionFatalError, match="16385 properties"):
        on_ack(SimpleNamespace(consumers={1: SimpleNamespace()}), command)
    assert not properties.looked_at


def test_an_ack_is_cut_into_parts_by_its_ids_and_by_the_words_of_their_ack_sets(monkeypatch):
    monkeypatch.setattr(consume, "ACKS_IN_ONE_TURN", 3)
    monkeypatch.setattr(consume, "_WORDS_IN_ONE_TURN", 10)
    sizes = [0, 0, 0, 0, 6, 5, 10, MAX_ACK_SET_WORDS + 1, 1]
    ids = [pb.MessageIdData(ledgerId=1, entryId=k, ack_set=[1] * size) for k, size in enumerate(sizes)]
    parts = [([each.entryId for each in ids[start:end]], words) for start, end, words in consume._parts_of_acks(ids)]
    assert parts == [([0, 1, 2], 0), ([3, 4], 6), ([5], 5), ([6, 7], 10), ([8], 1)]


async def test_large_ack_sets_wait_for_their_turn_and_hold_the_connection():
    bench = TopicBench()
    await bench.open()
    subscription = await bench.subscribe()
    (first,) = await bench.publish(b"a")
    client = FakeConnection()
    client.loop, turns = asyncio.get_running_loop(), RequestTurns()
    client.services = SimpleNamespace(request_turns=turns)
    client.consumers[1] = SimpleNamespace(
        subscription=subscription, sub_type=pb.CommandSubscribe.Exclusive, last_acked_ms=0, acks=RateMeter()
    )
    whole = pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id)
    part = pb.MessageIdData(ledgerId=first.ledger_id, entryId=first.entry_id + 1, ack_set=[1] * (FEW_WORDS + 1))
    command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[whole, part])
    waiting = on_ack(client, command)
    assert client.held
    assert subscription.cursor.backlog_entries == 1
    await waiting
    assert not client.held
    assert subscription.cursor.backlog_entries == 0
    await bench.close()


def test_the_first_of_two_properties_of_a_subscription_counts():
    twice = [pb.KeyValue(key="a", value=value) for value in ("1", "2")]
    command = pb.CommandSubscribe(subscription="s", subscription_properties=[*twice, pb.KeyValue(key="b", value="3")])
    assert subscribe_request(command).properties == {"a": "1", "b": "3"}


async def test_an_unsubscribe_that_an_unload_overtakes_fails():
    bench = TopicBench()
    topic = await bench.open()
    client = FakeConnection()
    client.loop = asyncio.get_running_loop()
    client.services = SimpleNamespace(topics=SimpleNamespace(loaded={str(NAME): topic}))
    subscribe = pb.CommandSubscribe(topic=str(NAME), subscription="s", subType=0, consumer_id=1, request_id=1)
    consumer = Consumer.from_command(subscribe, client, NAME, {})
    await topic.subscriptions.subscribe(consumer, subscribe_request(subscribe))
    client.consumers[1] = consumer
    deleting = on_unsubscribe(client, pb.CommandUnsubscribe(consumer_id=1, request_id=2))
    await topic.close()
    with pytest.raises(ServiceNotReadyError):
        await deleting
    assert "s" in (await bench.open()).subscriptions.by_name
    await bench.close()


async def subscribed(bench, kind=pb.CommandSubscribe.Shared):
    client = Client(await bench.open())
    client.authorize = lambda *_: None
    client.services.topics = SimpleNamespace(get=client.get, loaded={str(NAME): bench.topic})
    client.services.request_turns = RequestTurns()
    await on_subscribe(
        client,
        pb.CommandSubscribe(topic=str(NAME), subscription="s", subType=kind, consumer_id=1, request_id=1),
    )
    client.frames.clear()
    return client


async def test_the_answer_to_a_close_follows_those_to_acks():
    bench = TopicBench()
    client = await subscribed(bench)
    consumer = client.consumers[1]
    durable = [client.loop.create_future() for _ in range(2)]
    consumer.subscription.on_ack = lambda *_: durable[0 if not consumer.unanswered_acks else 1]
    acks = [on_ack(client, pb.CommandAck(consumer_id=1, ack_type=0, request_id=number)) for number in (2, 3)]
    consume.on_close_consumer(client, pb.CommandCloseConsumer(consumer_id=1, request_id=4))
    assert client.consumers == {}
    assert client.frames == []
    durable[0].set_result(None)
    await acks[0]
    durable[1].set_exception(ServiceNotReadyError("the disk is full"))
    with pytest.raises(ServiceNotReadyError):
        await acks[1]
    assert [name for name, _ in client.frames] == ["ACK_RESPONSE"]
    await asyncio.sleep(0)
    assert [name for name, _ in client.frames] == ["ACK_RESPONSE", "SUCCESS"]
    await bench.close()


async def test_the_answer_to_a_close_follows_that_to_an_ack_of_many_messages():
    bench = TopicBench()
    client = await subscribed(bench)
    client.hold_reading = client.release_reading = lambda _reason: None
    consumer = client.consumers[1]
    durable = client.loop.create_future()
    consumer.subscription.on_ack = lambda *_: durable
    command = pb.CommandAck(consumer_id=1, ack_type=0, request_id=2)
    for entry_id in range(consume.ACKS_IN_ONE_TURN + 1):
        command.message_id.add(ledgerId=1, entryId=entry_id)
    ack = asyncio.ensure_future(on_ack(client, command))
    for _ in range(5):  # the slices end, and the connection reads further commands
        await asyncio.sleep(0)
    consume.on_close_consumer(client, pb.CommandCloseConsumer(consumer_id=1, request_id=3))
    assert client.consumers == {}
    assert client.frames == []
    durable.set_result(None)
    await ack
    assert [name for name, _ in client.frames] == ["ACK_RESPONSE", "SUCCESS"]
    await bench.close()


async def test_the_answer_to_a_close_behind_a_seek_follows_those_to_acks():
    bench = TopicBench()
    client = await subscribed(bench)
    consumer = client.consumers[1]
    client.sought_consumers = {1: consumer}
    durable = client.loop.create_future()
    consumer.subscription.on_ack = lambda *_: durable
    ack = on_ack(client, pb.CommandAck(consumer_id=1, ack_type=0, request_id=2))
    del client.consumers[1]  # as the SEEK does
    consume.on_close_consumer(client, pb.CommandCloseConsumer(consumer_id=1, request_id=3))
    assert client.frames == []
    durable.set_result(None)
    await ack
    assert [name for name, _ in client.frames] == ["ACK_RESPONSE", "SUCCESS"]
    await bench.close()


def fail(*_args):
    raise AssertionError("a look at all hashes of a consumer")


async def test_the_figures_of_a_consumer_for_its_client_take_no_look_at_its_hashes(monkeypatch):
    """Hash ranges and draining hashes are no part of the answer; 256 commands of a read looked at them for seconds."""
    bench = Bench()
    consumer = await bench.join(KEY_SHARED, "me", key_shared=KeySharedPolicy(sticky=True, ranges=((0, 9), (20, 29))))
    monkeypatch.setattr(bench.subscription.dispatcher, "key_ranges_of", fail)
    monkeypatch.setattr(bench.subscription.dispatcher.draining, "of", fail)
    client = FakeConnection()
    client.consumers[consumer.consumer_id] = consumer
    on_consumer_stats(client, pb.CommandConsumerStats(request_id=1, consumer_id=consumer.consumer_id))
    assert client.names() == ["CONSUMER_STATS_RESPONSE"]
