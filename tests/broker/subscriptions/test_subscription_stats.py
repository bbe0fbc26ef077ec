"""Figures of subscriptions with many consumers: gathered and written in slices, and right while consumers leave."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from magnetar.broker.admin import stats_json
from magnetar.broker.admin_backend import topic_figures
from magnetar.broker.admin_backend.topic_figures import gathered_in_slices, topic_stats
from magnetar.broker.dispatchers import hash_ring
from magnetar.broker.slices import WeighedTurn, give_way
from magnetar.broker.subscriptions import subscription_stats as module
from magnetar.broker.subscriptions.subscription_stats import (
    CONSUMERS_IN_ONE_TURN,
    SUBSCRIPTIONS_IN_ONE_TURN,
    stats_in_slices,
    subscription_stats,
)
from magnetar.protocol.topic_name import TopicName
from tests.broker.admin.test_long_lists import Turns
from tests.broker.dispatch_fakes import KEY_SHARED, Bench, KeySharedPolicy
from tests.broker.topic_for_tests import TopicBench

MANY = CONSUMERS_IN_ONE_TURN * 2 + 10


@pytest.fixture
async def turns():
    counted = Turns()
    ticks = asyncio.create_task(counted.run())
    yield counted
    ticks.cancel()


async def joined(count: int) -> Bench:
    bench = Bench()
    for number in range(count):
        await bench.join(KEY_SHARED, f"c{number}")
    return bench


def counts(turns: Turns, function):
    def noted(*given):
        turns.note()
        return function(*given)

    return noted


async def test_figures_of_many_consumers_are_gathered_in_slices(turns, monkeypatch):
    bench = await joined(MANY)
    monkeypatch.setattr(module, "consumer_stats", counts(turns, module.consumer_stats))
    found = await stats_in_slices([bench.subscription])
    assert turns.total == MANY
    assert turns.most <= CONSUMERS_IN_ONE_TURN
    assert found == {bench.subscription.name: subscription_stats(bench.subscription)}


async def test_figures_of_many_subscriptions_are_gathered_in_slices(turns, monkeypatch):
    benches = [await joined(1) for _ in range(3 * SUBSCRIPTIONS_IN_ONE_TURN + 5)]
    for number, bench in enumerate(benches):
        bench.subscription.name = f"s{number}"
    subscriptions = [bench.subscription for bench in benches]
    monkeypatch.setattr(module, "consumer_stats", counts(turns, module.consumer_stats))
    found = await stats_in_slices(subscriptions)
    assert turns.total == len(benches)
    assert turns.most <= SUBSCRIPTIONS_IN_ONE_TURN
    assert found == {each.name: subscription_stats(each) for each in subscriptions}


async def test_figures_of_some_consumers_of_many_subscriptions_are_gathered_in_slices(turns, monkeypatch):
    """64 subscriptions with up to 128 consumers each were gathered in one turn."""
    benches = [await joined(20) for _ in range(20)]
    for number, bench in enumerate(benches):
        bench.subscription.name = f"s{number}"
    subscriptions = [bench.subscription for bench in benches]
    monkeypatch.setattr(module, "consumer_stats", counts(turns, module.consumer_stats))
    found = await stats_in_slices(subscriptions)
    assert turns.total == 400
    assert turns.most <= CONSUMERS_IN_ONE_TURN
    assert found == {each.name: subscription_stats(each) for each in subscriptions}


async def with_many_hashes(number: int) -> Bench:
    bench = await joined(2)
    bench.subscription.name = f"s{number}"
    first = bench.subscription.consumers[0]
    for key_hash in range(1, 20_000):
        bench.subscription.dispatcher.draining.drain(key_hash, first, 1)
    return bench


async def test_figures_of_many_hashes_are_gathered_and_written_in_slices(turns, monkeypatch):
    """Sixty subscriptions with 40,000 draining hashes each took a turn of 1.6 s, and their JSON as long."""
    subscriptions = [(await with_many_hashes(number)).subscription for number in range(5)]
    monkeypatch.setattr(module, "consumer_stats", counts(turns, module.consumer_stats))
    found = await stats_in_slices(subscriptions)
    assert turns.total == 10
    assert turns.most <= 2, "one consumer with many hashes in a turn"
    turns.total = turns.most = 0
    topic = TopicBench()
    await topic.open()
    stats = replace(topic_stats(topic.topic, {}), subscriptions=found)
    monkeypatch.setattr(stats_json, "consumer", counts(turns, stats_json.consumer))
    written = await stats_json.topic_stats(stats, topic.context.effective(topic.topic.name), owner="broker")
    assert turns.total == 10
    assert turns.most <= 2
    row = written["subscriptions"]["s0"]["consumers"][0]
    assert row["drainingHashes"][:2] == [{"hash": n, "unackMsgs": 1, "blockedAttempts": 0} for n in (1, 2)]
    assert (row["drainingHashesCount"], row["drainingHashesUnackedMessages"]) == (19_999, 19_999)
    await topic.close()


async def test_sticky_consumers_with_many_ranges_weigh_more(turns, monkeypatch):
    bench = Bench()
    for number in range(30):
        ranges = tuple((2 * n, 2 * n) for n in range(number * 1000, number * 1000 + 1000))
        await bench.join(KEY_SHARED, f"c{number}", key_shared=KeySharedPolicy(sticky=True, ranges=ranges))
    monkeypatch.setattr(module, "consumer_stats", counts(turns, module.consumer_stats))
    found = await stats_in_slices([bench.subscription])
    assert turns.total == len(found["sub"].consumers) == 30
    assert turns.most <= 16


async def test_figures_of_few_consumers_take_no_turn_of_their_own():
    bench = await joined(3)
    gathering = stats_in_slices([bench.subscription])
    with pytest.raises(StopIteration) as ended:
        gathering.send(None)
    assert ended.value.value == {}


async def test_a_consumer_that_leaves_while_figures_are_gathered_counts_once():
    bench = await joined(MANY)
    first = bench.subscription.consumers[0]
    first.out.add(5, 700)
    gathering = asyncio.create_task(stats_in_slices([bench.subscription]))
    await give_way()
    bench.subscription.remove_consumer(first)
    (found,) = (await gathering).values()
    assert len(found.consumers) == MANY - 1
    assert (found.msg_out_counter, found.bytes_out_counter) == (5, 700)


async def test_figures_of_many_consumers_are_written_in_slices(turns, monkeypatch):
    bench = await joined(MANY)
    stats = subscription_stats(bench.subscription)
    monkeypatch.setattr(stats_json, "consumer", counts(turns, stats_json.consumer))
    topic = SimpleNamespace(name=TopicName.parse("persistent://public/default/busy"))
    rows = await stats_json._consumers(stats.consumers, topic, WeighedTurn(CONSUMERS_IN_ONE_TURN))
    assert turns.total == len(rows) == MANY
    assert turns.most <= CONSUMERS_IN_ONE_TURN


async def test_a_join_or_a_leave_leaves_most_hash_ranges_as_they_are(monkeypatch):
    bench = await joined(250)
    subscription_stats(bench.subscription)
    computed = []
    ends = hash_ring.RingSelector._ends
    monkeypatch.setattr(hash_ring.RingSelector, "_ends", lambda *given: computed.append(given) or ends(*given))
    bench.subscription.remove_consumer(bench.subscription.consumers[7])
    subscription_stats(bench.subscription)
    assert 0 < len(computed) <= 100
    await bench.join(KEY_SHARED, "late")
    computed.clear()
    subscription_stats(bench.subscription)
    assert 0 < len(computed) <= 101


async def test_figures_of_many_subscriptions_are_written_in_slices(turns, monkeypatch):
    bench = await joined(1)
    figures = subscription_stats(bench.subscription)
    topic = TopicBench()
    await topic.open()
    stats = replace(topic_stats(topic.topic, {}), subscriptions={f"s{number}": figures for number in range(200)})
    monkeypatch.setattr(stats_json, "subscription", counts(turns, stats_json.subscription))
    config = topic.context.effective(topic.topic.name)
    written = await stats_json.topic_stats(stats, config, owner="broker")
    assert turns.total == len(written["subscriptions"]) == 200
    assert turns.most <= SUBSCRIPTIONS_IN_ONE_TURN
    await topic.close()


async def test_a_request_for_redelivery_is_a_flow_of_the_subscription():
    """Verified against Apache Pulsar 4.2.4: permits that came while the consumer was blocked flow, even none."""
    bench = Bench()
    consumer = await bench.join(KEY_SHARED)
    bench.redeliver(consumer)
    stats = subscription_stats(bench.subscription)
    assert stats.last_consumed_flow_ms > 0
    assert stats.consumers[0].last_consumed_flow_ms == 0


async def test_the_places_of_many_subscriptions_are_gathered_in_slices(turns, monkeypatch):
    """At 8,000 subscriptions the figures of their places in the log took most of 124 ms, in one turn."""
    bench = TopicBench()
    topic = await bench.open()
    positions = await bench.publish(*[b"x"] * 4)
    for number in range(2 * SUBSCRIPTIONS_IN_ONE_TURN + 5):
        subscription = await bench.subscribe(f"s{number}")
        subscription.cursor.ack(positions[number % 4])
    plain = topic_stats(topic, {})

    monkeypatch.setattr(topic_figures, "_place", counts(turns, topic_figures._place))
    turns.most = 0
    gathered = await gathered_in_slices(topic)
    assert turns.total == len(topic.subscriptions)
    assert turns.most <= SUBSCRIPTIONS_IN_ONE_TURN
    found = topic_stats(topic, {}, gathered)
    assert turns.total == len(topic.subscriptions), "no place is taken twice"
    assert found == plain
    assert sum(found.non_contiguous_deleted_ranges.values())
    await bench.close()
