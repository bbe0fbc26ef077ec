"""A change reaches tens of thousands of clients and subscriptions of a topic in turns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.consumers.consumer import Consumer, ConsumerSpec
from magnetar.broker.dispatchers.turns import ROUND_BYTES, DispatchTurns
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.slices import ITEMS_IN_ONE_TURN
from magnetar.broker.topics import wide_topics
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.broker.topics.wide_topics import AT_ONCE, in_turns_of_all, is_wide
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.broker.dispatch_fakes import SHARED
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.storage.managed_for_tests import settle
from tests.twins.fake_connection import FakeConnection

MANY = 3 * AT_ONCE + 5


class Rounds:
    """Turns of read loops, in rounds by hand."""

    def __init__(self) -> None:
        self.due: list = []
        self.turns = DispatchTurns(lambda _delay, call: self.due.append(call))

    async def next(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()
        await settle(3)


class Bench(TopicBench):
    """A topic with many subscriptions, each with a consumer of a connection of its own."""

    async def open_wide(self, count: int = MANY) -> list[FakeConnection]:
        await self.open()
        self.rounds = Rounds()
        self.context.turns = self.rounds.turns
        connections = []
        for number in range(count):
            connections.append(connection := FakeConnection())
            consumer = Consumer(connection, ConsumerSpec(number, NAME, f"s{number}", SHARED))
            await self.topic.subscriptions.subscribe(consumer, SubscribeRequest(f"s{number}"))
            connection.consumers[number] = consumer
        return connections

    def limits(self) -> list[int]:
        by_name = self.topic.subscriptions.by_name
        return [each.context.settings.max_unacked_per_consumer for each in by_name.values()]

    async def run(self, change) -> object:
        """The result of a change that waits for its turns."""
        changing = asyncio.ensure_future(change)
        await settle(3)
        while self.rounds.due:
            await self.rounds.next()
        return await changing


def told(connections, name: str) -> int:
    return sum(name in [frame for frame, _ in connection.frames] for connection in connections)


async def test_a_round_has_a_bounded_part_of_the_changes_of_all_topics():
    rounds, done = Rounds(), []

    def work(item: int) -> int:
        done.append(item)
        return 1

    changes = [asyncio.ensure_future(in_turns_of_all(rounds.turns, range(10 * AT_ONCE), work)) for _ in range(20)]
    await settle(3)
    assert len(done) == 20 * AT_ONCE
    while rounds.due:
        before = len(done)
        await rounds.next()
        assert len(done) - before <= ROUND_BYTES // 1024
    await asyncio.gather(*changes)
    assert len(done) == 20 * 10 * AT_ONCE


async def test_work_counts_by_its_steps():
    rounds, done = Rounds(), []

    def work(item: int) -> int:
        done.append(item)
        return AT_ONCE // 2

    change = asyncio.ensure_future(in_turns_of_all(rounds.turns, range(6), work))
    await settle(3)
    assert done == [0, 1]
    while rounds.due:
        await rounds.next()
    await change
    assert done == list(range(6))


async def test_a_failure_for_an_item_costs_the_others_nothing():
    done = []

    def work(item: int) -> int:
        done.append(item)
        return 1 // (item - 3)

    await in_turns_of_all(Rounds().turns, range(6), work)
    assert done == list(range(6))


def test_clients_and_subscriptions_make_a_topic_wide():
    few, many = SimpleNamespace(consumers=[1]), SimpleNamespace(consumers=[1] * AT_ONCE)
    assert not is_wide(AT_ONCE, {"a": few})
    assert is_wide(AT_ONCE + 1, {})
    assert not is_wide(0, {"a": many})
    assert is_wide(0, {"a": many, "b": few})
    assert is_wide(0, dict.fromkeys(map(str, range(AT_ONCE + 1)), SimpleNamespace(consumers=())))


async def test_a_policy_reaches_the_subscriptions_in_turns():
    """A change of a policy of a topic with 20,000 subscriptions, each with a consumer, took a turn of 0.14 s."""
    bench = Bench()
    await bench.open_wide()
    changing = asyncio.ensure_future(bench.set_topic(max_unacked_messages_per_consumer=7))
    await settle(3)
    assert (bench.limits().count(7), changing.done()) == (AT_ONCE, False)
    await bench.run(changing)
    assert bench.limits() == [7] * MANY
    await bench.run(bench.close())


async def test_the_latest_policy_counts_while_subscriptions_wait_for_an_earlier_one():
    bench = Bench()
    await bench.open_wide()
    first = asyncio.ensure_future(bench.set_topic(max_unacked_messages_per_consumer=7))
    await settle(3)
    await bench.run(bench.set_topic(max_unacked_messages_per_consumer=8))
    await first
    assert bench.limits() == [8] * MANY
    await bench.run(bench.close())


async def test_a_subscription_that_was_deleted_meanwhile_keeps_no_rate():
    bench = Bench()
    await bench.open_wide()
    rate = DispatchRate(dispatch_throttling_rate_in_msg=5, rate_period_in_second=1)
    changing = asyncio.ensure_future(bench.set_topic(subscription_dispatch_rate=rate))
    await settle(3)
    await bench.topic.subscriptions.delete(last := f"s{MANY - 1}")
    await bench.run(changing)
    assert last not in bench.topic.subscriptions._rates._own
    assert len(bench.topic.subscriptions._rates._own) == MANY - 1
    await bench.run(bench.close())


async def test_a_topic_that_closed_meanwhile_begins_no_deduplication():
    bench = Bench()
    await bench.open_wide()
    changing = asyncio.ensure_future(bench.set_topic(deduplication_enabled=True))
    await settle(3)
    await bench.topic.close()
    await bench.run(changing)
    assert not bench.topic.deduplication.is_wanted
    await bench.tasks.close()


async def test_the_end_of_a_topic_reaches_the_subscriptions_in_turns():
    bench = Bench()
    connections = await bench.open_wide()
    ending = asyncio.ensure_future(bench.topic.terminate())
    await settle(10)
    assert (told(connections, "REACHED_END_OF_TOPIC"), ending.done()) == (AT_ONCE, False)
    await bench.run(ending)
    assert told(connections, "REACHED_END_OF_TOPIC") == MANY
    await bench.run(bench.close())


async def test_consumers_without_a_right_are_closed_in_turns():
    """A revocation for 20,000 consumers and as many producers took a turn of 0.48 s, any other grant 0.16 s."""
    bench = Bench()
    connections = await bench.open_wide()
    for connection in connections[1:]:
        connection.may = lambda *_: False
    closing = asyncio.ensure_future(bench.topic.recheck_rights_in_turns())
    await settle(3)
    closed = told(connections, "CLOSE_CONSUMER")
    assert 0 < closed <= AT_ONCE // wide_topics.CLOSE_STEPS + 1
    gone = bench.topic.subscriptions.by_name[f"s{MANY - 1}"]
    gone.remove_consumer(gone.consumers[0])
    await bench.run(closing)
    assert told(connections, "CLOSE_CONSUMER") == MANY - 2, "all but the allowed client, and that which has left"
    assert told(connections[:1] + connections[-1:], "CLOSE_CONSUMER") == 0
    await bench.run(bench.close())


class _Producer:
    def __init__(self, *, allowed: bool) -> None:
        self.connection = SimpleNamespace(may=lambda command, _: allowed or command != pb.BaseCommand.PRODUCER)
        self.closed = False

    def close_from_broker(self) -> None:
        assert not self.closed
        self.closed = True


async def test_producers_without_a_right_are_closed_in_turns():
    bench = Bench()
    await bench.open_wide(0)
    producers = [_Producer(allowed=number == 1) for number in range(MANY)]
    bench.topic.producers.by_name.update({str(number): each for number, each in enumerate(producers)})
    closing = asyncio.ensure_future(bench.topic.recheck_rights_in_turns())
    await settle(3)
    assert 0 < sum(each.closed for each in producers) <= AT_ONCE // wide_topics.CLOSE_STEPS + 1
    producers[-1].closed = True  # by its client
    await bench.run(closing)
    assert [number for number, each in enumerate(producers) if not each.closed] == [1]
    bench.topic.producers.by_name.clear()
    await bench.run(bench.close())


@pytest.mark.parametrize("command", ["terminate", "close", "delete"])
async def test_a_topic_that_ends_closes_its_producers_in_turns(command):
    """The end of a topic with 12,000 producers took a turn of 76 to 93 ms."""
    bench = Bench()
    await bench.open_wide(0)
    producers = [_Producer(allowed=True) for _ in range(MANY)]
    bench.topic.producers.by_name.update({str(number): each for number, each in enumerate(producers)})
    ending = asyncio.ensure_future(getattr(bench.topic, command)())
    await settle(20)
    assert (sum(each.closed for each in producers), ending.done()) == (AT_ONCE // wide_topics.CLOSE_STEPS, False)
    await bench.run(ending)
    assert all(each.closed for each in producers)
    bench.topic.producers.by_name.clear()
    await bench.run(bench.close())


async def test_a_non_persistent_topic_closes_its_subscriptions_in_turns():
    """The unload of a non-persistent topic with 8,000 subscriptions took a turn of 90 ms."""
    bench = Bench()
    await bench.open_wide(0)
    topic = NonPersistentTopic(TopicName.parse("non-persistent://public/default/t"), bench.context)
    connections = [FakeConnection() for _ in range(MANY)]
    for number, connection in enumerate(connections):
        consumer = Consumer(connection, ConsumerSpec(number, topic.name, f"s{number}", SHARED))
        await topic.subscriptions.subscribe(consumer, SubscribeRequest(f"s{number}"))
    closing = asyncio.ensure_future(topic.close())
    await asyncio.sleep(0)
    assert 0 < told(connections, "CLOSE_CONSUMER") <= ITEMS_IN_ONE_TURN
    await bench.run(closing)
    assert told(connections, "CLOSE_CONSUMER") == MANY
    await bench.close()


def test_only_a_lost_right_takes_the_order_of_the_subscriptions(monkeypatch):
    monkeypatch.setattr(wide_topics, "java_order", None)
    outbox = SimpleNamespace(may=lambda *_: True)
    by_name = {"s": SimpleNamespace(consumers=[SimpleNamespace(outbox=outbox)])}
    wide_topics.close_without_right(by_name, NAME)
    outbox.may = lambda *_: False
    with pytest.raises(TypeError, match="not callable"):
        wide_topics.close_without_right(by_name, NAME)
