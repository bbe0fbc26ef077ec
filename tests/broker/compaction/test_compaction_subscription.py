"""The cursor `__compaction` is seen as a subscription, and only compaction moves it."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from magnetar.broker.admin_backend.topic_figures import internal_stats
from magnetar.broker.compaction.topic_compaction import COMPACTION_CURSOR
from magnetar.broker.consumers.consumer import EXCLUSIVE, Consumer, ConsumerSpec
from magnetar.broker.errors import NotAllowedError
from magnetar.broker.policies.values import BacklogQuota
from magnetar.broker.subscriptions.subscription_stats import subscription_stats
from magnetar.broker.topics import expiry, quotas
from magnetar.broker.topics.expiry import is_deletable
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import EARLIEST, LATEST
from tests.broker.compaction_for_tests import batch, read_on, single
from tests.broker.topic_for_tests import TopicBench
from tests.storage.managed_for_tests import append
from tests.twins.fake_connection import FakeConnection

BODIES = (single("a", b"1"), single("a", b"2"))


async def compacted(bench=None, bodies=BODIES, **settings):
    bench = bench or TopicBench(**settings)
    topic = await bench.open()
    await append(topic.ledger, list(bodies))
    assert topic.compaction.start()
    await topic.compaction.wait()
    assert topic.compaction.status().status == "SUCCESS"
    return bench, topic


def ack_of(position):
    command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
    command.message_id.add(ledgerId=position.ledger_id, entryId=position.entry_id)
    return command


class Reader:
    """As much of a consumer as an acknowledgement needs."""

    sub_type = 0
    last_acked_ms = 0
    name = "reader"


async def test_it_is_a_subscription_from_the_first_compaction_on_and_after_a_reload():
    bench = TopicBench()
    topic = await bench.open()
    assert COMPACTION_CURSOR not in topic.subscriptions.by_name
    bench, topic = await compacted(bench)
    assert list(topic.subscriptions.by_name) == [COMPACTION_CURSOR]
    topic = await bench.reopen()
    assert list(topic.subscriptions.by_name) == [COMPACTION_CURSOR]
    assert topic.subscriptions.by_name[COMPACTION_CURSOR].cursor.backlog_entries == 0
    await bench.publish(b"x")
    assert subscription_stats(topic.subscriptions.by_name[COMPACTION_CURSOR]).msg_backlog == 1


async def test_clients_can_neither_acknowledge_nor_move_it():
    bench, topic = await compacted()
    (position,) = await bench.publish(b"not compacted yet")
    subscription = topic.subscriptions.by_name[COMPACTION_CURSOR]
    before = subscription.cursor.mark_delete
    subscription.on_ack(Reader(), ack_of(position))
    with pytest.raises(NotAllowedError):
        await subscription.seek(position.next())
    with pytest.raises(NotAllowedError):
        await topic.subscriptions.skip(subscription, 1)
    with pytest.raises(NotAllowedError):
        await expiry.expire_up_to(topic, subscription, position)
    assert subscription.cursor.mark_delete == before


async def test_expiry_and_eviction_pass_it_by():
    quota = BacklogQuota(limit_size=10, policy="consumer_backlog_eviction")
    bench, topic = await compacted(ttl_duration_default_in_seconds=10, subscription_expiration_time_minutes=1)
    user = await bench.subscribe()
    await bench.set_namespace(backlog_quota_map={"destination_storage": quota})
    await bench.publish(*[b"x" * 100] * 5)
    cursor = topic.subscriptions.by_name[COMPACTION_CURSOR].cursor
    assert (user.cursor.backlog_entries, cursor.backlog_entries) == (7, 5)
    await quotas.enforce(topic)
    assert user.cursor.backlog_entries < 5
    await expiry.delete_unused_subscriptions(topic)
    bench.pass_time(120)
    await expiry.expire_by_ttl(topic)
    assert (user.cursor.backlog_entries, cursor.backlog_entries) == (0, 5)
    await expiry.delete_unused_subscriptions(topic)
    assert list(topic.subscriptions.by_name) == [COMPACTION_CURSOR]


async def test_a_compacted_topic_is_not_deleted_as_one_without_subscriptions():
    bench, topic = await compacted(broker_delete_inactive_topics_max_inactive_duration_seconds=5)
    bench.pass_time(10)
    assert not is_deletable(topic)
    await topic.subscriptions.delete(COMPACTION_CURSOR)
    bench.pass_time(5)
    assert is_deletable(topic)


@pytest.mark.parametrize("skip", [False, True])
async def test_the_setting_skips_damaged_entries(skip):
    bench = TopicBench(auto_skip_non_recoverable_data=skip)
    bench.ground.ledgers.cached = False
    topic = await bench.open()
    ids = await append(topic.ledger, [single("a", b"1"), single("b", b"2"), single("c", b"3")])
    bench.ground.ledgers.corrupt.add(ids[1])
    topic.compaction.start()
    await topic.compaction.wait()
    assert topic.compaction.status().status == ("SUCCESS" if skip else "ERROR")
    if skip:
        assert topic.compaction.current().ledger.entries == 2


@pytest.mark.parametrize("skip", [False, True])
async def test_the_setting_skips_lost_ledgers(skip):
    bench = TopicBench(auto_skip_non_recoverable_data=skip)
    bench.ground.ledgers.cached = False
    topic = await bench.open()
    (lost,) = await append(topic.ledger, [single("a", b"1")])
    await topic.ledger.roll()
    await append(topic.ledger, [single("b", b"2"), single("c", b"3")])
    await bench.ground.ledgers.delete(lost.ledger_id)
    topic.compaction.start()
    await topic.compaction.wait()
    assert topic.compaction.status().status == ("SUCCESS" if skip else "ERROR")
    if skip:
        assert topic.compaction.current().ledger.entries == 2


async def test_its_deletion_deletes_the_compacted_topic():
    bench, topic = await compacted()
    ledger_id = topic.compaction.current().ledger.ledger_id
    await topic.subscriptions.delete(COMPACTION_CURSOR)
    assert topic.compaction.current() is None
    assert ledger_id not in await bench.ground.ledgers.list_ledgers()
    assert topic.compaction.start()
    await topic.compaction.wait()
    assert topic.compaction.current().ledger.entries == 1
    topic = await bench.reopen()
    assert topic.compaction.current().ledger.entries == 1


async def test_its_deletion_waits_for_a_run_and_refuses_another():
    _, topic = await compacted()
    await append(topic.ledger, [single("b", b"3")])
    assert topic.compaction.start()
    deleting = asyncio.create_task(topic.subscriptions.delete(COMPACTION_CURSOR))
    await asyncio.sleep(0)
    assert not topic.compaction.start()
    await deleting
    assert topic.compaction.status().status == "SUCCESS"
    assert topic.compaction.current() is None
    assert COMPACTION_CURSOR not in topic.ledger.cursors


async def test_a_policy_of_compaction_shows_no_cursor_that_is_being_deleted():
    bench, topic = await compacted()
    await append(topic.ledger, [single("b", b"3")])
    assert topic.compaction.start()
    deleting = asyncio.create_task(topic.subscriptions.delete(COMPACTION_CURSOR))
    await asyncio.sleep(0)
    await bench.set_namespace(compaction_threshold=1 << 20)
    await topic.config_changed()
    await deleting
    assert list(topic.subscriptions.by_name) == list(topic.ledger.cursors) == []


async def test_a_policy_of_compaction_creates_it():
    bench = TopicBench()
    topic = await bench.open()
    await append(topic.ledger, [single("a", b"1")])
    await bench.set_namespace(compaction_threshold=1 << 20)
    await topic.config_changed()
    assert topic.subscriptions.by_name[COMPACTION_CURSOR].cursor.backlog_entries == 1
    await topic.subscriptions.delete(COMPACTION_CURSOR)
    topic = await bench.reopen()
    assert list(topic.subscriptions.by_name) == [COMPACTION_CURSOR]


@pytest.mark.parametrize(("keys", "index"), [("a", -1), ("ab", 1), ("aab", 2), ("abb", 2)])
async def test_the_last_message_of_a_compacted_batch(keys, index):
    """Verified against Apache Pulsar 4.2.4: a batch of a single message has no index."""
    _, topic = await compacted(bodies=[batch(*((key, b"x") for key in keys))])
    _, found = await topic.last_message_id(read_compacted=True)
    assert found == index


async def test_a_reader_goes_on_behind_its_last_message_where_the_log_has_dropped_all_entries():
    bench, _ = await compacted(bodies=(single("a", b"1"), single("b", b"2")))
    await bench.reopen()
    await bench.trim()
    topic = await bench.reopen()
    assert not topic.ledger.ledgers
    horizon = topic.compaction.current().horizon
    for start, entries in ((EARLIEST, 2), (horizon, 1)):
        request = SubscribeRequest("r", durable=False, from_earliest=True, start=start, read_compacted=True)
        reader = await topic.subscriptions.create(request)
        found = reader.context.reader.read(10, 1 << 20)
        spans = await found if inspect.isawaitable(found) else found
        assert sum(span.entries for span in spans) == entries
        topic.subscriptions._on_empty(reader)


async def test_a_reader_gets_values_whose_ledgers_the_log_drops_before_its_first_read():
    bench = TopicBench()
    topic = await bench.open()
    first, last = await append(topic.ledger, [single("a", b"1"), single("b", b"2")])
    topic = await bench.reopen()
    request = SubscribeRequest("r", durable=False, start=last, read_compacted=True)
    reader = await topic.subscriptions.create(request)
    assert topic.compaction.start()
    await topic.compaction.wait()
    await append(topic.ledger, [single("c", b"3")])
    await bench.trim()
    assert topic.ledger.first_position > last
    reading = reader.context.reader
    positions = []
    while len(positions) < 2:
        found = reading.read(10, 1 << 20)
        spans = await found if inspect.isawaitable(found) else found
        assert spans, positions
        positions += [span.slab.position(k) for span in spans for k in range(span.start, span.end)]
    assert positions == [last, topic.ledger.last_confirmed]


async def test_the_internal_statistics_show_no_property_of_the_earlier_part():
    """Apache Pulsar has no such properties of a cursor."""
    bench, _ = await compacted(bodies=(single("a", b"1"), single("b", b"2")))
    await bench.reopen()
    await bench.trim()
    topic = await bench.reopen()
    request = SubscribeRequest("s", from_earliest=True, read_compacted=True)
    subscription = await topic.subscriptions.create(request)
    assert subscription.cursor.position_properties
    assert (await internal_stats(topic))["cursors"]["s"]["properties"] == {}


@pytest.mark.parametrize(("start", "kept"), [(None, True), (EARLIEST, True), (LATEST, False)])
async def test_a_reader_without_a_start_begins_at_the_first_compacted_message(start, kept):
    bench, topic = await compacted(bodies=(single("a", b"1"), single("b", b"2"), single("a", b"3")))
    behind = await append(topic.ledger, [single("c", b"4")])
    spec = ConsumerSpec(1, topic.name, "r", EXCLUSIVE, durable=False, read_compacted=True)
    request = SubscribeRequest("r", durable=False, start=start, read_compacted=True)
    subscription = await topic.subscriptions.subscribe(Consumer(FakeConnection(), spec), request)
    got = [position for position, _ in await read_on(subscription.context.reader)]
    assert [position.entry_id for position in got if position not in behind] == ([1, 2] if kept else [])
    assert bool(set(got) & set(behind)) == (start == EARLIEST), "from no start, the log begins behind its last entry"
    await bench.close()
