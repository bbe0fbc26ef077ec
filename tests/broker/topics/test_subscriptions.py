"""Subscriptions of a topic: operations from outside."""

import asyncio
import contextlib

import pytest

from magnetar.broker.admin_backend import scan
from magnetar.broker.admin_backend.scan import analyze_backlog
from magnetar.broker.consumers.consumer import EXCLUSIVE, Consumer, ConsumerSpec
from magnetar.broker.dispatchers.turns import ROUND_BYTES
from magnetar.broker.errors import NotAllowedError, ServiceNotReadyError
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.subscriptions.sought_places import MOST_PLACES, SoughtPlace
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.expiry import delete_unused_subscriptions, expire_by_ttl
from magnetar.broker.topics.life import TopicState
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.storage.errors import StorageError, StorageFullError
from magnetar.storage.managed.managed_ledger import ManagedLedger
from magnetar.storage.position import EARLIEST, LATEST
from tests.broker.admin.test_long_lists import Turns
from tests.broker.topic_for_tests import NAME, TopicBench, settled
from tests.twins.fake_connection import FakeConnection

IN_MEMORY = "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"


async def test_a_subscription_that_skips_everything_awaits_no_delayed_message():
    bench = TopicBench(delayed_delivery_tracker_factory_class_name=IN_MEMORY)
    await bench.open()
    subscription = await bench.subscribe()
    positions = await bench.publish(b"a", b"b", b"c")
    delay = subscription.context.delay
    later_ms = bench.context.now_ms() + 3_600_000
    for ledger_id, entry_id in positions:
        assert entry_id in delay.offer(ledger_id, [(entry_id, later_ms)])
    await bench.topic.subscriptions.skip(subscription, 1)
    assert delay.pending_count == 3, "its reads will not meet the other two again"
    await bench.topic.subscriptions.skip(subscription, 2)
    assert delay.pending_count == 0


@contextlib.contextmanager
def held(metadata):
    """Let writes of metadata wait until the block sets the event."""
    release, put, delete = asyncio.Event(), metadata.put, metadata.delete

    async def held_put(*arguments):
        await release.wait()
        return await put(*arguments)

    async def held_delete(*arguments):
        await release.wait()
        return await delete(*arguments)

    metadata.put, metadata.delete = held_put, held_delete
    try:
        yield release
    finally:
        metadata.put, metadata.delete = put, delete


async def read_and_seek(bench, name, position, ack_set=None):
    """Let a reader of that name seek and leave."""
    subscriptions = bench.topic.subscriptions
    reader = await subscriptions.create(SubscribeRequest(name, durable=False, start=EARLIEST))
    reader.sought = None
    await reader.cursor.reset(position, ack_set)
    reader.sought = SoughtPlace.of(position, reader.cursor.read_position, ack_set)
    subscriptions._on_empty(reader)
    return subscriptions


async def test_a_durable_subscription_does_not_inherit_from_a_reader_that_sought():
    bench = TopicBench(managed_ledger_min_ledger_rollover_time_minutes=0)
    await bench.open()
    positions = await bench.publish(b"a", b"b", b"c", b"d")
    subscriptions = await read_and_seek(bench, "jobs", positions[2])
    jobs = await subscriptions.create(SubscribeRequest("jobs", from_earliest=True))
    assert jobs.durable
    assert jobs.cursor.backlog_entries == 4
    subscriptions._on_empty(jobs)
    assert subscriptions.by_name["jobs"] is jobs
    await bench.roll()
    bench.pass_time(3600)
    assert await bench.trim() == [], "its backlog keeps the ledger"
    topic = await bench.reopen()
    assert topic.subscriptions.by_name["jobs"].cursor.backlog_entries == 4
    await bench.close()


async def test_the_next_reader_of_the_name_continues_at_the_position_of_the_seek():
    bench = TopicBench()
    await bench.open()
    positions = await bench.publish(b"a", b"b", b"c", b"d")
    subscriptions = await read_and_seek(bench, "jobs", positions[2])
    assert not bench.topic.ledger._cursors.readers, "no cursor is kept for it"
    reader = await subscriptions.create(SubscribeRequest("jobs", durable=False, start=EARLIEST))
    assert reader.cursor.read_position == positions[2]
    again = await read_and_seek(bench, "other", LATEST)
    (new,) = await bench.publish(b"e")
    assert (await again.create(SubscribeRequest("other", durable=False, start=EARLIEST))).cursor.read_position == new
    await bench.close()


async def test_subscriptions_beyond_the_cost_of_a_round_have_their_turns_later():
    bench = TopicBench()
    await bench.open()
    had = []
    for name in ("a", "b", "c", "d"):
        subscription = await bench.subscribe(name=name)
        subscription.entries_available = lambda name=name: had.append(f"{name} now") or ROUND_BYTES // 2
        subscription.wake = lambda name=name: had.append(f"{name} later")
    bench.topic.subscriptions.entries_available()
    assert had == ["a now", "b now", "c later", "d later"]
    await bench.close()


async def test_places_of_readers_that_never_come_back_are_bounded():
    bench = TopicBench()
    await bench.open()
    positions = await bench.publish(b"a", b"b")
    for i in range(MOST_PLACES + 20):
        subscriptions = await read_and_seek(bench, f"r{i}", positions[1])
    assert len(subscriptions._sought) == MOST_PLACES
    oldest = await subscriptions.create(SubscribeRequest("r0", durable=False, start=EARLIEST))
    assert oldest.cursor.read_position == positions[0]
    await bench.close()


async def test_a_reader_is_refused_while_a_durable_subscription_of_its_name_is_created_or_deleted():
    bench = TopicBench()
    await bench.open()
    subscriptions = bench.topic.subscriptions
    reader = SubscribeRequest("jobs", durable=False, start=EARLIEST)
    with held(bench.ground.metadata) as release:
        creating = asyncio.ensure_future(subscriptions.create(SubscribeRequest("jobs")))
        await settled()
        with pytest.raises(NotAllowedError, match="Durable subscription"):
            await subscriptions.create(reader)
        release.set()
        assert (await creating).durable
    with held(bench.ground.metadata) as release:
        deleting = asyncio.ensure_future(subscriptions.delete("jobs"))
        await settled()
        for request in (reader, SubscribeRequest("jobs")):
            with pytest.raises(ServiceNotReadyError):
                await subscriptions.create(request)
        release.set()
        await deleting
    again = await subscriptions.create(SubscribeRequest("jobs"))
    assert bench.topic.ledger.cursors["jobs"] is again.cursor
    await bench.close()


async def test_a_request_that_waited_for_a_cursor_does_not_take_a_deleted_cursor(monkeypatch):
    """A deleted cursor would serve a subscription whose backlog nothing keeps."""
    bench = TopicBench()
    await bench.open()
    subscriptions, ledger = bench.topic.subscriptions, bench.topic.ledger
    opening, closing, open_cursor = asyncio.Event(), asyncio.Event(), ledger.open_cursor

    async def open_late(*arguments):
        await opening.wait()
        return await open_cursor(*arguments)

    monkeypatch.setattr(ledger, "open_cursor", open_late)
    waiting = asyncio.ensure_future(subscriptions.create(SubscribeRequest("jobs")))
    await settled()
    monkeypatch.undo()
    await subscriptions.create(SubscribeRequest("jobs"))
    monkeypatch.setattr(Subscription, "close", lambda *_, **__: closing.wait())
    deleting = asyncio.ensure_future(subscriptions.delete("jobs"))
    await settled()
    opening.set()
    with pytest.raises(ServiceNotReadyError):
        await waiting
    closing.set()
    await deleting
    assert "jobs" not in subscriptions.by_name
    assert "jobs" not in ledger.cursors
    again = await subscriptions.create(SubscribeRequest("jobs"))
    assert ledger.cursors["jobs"] is again.cursor
    monkeypatch.undo()
    await bench.close()


async def test_a_request_that_waited_for_the_deletion_of_a_cursor_gets_a_new_cursor():
    bench = TopicBench()
    await bench.open()
    subscriptions = bench.topic.subscriptions
    old = await subscriptions.create(SubscribeRequest("jobs"))
    with held(bench.ground.metadata) as release:
        opening = asyncio.ensure_future(bench.topic.ledger.delete_cursor("jobs"))
        await settled()
        waiting = asyncio.ensure_future(bench.topic.ledger.open_cursor("jobs", "latest", {}))
        await settled()
        assert not waiting.done()
        release.set()
        await opening
    assert await waiting is bench.topic.ledger.cursors["jobs"] is not old.cursor
    await bench.close()


async def test_a_subscription_that_could_not_be_deleted_is_there_and_saved_as_before():
    bench = TopicBench()
    await bench.open()
    jobs = await bench.subscribe("jobs")
    positions = await bench.publish(b"a", b"b")
    bench.ground.metadata.fail_writes = StorageError("no")
    with pytest.raises(StorageError):
        await bench.topic.subscriptions.delete("jobs")
    bench.ground.metadata.fail_writes = None
    jobs = bench.topic.subscriptions.by_name["jobs"]
    jobs.cursor.ack(positions[0])
    await jobs.cursor.flush()
    topic = await bench.reopen()
    assert topic.subscriptions.by_name["jobs"].cursor.mark_delete == positions[0]
    await bench.close()


async def test_a_subscription_named_as_a_scan_keeps_its_cursor():
    bench = TopicBench(managed_ledger_min_ledger_rollover_time_minutes=0)
    await bench.open()
    found = await bench.subscribe("x")
    namesake = await bench.subscribe("__analyze-x")
    await bench.publish(b"a", b"b")
    result = await analyze_backlog(bench.topic, found)
    assert result["entries"] == 2
    assert bench.topic.ledger.cursors["__analyze-x"] is namesake.cursor
    found.cursor.ack_cumulative(bench.topic.ledger.last_confirmed)
    await bench.roll()
    bench.pass_time(3600)
    assert await bench.trim() == []
    await bench.close()


@pytest.mark.parametrize(("most", "counted"), [(8, 7), (7, 6), (1, 0), (9, 8), (10, 8)])
async def test_the_analysis_of_a_backlog_ends_at_its_last_entry(most, counted):
    """As in Apache Pulsar the analysis does not count the entry at which the limit is used up."""
    bench = TopicBench(subscription_backlog_scan_max_entries=most)
    await bench.open()
    found = await bench.subscribe()
    positions = await bench.publish(*[b"x"] * 8)
    result = await analyze_backlog(bench.topic, found)
    assert (result["entries"], result["messages"], result["aborted"]) == (counted, counted, most <= 8)
    last = positions[counted - 1]
    assert result.get("lastMessageId") == (f"{last.ledger_id}:{last.entry_id}" if counted else None)
    await bench.close()


async def test_acknowledged_entries_use_up_the_limit_of_an_analysis():
    bench = TopicBench(subscription_backlog_scan_max_entries=6)
    await bench.open()
    found = await bench.subscribe()
    positions = await bench.publish(*[b"x"] * 8)
    for position in positions[2:5]:
        found.cursor.ack(position)
    result = await analyze_backlog(bench.topic, found)
    assert (result["entries"], result["aborted"]) == (2, True)
    await bench.close()


async def test_the_analysis_of_a_backlog_ends_after_its_time():
    bench = TopicBench(subscription_backlog_scan_max_time_ms=1000)
    await bench.open()
    found = await bench.subscribe()
    await bench.publish(*[b"x"] * 250)
    times = iter((0.0, 0.5, 1.0, 1.1))
    bench.topic.context.monotonic = lambda: next(times)
    result = await analyze_backlog(bench.topic, found)
    assert (result["entries"], result["aborted"]) == (200, True)
    await bench.close()


async def test_the_analysis_of_a_backlog_in_the_cache_goes_in_slices(monkeypatch):
    """Without turns between its reads, 10,000 entries took a tenth of a second of the event loop."""
    bench, turns, parse = TopicBench(), Turns(), scan.parse_metadata
    await bench.open()
    found = await bench.subscribe()
    await bench.publish(*[b"x"] * 450)

    def noted(body):
        turns.note()
        return parse(body)

    monkeypatch.setattr(scan, "parse_metadata", noted)
    ticks = asyncio.create_task(turns.run())
    result = await analyze_backlog(bench.topic, found)
    ticks.cancel()
    assert (result["entries"], turns.total) == (450, 450)
    assert turns.most <= 100
    await bench.close()


async def test_a_topic_that_cannot_save_its_acks_is_closed_all_the_same():
    """Else the next load would put a second topic on the same log, beside consumers of the first."""
    bench = TopicBench()
    await bench.open()
    positions = await bench.publish(b"a", b"b")
    for name in ("s1", "s2", "s3"):
        subscription = await bench.subscribe(name)
        subscription.cursor.ack(positions[1])
    first = bench.topic
    bench.ground.ledgers.fail_appends = StorageFullError("full")
    bench.ground.metadata.fail_writes = StorageFullError("full")
    await first.close()
    bench.ground.ledgers.fail_appends = bench.ground.metadata.fail_writes = None
    assert not first.subscriptions.by_name
    topic = await bench.open()
    assert topic.ledger is not first.ledger
    assert [s.cursor.backlog_entries for s in topic.subscriptions.by_name.values()] == [2, 2, 2]
    await bench.close()


async def test_a_changed_dispatch_rate_reaches_every_subscription_and_needs_none():
    bench = TopicBench()
    await bench.open()
    rate = DispatchRate(dispatch_throttling_rate_in_msg=10, rate_period_in_second=1)
    await bench.set_topic(subscription_dispatch_rate=rate)
    subscriptions = [await bench.subscribe(name) for name in "ab"]
    for messages in (20, 30):
        rate = DispatchRate(dispatch_throttling_rate_in_msg=messages, rate_period_in_second=1)
        await bench.set_topic(subscription_dispatch_rate=rate)
        assert [each.context.throttle.room() for each in subscriptions] == [messages, messages]
    await bench.close()


def reader_of(name="r", consumer_id=1):
    return Consumer(FakeConnection(), ConsumerSpec(consumer_id, NAME, name, EXCLUSIVE, durable=False))


async def test_a_reader_that_cannot_join_leaves_no_subscription(monkeypatch):
    """The entries that give the place of its rollback are unreadable."""
    bench = TopicBench()
    topic = await bench.open()

    async def fails(self, _timestamp_ms):
        raise StorageError("unreadable")

    monkeypatch.setattr(ManagedLedger, "position_for_time", fails)
    request = SubscribeRequest("r", durable=False, start=EARLIEST, rollback_s=10)
    with pytest.raises(StorageError):
        await topic.subscriptions.subscribe(reader_of(), request)
    assert not topic.subscriptions.by_name
    await bench.close()


async def test_a_reader_that_leaves_does_not_end_the_subscription_of_a_reader_about_to_join(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    go_on, find = asyncio.Event(), ManagedLedger.position_for_time

    async def slow(self, timestamp_ms):
        await go_on.wait()
        return await find(self, timestamp_ms)

    monkeypatch.setattr(ManagedLedger, "position_for_time", slow)
    request = SubscribeRequest("r", durable=False, start=EARLIEST, rollback_s=10)
    joining = asyncio.ensure_future(topic.subscriptions.subscribe(reader_of(), request))
    await settled()
    first = reader_of(consumer_id=2)
    await topic.subscriptions.subscribe(first, SubscribeRequest("r", durable=False, start=EARLIEST))
    first.connection_lost()
    go_on.set()
    subscription = await joining
    assert topic.subscriptions.by_name == {"r": subscription}
    await bench.close()


async def test_subscriptions_that_are_created_at_the_same_time_count_towards_the_limit():
    bench = TopicBench(max_subscriptions_per_topic=2)
    topic = await bench.open()
    names = ("a", "b", "b", "c", "d")
    made = await asyncio.gather(*map(bench.subscribe, names), return_exceptions=True)
    assert sorted(topic.subscriptions.by_name) == ["a", "b"]
    assert made[1] is made[2] is topic.subscriptions.by_name["b"]
    assert all(isinstance(each, NotAllowedError) for each in made[3:])
    await bench.close()


async def test_a_failed_publish_hides_no_subscription_that_is_created_or_deleted_meanwhile():
    """The cursor of a hidden subscription keeps the log, out of reach of expiry, quotas and requests for deletion."""
    bench = TopicBench()
    topic = await bench.open()
    await bench.subscribe("old")
    with held(bench.ground.metadata) as release:
        creating = asyncio.ensure_future(bench.subscribe("new"))
        await settled()
        topic.life.state = TopicState.FENCED
        release.set()
        await asyncio.wait([creating])
    bench.ground.metadata.fail_writes = StorageError("no")
    with pytest.raises(StorageError):
        await topic.subscriptions.delete("old")
    bench.ground.metadata.fail_writes = None
    topic.life.state = TopicState.OPEN
    assert sorted(topic.subscriptions.by_name) == ["new", "old"] == sorted(topic.ledger.cursors)
    assert creating.result() is topic.subscriptions.by_name["new"]
    await bench.close()


@pytest.mark.parametrize("end", ["close", "delete"])
async def test_a_bug_in_one_subscription_leaves_no_other_connected_to_a_topic_that_ends(end, monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    consumers = [reader_of(), reader_of("r2")]
    for name, consumer in zip(("a", "b"), consumers, strict=True):
        await topic.subscriptions.subscribe(consumer, SubscribeRequest(name))
    close, first = Subscription.close, topic.subscriptions._in_order()[0]

    async def fails_once(subscription, **options):
        if subscription is first:
            raise RuntimeError("a bug")
        await close(subscription, **options)

    monkeypatch.setattr(Subscription, "close", fails_once)
    await getattr(topic, end)()
    assert sum("CLOSE_CONSUMER" in consumer.outbox.names() for consumer in consumers) == 1
    assert topic.life.state is TopicState.CLOSED
    again = await bench.open()
    assert again.ledger is not topic.ledger
    await bench.close()


async def test_an_expiry_goes_on_behind_a_subscription_that_is_deleted_meanwhile(monkeypatch):
    bench = TopicBench()
    topic = await bench.open()
    gone, stays = await bench.subscribe("a"), await bench.subscribe("b")
    await bench.publish(b"old", b"old")
    bench.pass_time(100)
    position_for_time = topic.ledger.position_for_time

    async def delete_and_find(time_ms, after):
        if "a" in topic.subscriptions.by_name:
            await topic.subscriptions.delete("a")
        return await position_for_time(time_ms, after)

    monkeypatch.setattr(topic.ledger, "position_for_time", delete_and_find)
    await bench.set_namespace(message_ttl_in_seconds=10)
    await expire_by_ttl(topic)
    assert (gone.cursor.backlog_entries, stays.cursor.backlog_entries) == (2, 0)
    await bench.close()


async def test_a_subscription_does_not_inherit_the_idle_time_of_a_deleted_subscription(monkeypatch):
    bench = TopicBench(subscription_expiration_time_minutes=5)
    topic = await bench.open()
    for name in ("a", "b"):
        await bench.subscribe(name)
    await delete_unused_subscriptions(topic)
    bench.pass_time(301)
    subscriptions, delete = topic.subscriptions, topic.subscriptions.delete

    async def delete_both(name):
        await delete(name)
        await delete("b")

    monkeypatch.setattr(subscriptions, "delete", delete_both)
    await delete_unused_subscriptions(topic)
    monkeypatch.undo()
    assert not subscriptions.by_name
    bench.pass_time(301)
    await bench.subscribe("b")
    await delete_unused_subscriptions(topic)
    assert "b" in subscriptions.by_name
    await bench.close()


async def test_a_consumer_without_permits_keeps_its_subscription():
    bench = TopicBench(subscription_expiration_time_minutes=5)
    topic = await bench.open()
    await bench.subscribe()
    await delete_unused_subscriptions(topic)
    bench.pass_time(200)
    consumer = Consumer(FakeConnection(), ConsumerSpec(1, NAME, "s", EXCLUSIVE))
    await topic.subscriptions.subscribe(consumer, SubscribeRequest("s"))
    consumer.subscription.remove_consumer(consumer)
    bench.pass_time(200)
    await delete_unused_subscriptions(topic)
    assert "s" in topic.subscriptions.by_name
    bench.pass_time(301)
    await delete_unused_subscriptions(topic)
    assert not topic.subscriptions.by_name
    await bench.close()
