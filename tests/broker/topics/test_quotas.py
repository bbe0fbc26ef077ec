"""The cursors that count against a backlog quota, and the entries that an eviction takes. Verified against Apache Pulsar 4.2.4."""

from __future__ import annotations

import pytest

from magnetar.broker.errors import QuotaExceededError
from magnetar.broker.policies.values import BacklogQuota
from magnetar.broker.topics import backlog, quotas
from magnetar.broker.topics.deduplication import CURSOR_NAME
from magnetar.protocol.topic_name import TopicName
from tests.broker import topic_for_tests
from tests.broker.topic_for_tests import TopicBench, publish
from tests.storage.managed_for_tests import settle


def size_quota(limit, policy):
    return {"destination_storage": BacklogQuota(limit=limit, limit_size=limit, limit_time=-1, policy=policy)}


async def published(bench, *sequence_ids):
    """Entries of which deduplication knows."""
    for each in sequence_ids:
        publish(bench.topic, each)
    await settle()


async def test_an_eviction_by_size_counts_entries_that_are_acknowledged_between_others():
    bench = TopicBench()
    await bench.open()
    subscription = await bench.subscribe()
    positions = await bench.publish(*[b"x" * 100] * 10)
    for at in (1, 3, 4):
        subscription.cursor.ack_many([positions[at]])
    limit = bench.topic.backlog.size_bytes() // 2
    await bench.set_topic(backlog_quota_map=size_quota(limit, "consumer_backlog_eviction"))
    await quotas.enforce(bench.topic)
    assert subscription.cursor.mark_delete == positions[4], "three of seven entries go: 0, 1 and 2, then 3 and 4"
    assert subscription.cursor.backlog_entries == 5
    await bench.close()


def noted_closes(topic) -> list[bool]:
    """A note for each time that all producers of the topic are closed."""
    closed: list[bool] = []

    async def close(_turns) -> None:
        closed.append(True)

    topic.producers.disconnect_in_turns = close
    return closed


async def test_the_backlog_of_deduplication_refuses_producers_until_the_snapshot_of_a_check():
    bench = TopicBench(broker_deduplication_enabled=True)
    await bench.open()
    await published(bench, 1, 2, 3)
    await bench.set_topic(backlog_quota_map=size_quota(50, "producer_exception"))
    with pytest.raises(QuotaExceededError):
        bench.topic.backlog.check_quota(bench.topic.config)
    closed = noted_closes(bench.topic)
    await quotas.enforce(bench.topic)
    assert (bench.topic.backlog.size_bytes(), closed) == (0, [])
    bench.topic.backlog.check_quota(bench.topic.config)

    subscription = await bench.subscribe(earliest=False)
    await published(bench, 4, 5, 6)
    await quotas.enforce(bench.topic)  # the snapshot alone does not free the backlog of the subscription
    assert bench.topic.ledger.cursors[CURSOR_NAME].mark_delete > subscription.cursor.mark_delete
    await quotas.enforce(bench.topic)
    assert closed == [True]
    await bench.close()


async def test_an_unreadable_last_entry_leaves_deduplication_no_backlog():
    """No snapshot went behind the entry: its quota refused producers for ever, and no later entry could come."""
    bench = TopicBench(broker_deduplication_enabled=True)
    await bench.open()
    await bench.subscribe(earliest=False)
    await published(bench, 1, 2, 3)
    ground = bench.ground.after_crash()
    ground.ledgers.corrupt.add(bench.topic.ledger.last_confirmed)
    bench = TopicBench(ground, broker_deduplication_enabled=True)
    topic = await bench.open()
    await topic.subscriptions.move_to(topic.subscriptions.by_name["s"], topic.ledger.last_confirmed.next())
    await bench.set_topic(backlog_quota_map=size_quota(1, "producer_exception"))
    await quotas.enforce(topic)
    assert topic.backlog.size_bytes() == 0
    topic.backlog.check_quota(topic.config)
    await bench.close()


async def test_no_quota_stops_the_topics_of_the_broker(monkeypatch):
    """The cursor of compaction keeps their entries: with a small quota of the namespace brokers wrote no policies."""
    name = TopicName.parse("persistent://public/default/__change_events")
    monkeypatch.setattr(topic_for_tests, "NAME", name)
    bench = TopicBench()
    topic = await bench.open()
    await bench.publish(b"x" * 100)
    assert topic.backlog.size_bytes() > 50
    await bench.set_namespace(backlog_quota_map=size_quota(50, "producer_exception"))
    topic.backlog.check_quota(topic.config)
    closed = noted_closes(topic)
    await quotas.enforce(topic)
    assert not closed
    await bench.close()


async def test_the_age_of_an_oldest_entry_that_stays_is_read_once(monkeypatch):
    """Each check read an entry of each topic with a backlog: rounds over thousands of topics took seconds."""
    bench, reads = TopicBench(), []
    await bench.open()
    subscription = await bench.subscribe()
    positions = await bench.publish(b"a", b"b")
    read = backlog.entry_time_ms

    async def counted(ledger, position):
        reads.append(position)
        return await read(ledger, position)

    monkeypatch.setattr(backlog, "entry_time_ms", counted)
    for _ in range(3):
        await quotas.enforce(bench.topic)
    subscription.cursor.ack_many([positions[0]])
    for _ in range(2):
        await quotas.enforce(bench.topic)
    assert reads == positions
    bench.pass_time(5)
    assert bench.topic.backlog.oldest_age_s() >= 5
    await bench.close()
