"""Figures of a topic for the admin API."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker.admin_backend import topic_logs
from magnetar.broker.admin_backend.topic_logs import AdminTopicLogs
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.storage.errors import StorageFullError
from tests.broker.topic_for_tests import NAME, TopicBench
from tests.storage.managed_for_tests import run_of


class Registry:
    """A registry that returns the present topic of the bench."""

    def __init__(self, bench: TopicBench) -> None:
        self._bench = bench
        self.catalog = None
        self.loaded = {}

    async def get(self, name, *, create):
        assert (name, create) == (NAME, False)
        return self._bench.topic

    async def persistent(self, name):
        return await self.get(name, create=False)


async def test_statistics_that_an_unload_overtakes_are_those_of_the_topic_loaded_next():
    bench = TopicBench()
    topic = await bench.open()
    await topic.subscriptions.create(SubscribeRequest("kept"))
    topic.recall_last_publish = bench.reopen

    stats = await AdminTopicLogs(Registry(bench), None, None).stats(NAME, earliest_in_backlog=False)

    assert topic.life.has_ended
    assert list(stats.subscriptions) == ["kept"]
    await bench.topic.close()


async def test_a_subscription_that_is_created_while_the_broker_reads_the_earliest_entries_does_no_harm(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    await topic.subscriptions.create(SubscribeRequest("first", from_earliest=True))
    await bench.publish(b"a")

    async def meanwhile(_log, _position):
        await topic.subscriptions.create(SubscribeRequest("second"))
        return 5

    monkeypatch.setattr(topic_logs, "entry_time_ms", meanwhile)
    stats = await AdminTopicLogs(Registry(bench), None, None).stats(NAME, earliest_in_backlog=True)

    assert stats.earliest_publish_ms["first"] == 5
    assert set(stats.subscriptions) == {"first", "second"}
    await bench.topic.close()


async def test_a_truncated_topic_knows_the_sequence_ids_of_its_producers_after_a_load():
    """The entries that name them are gone: a message that a client sends again would be stored twice."""
    bench = TopicBench(broker_deduplication_enabled=True)
    topic = await bench.open()
    positions = await bench.publish(b"a", b"b")
    topic.deduplication.stored("p", run_of([b"a", b"b"]), 2, positions[-1])
    await bench.roll()

    async def persistent(_name):
        return topic

    await AdminTopicLogs(Registry(bench), SimpleNamespace(persistent=persistent), None).truncate(NAME)

    assert topic.ledger.entries == 0
    assert (await bench.reopen()).deduplication.table.persisted == {"p": 1}
    await bench.topic.close()


async def test_a_topic_that_is_truncated_during_a_snapshot_of_deduplication_knows_later_sequence_ids():
    bench = TopicBench(broker_deduplication_enabled=True)
    topic = await bench.open()
    positions = await bench.publish(b"a", b"b")
    topic.deduplication.stored("p", run_of([b"a", b"b"]), 2, positions[-1])
    snapshot = asyncio.create_task(topic.deduplication.snapshot())
    await asyncio.sleep(0)
    positions = await bench.publish(b"c")
    topic.deduplication.stored("p", run_of([b"a", b"b", b"c"]), 3, positions[-1])

    async def persistent(_name):
        return topic

    await AdminTopicLogs(Registry(bench), SimpleNamespace(persistent=persistent), None).truncate(NAME)
    await snapshot

    assert topic.ledger.cursors["pulsar.dedup"].mark_delete == positions[0]
    assert (await bench.reopen()).deduplication.table.persisted == {"p": 2}
    await bench.topic.close()


async def test_consumers_of_a_truncated_topic_hold_nothing_while_the_truncation_waits_for_the_disk_or_fails(
    monkeypatch,
):
    bench = TopicBench()
    topic = await bench.open()
    subscription = await topic.subscriptions.create(SubscribeRequest("s", from_earliest=True))
    dropped = []
    monkeypatch.setattr(type(subscription), "backlog_dropped", lambda _self, up_to: dropped.append(up_to))
    positions = await bench.publish(b"a", b"b")
    held = []

    async def full():
        held.append((list(dropped), subscription.cursor.mark_delete))
        raise StorageFullError("no space")

    monkeypatch.setattr(topic.ledger, "truncate", full)
    with pytest.raises(StorageFullError):
        await AdminTopicLogs(Registry(bench), Registry(bench), None).truncate(NAME)

    assert held == [([positions[-1]], positions[-1])]
    await bench.topic.close()


async def test_a_topic_without_new_messages_is_not_compacted_again():
    """As in Apache Pulsar, where the status is that of the last run since the load."""
    bench = TopicBench()
    await bench.open()
    logs = AdminTopicLogs(Registry(bench), Registry(bench), None)
    await bench.publish(b"a")
    for _ in range(2):
        await logs.compact(NAME)
        await bench.topic.compaction.wait()
        assert (await logs.compaction_status(NAME)).status == "SUCCESS"
    await bench.reopen()
    await logs.compact(NAME)
    assert not bench.topic.compaction.is_running
    assert (await logs.compaction_status(NAME)).status == "NOT_RUN"
    await bench.publish(b"b")
    await logs.compact(NAME)
    await bench.topic.compaction.wait()
    assert (await logs.compaction_status(NAME)).status == "SUCCESS"
    await bench.topic.close()


async def test_the_clients_of_a_topic_that_is_not_loaded_do_not_count():
    bench = TopicBench()
    topic = await bench.open()
    await topic.subscriptions.create(SubscribeRequest("s"))
    registry = Registry(bench)
    logs = AdminTopicLogs(registry, None, None)
    assert logs.client_count(NAME) == 0
    registry.loaded[str(NAME)] = topic
    assert logs.client_count(NAME) == 1
    await topic.close()
