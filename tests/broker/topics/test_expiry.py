"""When the policy of inactive topics deletes a topic. The times are those of Apache Pulsar 4.2.4."""

from __future__ import annotations

import pytest

from magnetar.broker.consumers.consumer import EXCLUSIVE, Consumer, ConsumerSpec
from magnetar.broker.policies.values import InactiveTopicPolicies
from magnetar.broker.topics.expiry import is_deletable
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.twins.fake_connection import FakeConnection

NO_SUBSCRIPTIONS, CAUGHT_UP = "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
LIMIT_S = 60


async def bench_with(mode, **settings):
    bench = TopicBench(**settings)
    await bench.open()
    await bench.set_namespace(
        inactive_topic_policies=InactiveTopicPolicies(
            inactive_topic_delete_mode=mode, max_inactive_duration_seconds=LIMIT_S, delete_while_inactive=True
        )
    )
    return bench


async def joined(bench, *, durable=True):
    consumer = Consumer(FakeConnection(), ConsumerSpec(1, NAME, "s", EXCLUSIVE, durable=durable))
    request = SubscribeRequest("s", durable=durable, from_earliest=True)
    return consumer, await bench.topic.subscriptions.subscribe(consumer, request)


async def test_a_consumer_that_caught_up_does_not_keep_the_topic():
    bench = await bench_with(CAUGHT_UP)
    bench.pass_time(LIMIT_S)
    await joined(bench)
    assert is_deletable(bench.topic)


async def test_a_consumer_keeps_the_topic_that_needs_its_subscription_gone():
    bench = await bench_with(NO_SUBSCRIPTIONS)
    await joined(bench, durable=False)
    bench.pass_time(LIMIT_S)
    assert not is_deletable(bench.topic)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_backlog_is_a_use_until_the_check_that_last_sees_it(durable):
    bench = await bench_with(CAUGHT_UP)
    _, subscription = await joined(bench, durable=durable)
    await bench.publish(b"x")
    bench.pass_time(2 * LIMIT_S)
    assert not is_deletable(bench.topic)
    await bench.topic.subscriptions.skip(subscription, 1)
    assert not is_deletable(bench.topic), "at the last check it was in use"
    bench.pass_time(LIMIT_S)
    assert is_deletable(bench.topic)


async def test_the_deletion_of_a_subscription_is_a_use():
    bench = await bench_with(NO_SUBSCRIPTIONS)
    await bench.subscribe()
    bench.pass_time(2 * LIMIT_S)
    await bench.topic.subscriptions.delete("s")
    assert not is_deletable(bench.topic)
    bench.pass_time(LIMIT_S)
    assert is_deletable(bench.topic)


@pytest.mark.parametrize("mode", [NO_SUBSCRIPTIONS, CAUGHT_UP])
async def test_retention_keeps_messages_and_no_empty_topic(mode):
    bench = await bench_with(mode, default_retention_time_in_minutes=-1, default_retention_size_in_mb=-1)
    bench.pass_time(LIMIT_S)
    assert is_deletable(bench.topic)
    await bench.publish(b"x")
    assert not is_deletable(bench.topic)


async def test_a_policy_without_a_mode_deletes_no_topic():
    bench = await bench_with(None)
    bench.pass_time(LIMIT_S)
    assert not is_deletable(bench.topic)
