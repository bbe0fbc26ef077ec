"""The marks that deletions of partitioned topics leave in the records, for other brokers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from magnetar.broker.errors import RestError
from magnetar.broker.topics.catalog import PartitionedTopic, partitioned_path
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageUnavailableError
from tests.waiting import until

NAME = TopicName.parse("persistent://public/default/t")


class Elsewhere:
    """Other brokers that are registered beside this broker; they serve no topic."""

    def __init__(self, *brokers):
        self.registered = list(brokers)

    async def brokers(self):
        if not self.registered:
            raise RestError(503, "no answer")
        return self.registered


@pytest.fixture
async def lifecycle(broker, monkeypatch):
    monkeypatch.setattr("magnetar.broker.topics.lifecycle._MARK_AGAIN_S", 0.01)
    monkeypatch.setattr(broker.topics.context, "broker_id", lambda: "b1:8080")
    monkeypatch.setattr(broker.lifecycle, "_elsewhere", Elsewhere("b1:8080", "b2:8080"))
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    return broker.lifecycle


@pytest.fixture
def stored(broker):
    """A function that returns the stored record."""
    metadata = broker.topics.catalog._metadata

    async def read():
        return msgspec.json.decode((await metadata.get(partitioned_path(NAME)))[0], type=PartitionedTopic)

    return read


@pytest.fixture
def mark(broker):
    """A function that marks the record as another broker does, and lets the watch report the mark."""
    catalog = broker.topics.catalog

    async def put(**members):
        await catalog._metadata.put(partitioned_path(NAME), msgspec.json.encode(PartitionedTopic(2, **members)))
        await catalog.reload_partitioned(NAME)

    return put


def failing(broker, monkeypatch, *, unmarked_after):
    """Deletions of partitions fail; the metadata service takes the report of a failure at the numbered attempt."""
    catalog, attempts = broker.topics.catalog, []
    update = catalog.update_partitioned

    async def away(name, change):
        if not change(PartitionedTopic(2)).deleted:
            attempts.append(name)
            if len(attempts) < unmarked_after:
                raise StorageUnavailableError("no answer")
        await update(name, change)

    async def fails(_part):
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(catalog, "update_partitioned", away)
    monkeypatch.setattr(broker.topics, "delete", fails)
    return attempts


async def test_the_withdrawal_of_a_mark_leaves_the_mark_of_another_broker(broker, lifecycle, stored, mark, monkeypatch):
    attempts = failing(broker, monkeypatch, unmarked_after=4)
    with pytest.raises(StorageUnavailableError):
        await lifecycle.delete_partitioned(NAME)
    await mark(deleted=True, deleter="b2:8080;7")
    await until(lambda: len(attempts) >= 4 and not lifecycle._withdrawing)
    assert (await stored()).deleter == "b2:8080;7"
    assert (await stored()).deleted


@pytest.mark.parametrize("deleter", ["", "b2:8080;7"])
async def test_a_failed_deletion_leaves_the_later_mark_of_another_broker(
    broker, lifecycle, stored, mark, monkeypatch, deleter
):
    async def fails(_part):
        await mark(deleted=True, deleter=deleter)
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(broker.topics, "delete", fails)
    with pytest.raises(StorageUnavailableError):
        await lifecycle.delete_partitioned(NAME)
    assert await stored() == PartitionedTopic(2, deleted=True, deleter=deleter)


async def test_of_two_deletions_the_one_that_fails_leaves_the_mark_to_the_other(broker, lifecycle, stored, monkeypatch):
    delete, reached, go_on, ends = broker.topics.delete, asyncio.Event(), asyncio.Event(), []

    async def waits(part, condition):
        if part.partition == 0 and not ends:
            ends.append(part)
            reached.set()
            await go_on.wait()
        elif not go_on.is_set():
            raise StorageUnavailableError("no answer")
        await delete(part, condition)

    monkeypatch.setattr(broker.topics, "delete", waits)
    first = asyncio.create_task(lifecycle.delete_partitioned(NAME, force=False))
    await asyncio.wait_for(reached.wait(), 60)
    with pytest.raises(StorageUnavailableError):
        await lifecycle.delete_partitioned(NAME, force=False)
    assert (await stored()).deleted
    go_on.set()
    await first
    assert broker.topics.catalog.partitioned(NAME) is None


@pytest.mark.parametrize("deleter", ["b3:8080;5", "b1:8080;5"])
async def test_the_mark_of_a_deletion_whose_broker_is_gone_is_withdrawn(lifecycle, stored, mark, deleter):
    """``b1:8080`` was started again since then."""
    await mark(deleted=True, deleter=deleter)
    await lifecycle.complete_deletions()
    assert await stored() == PartitionedTopic(2)
    await lifecycle.create_missed_partitions(NAME)


@pytest.mark.parametrize("deleter", ["b2:8080;5", ""])
async def test_the_mark_of_a_broker_that_may_go_on_stays(lifecycle, stored, mark, deleter):
    await mark(deleted=True, deleter=deleter)
    await lifecycle.complete_deletions()
    assert await stored() == PartitionedTopic(2, deleted=True, deleter=deleter)


async def test_a_mark_stays_while_the_other_brokers_are_not_known(lifecycle, stored, mark):
    lifecycle._elsewhere.registered.clear()
    await mark(deleted=True, deleter="b3:8080;5")
    await lifecycle.complete_deletions()
    assert (await stored()).deleted


async def test_a_mark_that_a_later_deletion_replaces_is_not_withdrawn(broker, lifecycle, stored, mark):
    await mark(deleted=True, deleter="b3:8080;5")
    later = PartitionedTopic(2, deleted=True, deleter="b2:8080;9")
    await broker.topics.catalog._metadata.put(partitioned_path(NAME), msgspec.json.encode(later))
    with capture_logs() as logs:
        await lifecycle.complete_deletions()  # before the watch reports the later mark
    assert await stored() == later
    assert not [line for line in logs if line["event"] == "topic.mark_withdrawn"]


async def test_an_own_mark_without_a_deletion_is_withdrawn(broker, lifecycle, stored, mark):
    with broker.topics.catalog.ending(NAME):
        await mark(deleted=True, deleter=lifecycle._deleter)
        await lifecycle.complete_deletions()
        assert (await stored()).deleted
    await lifecycle.complete_deletions()
    assert not (await stored()).deleted


async def test_a_deletion_that_lost_its_mark_deletes_the_partitions_again(broker, lifecycle, mark, monkeypatch):
    """A broker whose session has ended counts as gone although its deletion goes on; a client of another broker brings
    a partition back meanwhile.
    """
    delete, lost = broker.topics.delete, []

    async def loses(part):
        await delete(part)
        if part.partition == 1 and not lost:
            lost.append(part)
            await mark()
            await broker.topics.make_known(part)

    monkeypatch.setattr(broker.topics, "delete", loses)
    await lifecycle.delete_partitioned(NAME)
    assert broker.topics.catalog.partitioned(NAME) is None
    assert broker.topics.catalog.names(NAME.namespace) == []
