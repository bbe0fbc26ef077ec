"""Deletions of partitioned topics beside requests and clients that create partitions."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from magnetar.broker.consumers.consumer import EXCLUSIVE, Consumer, ConsumerSpec
from magnetar.broker.errors import RestError, ServiceNotReadyError
from magnetar.broker.topics.catalog import PartitionedTopic, partitioned_path
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageUnavailableError
from tests.twins.fake_connection import FakeConnection
from tests.waiting import until

NAME = TopicName.parse("persistent://public/default/t")


async def is_gone(broker):
    catalog = broker.topics.catalog
    assert catalog.partitioned(NAME) is None
    assert await catalog._metadata.get(partitioned_path(NAME)) is None
    assert catalog.names(NAME.namespace) == [], "partitions that are topics of their own"
    return True


@pytest.fixture
def recording(broker, monkeypatch):
    """A function that holds the record of a partition: gives an event for its begin and an event for its release."""
    topics, make_known = broker.topics, broker.topics.make_known

    def hold(index):
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def waits(part):
            if part == NAME.partition_name(index):
                reached.set()
                await go_on.wait()
            await make_known(part)

        monkeypatch.setattr(topics, "make_known", waits)
        return reached, go_on

    return hold


@pytest.fixture
def ending(broker, monkeypatch):
    """A function that holds a deletion at the end of a partition: gives an event for its begin and its release."""
    topics, delete = broker.topics, broker.topics.delete

    def hold(index):
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def waits(part, condition=None):
            try:
                await delete(part, condition)
            finally:
                if part.partition == index:
                    reached.set()
                    await go_on.wait()

        monkeypatch.setattr(topics, "delete", waits)
        return reached, go_on

    return hold


async def test_missed_partitions_are_not_made_while_the_topic_is_deleted(broker, ending):
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.topics.delete(NAME.partition_name(1))
    reached, go_on = ending(1)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(NAME))
    await asyncio.wait_for(reached.wait(), 60)
    with pytest.raises(ServiceNotReadyError, match="is being deleted"):
        await broker.lifecycle.create_missed_partitions(NAME)
    go_on.set()
    await deletion
    assert await is_gone(broker)


async def test_a_missed_partition_that_is_made_as_the_deletion_begins_goes_again(broker, recording, ending):
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.topics.delete(NAME.partition_name(1))
    recorded, record = recording(1)
    reached, go_on = ending(1)
    creation = asyncio.create_task(broker.lifecycle.create_missed_partitions(NAME))
    await asyncio.wait_for(recorded.wait(), 60)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(NAME))
    await asyncio.wait_for(reached.wait(), 60)
    record.set()
    go_on.set()
    await asyncio.gather(creation, deletion)
    assert await is_gone(broker)


async def test_a_missed_partition_goes_again_if_another_broker_deletes_the_topic(broker, recording, monkeypatch):
    """The watch of the record has not reported the mark of the deletion yet."""
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.topics.delete(NAME.partition_name(1))
    recorded, record = recording(1)
    monkeypatch.setattr(broker.lifecycle, "_elsewhere", object())
    creation = asyncio.create_task(broker.lifecycle.create_missed_partitions(NAME))
    await asyncio.wait_for(recorded.wait(), 60)
    marked = msgspec.json.encode(PartitionedTopic(2, deleted=True))
    await broker.topics.catalog._metadata.put(partitioned_path(NAME), marked)
    record.set()
    await creation
    assert broker.topics.catalog.names(NAME.namespace) == [str(NAME.partition_name(0))]


async def test_the_mark_of_a_failed_deletion_goes_when_the_metadata_service_is_back(broker, monkeypatch):
    lifecycle, catalog = broker.lifecycle, broker.topics.catalog
    monkeypatch.setattr("magnetar.broker.topics.lifecycle._MARK_AGAIN_S", 0.01)
    monkeypatch.setattr(lifecycle, "_elsewhere", object())
    await lifecycle.create_partitioned(NAME, 2, {})
    update, answers = catalog.update_partitioned, []

    async def away(name, change):
        if change(PartitionedTopic(2)).deleted or len(answers) >= 3:
            await update(name, change)
        else:
            answers.append(name)
            raise StorageUnavailableError("no answer")

    async def fails(_part):
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(catalog, "update_partitioned", away)
    monkeypatch.setattr(broker.topics, "delete", fails)
    with pytest.raises(StorageUnavailableError):
        await lifecycle.delete_partitioned(NAME)
    assert catalog.partitioned(NAME).deleted
    await until(lambda: not catalog.partitioned(NAME).deleted)
    assert len(answers) == 3


async def test_repeated_deletions_that_fail_leave_one_task_that_withdraws_the_mark(broker, monkeypatch):
    """Each left a task of its own, which logged a line a second until the metadata service took the report."""
    lifecycle, catalog = broker.lifecycle, broker.topics.catalog
    monkeypatch.setattr(lifecycle, "_elsewhere", object())
    await lifecycle.create_partitioned(NAME, 2, {})

    async def fails(*_):
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(catalog, "update_partitioned", fails)
    monkeypatch.setattr(broker.topics, "delete", fails)
    before = len(broker.tasks)
    for _ in range(5):
        with pytest.raises(StorageUnavailableError):
            await lifecycle.delete_partitioned(NAME)
    assert len(broker.tasks) <= before + 1


async def test_a_client_does_not_bring_a_non_persistent_partition_back(broker, ending):
    name = TopicName.parse("non-persistent://public/default/t")
    await broker.lifecycle.create_partitioned(name, 2, {})
    await broker.topics.get(name.partition_name(1), create=True)
    reached, go_on = ending(1)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(name))
    await asyncio.wait_for(reached.wait(), 60)
    with pytest.raises(ServiceNotReadyError, match="is being deleted"):
        await broker.topics.get(name.partition_name(1), create=True)
    go_on.set()
    await deletion
    assert str(name.partition_name(1)) not in broker.topics.loaded


async def test_a_deletion_of_a_partition_learns_of_the_deletion_of_its_topic(broker, monkeypatch):
    """Another broker deletes the topic; a client of the partition connects again at once."""
    name = TopicName.parse("non-persistent://public/default/t")
    part = name.partition_name(1)
    await broker.lifecycle.create_partitioned(name, 2, {})
    await broker.topics.get(part, create=True)
    monkeypatch.setattr(broker.lifecycle, "_elsewhere", object())
    marked = msgspec.json.encode(PartitionedTopic(2, deleted=True))
    await broker.topics.catalog._metadata.put(partitioned_path(name), marked)
    await broker.lifecycle.delete(part)
    with pytest.raises(ServiceNotReadyError, match="is being deleted"):
        await broker.topics.get(part, create=True)


async def consumed(broker, part):
    """A consumer subscribes to the partition."""
    topic = await broker.topics.get(part, create=True)
    consumer = Consumer(FakeConnection(), ConsumerSpec(1, part, "jobs", EXCLUSIVE))
    await topic.subscriptions.subscribe(consumer, SubscribeRequest("jobs", from_earliest=True))
    return topic


@pytest.mark.parametrize("force", [True, False])
async def test_a_deletion_without_force_leaves_a_partition_to_which_a_client_came_meanwhile(broker, ending, force):
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    reached, go_on = ending(0)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(NAME, force=force))
    await asyncio.wait_for(reached.wait(), 60)
    topic = None if force else await consumed(broker, NAME.partition_name(1))
    go_on.set()
    if force:
        await deletion
        assert await is_gone(broker)
        return
    with pytest.raises(RestError, match="1 client connected Including 1 consumers") as refusal:
        await deletion
    assert refusal.value.status == 412
    assert topic.is_open
    assert broker.topics.catalog.names(NAME.namespace) == [str(NAME.partition_name(1))]
    assert not broker.topics.catalog.is_ending(NAME)


async def test_a_client_of_another_partition_keeps_a_topic_whose_last_partition_is_inactive(broker):
    """The load of the other partition, which was deleted alone before, is under way when the last partition goes."""
    broker.topics.context.settings.change("broker_delete_inactive_partitioned_topic_metadata_enabled", True)
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.topics.delete(NAME.partition_name(1))
    await broker.topics.get(NAME.partition_name(0), create=True)
    broker.topics._loads = loads = asyncio.Semaphore(1)
    async with loads:
        deleting = asyncio.create_task(broker.lifecycle.delete_inactive(NAME.partition_name(0), lambda _: True))
        await asyncio.sleep(0)
        coming = asyncio.create_task(consumed(broker, NAME.partition_name(1)))
        await asyncio.sleep(0.01)
    await deleting
    assert (await coming).is_open
    assert broker.topics.catalog.partitioned(NAME) == PartitionedTopic(2)


@pytest.mark.parametrize("condition", [None, lambda _topic: True])
async def test_only_a_deletion_without_condition_is_by_force_at_another_broker(broker, monkeypatch, condition):
    """The bundle of the topic has moved since the route or the check for inactive topics looked."""
    calls = []

    class Elsewhere:
        async def delete(self, name, *, force):
            calls.append((name, force))

    monkeypatch.setattr(broker.lifecycle, "_elsewhere", Elsewhere())
    monkeypatch.setattr(type(broker.topics.context), "serves", lambda _context, _name: False)
    await broker.lifecycle.delete(NAME, condition)
    assert calls == [(NAME, condition is None)]
