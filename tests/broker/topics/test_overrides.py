"""A policy of the topic beats its namespace's, that beats the broker's; each acts on a loaded topic, and ends when unset."""

from __future__ import annotations

import pytest

from magnetar.broker.errors import NotAllowedError, QuotaExceededError, QuotaHoldError
from magnetar.broker.policies.values import BacklogQuota, InactiveTopicPolicies, PersistencePolicies, RetentionPolicies
from magnetar.broker.topics import backlog, expiry, quotas
from magnetar.broker.topics.deduplication import CURSOR_NAME
from magnetar.broker.topics.expiry import is_deletable
from magnetar.storage.slab import RECORD_HEADER_BYTES
from tests.broker.compaction_for_tests import single
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import append, settle

LEVELS = ["broker", "namespace", "topic"]
NOTHING = RetentionPolicies(0, 0)


async def bench_at(level, *, broker, namespace, topic, others):
    """A loaded topic to which the policy applies at that level; `others` are the values of the levels below.

    Each value is settings or policies as keyword arguments.
    """
    bench = TopicBench(**(broker if level == "broker" else others[0]))
    await bench.open()
    if level != "broker":
        await bench.set_namespace(**(namespace if level == "namespace" else others[1]))
    if level == "topic":
        await bench.set_topic(**topic)
    return bench


def retention(minutes, megabytes):
    return RetentionPolicies(minutes, megabytes)


def at_levels(level, setting, policy, own, wanted, unwanted):
    """The policy set at the given level of three."""
    return bench_at(
        level,
        broker={setting: wanted},
        namespace={policy: wanted},
        topic={own: wanted},
        others=({setting: unwanted}, {policy: unwanted}),
    )


@pytest.mark.parametrize("level", LEVELS)
async def test_retention(level):
    wanted, unwanted = retention(10, -1), NOTHING
    bench = await bench_at(
        level,
        broker={"default_retention_time_in_minutes": 10, "default_retention_size_in_mb": -1},
        namespace={"retention_policies": wanted},
        topic={"retention": wanted},
        others=({}, {"retention_policies": unwanted}),
    )
    await bench.publish(b"x")
    await bench.roll()
    bench.pass_time(9 * 60)
    assert await bench.trim() == []
    bench.pass_time(2 * 60)
    assert len(await bench.trim()) == 1


async def test_retention_taken_back_falls_to_the_level_below():
    bench = TopicBench()
    await bench.open()
    await bench.set_namespace(retention_policies=retention(-1, -1))
    await bench.set_topic(retention=retention(1, -1))
    await bench.publish(b"x")
    await bench.roll()
    bench.pass_time(120)
    await bench.set_topic(retention=None)
    assert await bench.trim() == []
    await bench.set_namespace(retention_policies=None)
    assert len(await bench.trim()) == 1


@pytest.mark.parametrize("level", LEVELS)
async def test_message_ttl(level):
    name = "message_ttl_in_seconds"
    bench = await at_levels(level, "ttl_duration_default_in_seconds", name, name, 60, 100_000)
    subscription = await bench.subscribe()
    await bench.publish(b"old")
    bench.pass_time(61)
    await bench.publish(b"new")
    await expiry.expire_by_ttl(bench.topic)
    assert subscription.cursor.backlog_entries == 1


async def test_a_ttl_of_zero_on_the_topic_switches_that_of_the_namespace_off():
    bench = TopicBench()
    await bench.open()
    await bench.set_namespace(message_ttl_in_seconds=60)
    await bench.set_topic(message_ttl_in_seconds=0)
    subscription = await bench.subscribe()
    await bench.publish(b"old")
    bench.pass_time(600)
    await expiry.expire_by_ttl(bench.topic)
    assert subscription.cursor.backlog_entries == 1


def size_quota(limit, policy="consumer_backlog_eviction"):
    return {"destination_storage": BacklogQuota(limit=limit, limit_size=limit, limit_time=-1, policy=policy)}


def age_quota(seconds, policy):
    return {"message_age": BacklogQuota(limit=-1, limit_size=-1, limit_time=seconds, policy=policy)}


@pytest.mark.parametrize("level", LEVELS)
async def test_backlog_quota_by_size(level):
    bench = await bench_at(
        level,
        broker={
            "backlog_quota_default_limit_bytes": 1000,
            "backlog_quota_default_retention_policy": "consumer_backlog_eviction",
        },
        namespace={"backlog_quota_map": size_quota(1000)},
        topic={"backlog_quota_map": size_quota(1000)},
        others=({}, {"backlog_quota_map": size_quota(-1)}),
    )
    subscription = await bench.subscribe()
    await bench.publish(*[b"x" * 100] * 20)
    await quotas.enforce(bench.topic)
    assert 0 < bench.topic.backlog.size_bytes() <= 1000
    assert subscription.cursor.backlog_entries


async def test_eviction_by_size_stops_where_less_than_an_entry_has_to_go():
    """Verified against Apache Pulsar 4.2.4."""
    bench = TopicBench()
    await bench.open()
    await bench.set_topic(backlog_quota_map=size_quota(200))
    subscription = await bench.subscribe()
    await bench.publish(*[b"x" * 100] * 5)
    assert subscription.cursor.backlog_bytes == 5 * 161
    assert bench.topic.backlog.size_bytes() == 5 * (161 - RECORD_HEADER_BYTES), "headers of records do not count"
    for _ in range(3):
        await quotas.enforce(bench.topic)
        assert subscription.cursor.backlog_entries == 2
    await bench.close()


@pytest.mark.parametrize(
    ("policy", "error"), [("producer_request_hold", QuotaHoldError), ("producer_exception", QuotaExceededError)]
)
async def test_a_quota_without_room_refuses_producers_of_an_empty_topic(policy, error):
    """Verified against Apache Pulsar 4.2.4: a quota is breached at its limit, not beyond."""
    bench = TopicBench()
    await bench.open()
    await bench.set_topic(backlog_quota_map=size_quota(1, policy))
    bench.topic.backlog.check_quota(bench.topic.config)
    await bench.set_topic(backlog_quota_map=size_quota(0, policy))
    with pytest.raises(error):
        bench.topic.backlog.check_quota(bench.topic.config)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("policy", "error"), [("producer_request_hold", QuotaHoldError), ("producer_exception", QuotaExceededError)]
)
async def test_backlog_quota_by_age(level, policy, error):
    bench = await bench_at(
        level,
        broker={
            "backlog_quota_default_limit_second": 100,
            "backlog_quota_default_retention_policy": policy,
            "precise_time_based_backlog_quota_check": True,
        },
        namespace={"backlog_quota_map": age_quota(100, policy)},
        topic={"backlog_quota_map": age_quota(100, policy)},
        others=(
            {"precise_time_based_backlog_quota_check": True},
            {"backlog_quota_map": age_quota(1_000_000, "consumer_backlog_eviction")},
        ),
    )
    await bench.subscribe()
    await bench.publish(b"x")
    bench.pass_time(99)
    await quotas.enforce(bench.topic)
    bench.topic.backlog.check_quota(bench.topic.config)
    bench.pass_time(10)
    await quotas.enforce(bench.topic)
    with pytest.raises(error):
        bench.topic.backlog.check_quota(bench.topic.config)


async def test_entries_that_come_during_an_expiry_hide_no_expired_entry():
    bench = TopicBench()
    await bench.open()
    subscription = await bench.subscribe()
    await bench.publish(b"x")
    bench.pass_time(100)
    flush = subscription.cursor.flush

    async def busy_flush():
        await bench.publish(b"y", b"z")
        await flush()

    subscription.cursor.flush = busy_flush
    assert await expiry.expire_older_than(bench.topic, subscription, 50)
    assert not await expiry.expire_older_than(bench.topic, subscription, 50)
    assert subscription.cursor.backlog_entries == 2
    await bench.close()


@pytest.mark.parametrize(("precise", "left"), [(False, 2), (True, 0)])
async def test_eviction_by_age_spares_the_open_ledger_unless_it_is_precise(precise, left):
    bench = TopicBench(
        managed_ledger_max_entries_per_ledger=5,
        managed_ledger_min_ledger_rollover_time_minutes=0,
        precise_time_based_backlog_quota_check=precise,
    )
    await bench.open()
    await bench.set_topic(backlog_quota_map=age_quota(100, "consumer_backlog_eviction"))
    subscription = await bench.subscribe()
    await bench.publish(*[b"x"] * 12)
    await quotas.enforce(bench.topic)
    assert subscription.cursor.backlog_entries == 12
    bench.pass_time(110)
    await quotas.enforce(bench.topic)
    assert (subscription.cursor.backlog_entries, bench.topic.backlog.evictions_age) == (left, 1)
    bench.pass_time(110)
    await quotas.enforce(bench.topic)
    assert subscription.cursor.backlog_entries == left


async def test_a_producer_that_comes_while_the_age_of_a_backlog_is_read_is_refused_all_the_same(monkeypatch):
    bench = TopicBench(precise_time_based_backlog_quota_check=True)
    await bench.open()
    await bench.set_topic(backlog_quota_map=age_quota(100, "producer_request_hold"))
    subscription = await bench.subscribe()
    first, _ = await bench.publish(b"x", b"y")
    bench.pass_time(110)
    await quotas.enforce(bench.topic)
    read, refused = backlog.entry_time_ms, []

    async def comes_meanwhile(*arguments):
        with pytest.raises(QuotaHoldError):
            bench.topic.backlog.check_quota(bench.topic.config)
        refused.append(True)
        return await read(*arguments)

    monkeypatch.setattr(backlog, "entry_time_ms", comes_meanwhile)
    subscription.cursor.ack_many([first])  # the next check reads another entry
    await quotas.enforce(bench.topic)
    assert refused == [True]
    await bench.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_deduplication(level):
    name = "deduplication_enabled"
    bench = await at_levels(level, "broker_deduplication_enabled", name, name, True, False)
    assert bench.topic.deduplication.enabled
    assert CURSOR_NAME in bench.topic.ledger.cursors
    topic = await bench.reopen()
    assert topic.deduplication.enabled
    await bench.set_topic(deduplication_enabled=False)
    assert not topic.deduplication.enabled
    assert CURSOR_NAME not in topic.ledger.cursors


@pytest.mark.parametrize("level", LEVELS)
async def test_interval_of_deduplication_snapshots(level):
    name = "deduplication_snapshot_interval_seconds"
    bench = await at_levels(level, "broker_deduplication_snapshot_interval_seconds", name, name, 10, 1000)
    await bench.set_topic(deduplication_enabled=True)
    deduplication = bench.topic.deduplication
    (position,) = await bench.publish(b"x")
    deduplication._last_position = position
    for seconds, done in ((9, False), (2, True)):
        bench.pass_time(seconds)
        await deduplication.snapshot_if_older(bench.topic.config.deduplication_snapshot_interval_seconds)
        assert (bench.topic.ledger.cursors[CURSOR_NAME].mark_delete == position) is done


@pytest.mark.parametrize("level", LEVELS)
async def test_threshold_of_compaction(level):
    name = "compaction_threshold"
    bench = await at_levels(level, "broker_service_compaction_threshold_in_bytes", name, name, 500, 0)
    topic = bench.topic
    await append(topic.ledger, [single("a", b"x" * 100)])
    topic.compaction.start_if_needed(topic.config.compaction_threshold_bytes)
    assert not topic.compaction.is_running
    await append(topic.ledger, [single("a", b"x" * 100)] * 9)
    topic.compaction.start_if_needed(topic.config.compaction_threshold_bytes)
    assert topic.compaction.is_running
    await topic.compaction.wait()
    assert topic.compaction.current().ledger.entries == 1


@pytest.mark.parametrize("level", LEVELS)
async def test_deletion_of_an_unused_topic(level):
    def policy(seconds, *, delete):
        return InactiveTopicPolicies(
            inactive_topic_delete_mode="delete_when_subscriptions_caught_up",
            max_inactive_duration_seconds=seconds,
            delete_while_inactive=delete,
        )

    bench = await bench_at(
        level,
        broker={
            "broker_delete_inactive_topics_enabled": True,
            "broker_delete_inactive_topics_mode": "delete_when_subscriptions_caught_up",
            "broker_delete_inactive_topics_max_inactive_duration_seconds": 60,
        },
        namespace={"inactive_topic_policies": policy(60, delete=True)},
        topic={"inactive_topic": policy(60, delete=True)},
        others=(
            {"broker_delete_inactive_topics_enabled": False},
            {"inactive_topic_policies": policy(60, delete=False)},
        ),
    )
    subscription = await bench.subscribe()
    await bench.publish(b"x")
    bench.pass_time(61)
    assert not is_deletable(bench.topic), "its backlog is wanted"
    await bench.topic.subscriptions.skip(subscription, 1)
    bench.pass_time(60)
    assert is_deletable(bench.topic)


@pytest.mark.parametrize(("minutes", "kept_s"), [(-1, 10**9), (10, 599), (0, 59)])
async def test_a_topic_that_retention_keeps_is_not_deleted_for_being_unused(minutes, kept_s):
    bench = await bench_at(
        "broker",
        broker={
            "broker_delete_inactive_topics_enabled": True,
            "broker_delete_inactive_topics_max_inactive_duration_seconds": 60,
            "default_retention_time_in_minutes": minutes,
            "default_retention_size_in_mb": -1,
        },
        namespace={},
        topic={},
        others=({}, {}),
    )
    await bench.publish(b"x")
    bench.pass_time(kept_s)
    assert not is_deletable(bench.topic)
    if minutes >= 0:
        bench.pass_time(2)
        assert is_deletable(bench.topic)


async def test_an_unused_topic_that_is_being_handed_over_is_left_to_its_next_owner():
    inactive = {
        "broker_delete_inactive_topics_enabled": True,
        "broker_delete_inactive_topics_max_inactive_duration_seconds": 60,
    }
    bench = await bench_at("broker", broker=inactive, namespace={}, topic={}, others=({}, {}))
    bench.pass_time(61)
    assert is_deletable(bench.topic)
    bench.context.serves = lambda _name: False
    assert not is_deletable(bench.topic)


@pytest.mark.parametrize("level", LEVELS)
async def test_number_of_subscriptions(level):
    bench = await at_levels(
        level, "max_subscriptions_per_topic", "max_subscriptions_per_topic", "max_subscriptions", 2, 10
    )
    for k in range(2):
        await bench.subscribe(f"s{k}")
    with pytest.raises(NotAllowedError):
        await bench.subscribe("s2")


@pytest.mark.parametrize("level", ["broker", "namespace"])
async def test_expiry_of_subscriptions(level):
    name = "subscription_expiration_time_minutes"
    bench = await at_levels(level, name, name, name, 5, 100_000)
    await bench.subscribe()
    await expiry.delete_unused_subscriptions(bench.topic)
    bench.pass_time(301)
    await expiry.delete_unused_subscriptions(bench.topic)
    assert not bench.topic.subscriptions.by_name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("rate", "seconds"), [(0.1, 10), (5.0, 0.2), (0.0, 0.01)])
async def test_how_often_a_cursor_is_saved(level, rate, seconds):
    def policy(saves):
        return PersistencePolicies(managed_ledger_max_mark_delete_rate=saves)

    bench = await bench_at(
        level,
        broker={"managed_ledger_default_mark_delete_rate_limit": rate},
        namespace={"persistence": policy(rate)},
        topic={"persistence": policy(rate)},
        others=({}, {"persistence": policy(1000.0)}),
    )
    subscription = await bench.subscribe()
    (position, _) = await bench.publish(b"x", b"y")
    writes = bench.ground.metadata.writes
    subscription.cursor.ack(position)
    bench.pass_time(seconds * 0.9)
    await settle()
    assert bench.ground.metadata.writes == writes, "not yet"
    bench.pass_time(seconds * 0.2)
    await settle()
    assert bench.ground.metadata.writes > writes


@pytest.mark.parametrize(
    ("setting", "value", "entries", "seconds", "ledgers"),
    [
        ("managed_ledger_max_entries_per_ledger", 4, 9, 0, 3),
        ("managed_ledger_max_ledger_rollover_time_minutes", 1, 1, 61, 2),
        ("managed_ledger_inactive_ledger_rollover_time_seconds", 30, 1, 61, 2),
    ],
)
async def test_rollover_by_the_brokers_settings(setting, value, entries, seconds, ledgers):
    bench = TopicBench(**{"managed_ledger_min_ledger_rollover_time_minutes": 0, setting: value})
    await bench.open()
    await bench.set_namespace(retention_policies=retention(-1, -1))
    await bench.publish(*[b"x"] * entries)
    if seconds:
        for _ in range(4):
            bench.pass_time(seconds / 4)
            await settle()
        await bench.publish(b"y")
    assert len(bench.topic.ledger.ledgers) == ledgers


async def test_a_topic_that_closed_before_its_turn_follows_no_policies():
    bench = TopicBench()
    topic = await bench.open()
    await topic.close()
    await bench.set_topic(deduplication_enabled=True)
    assert not topic.deduplication.is_wanted
