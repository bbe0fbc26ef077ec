"""Deletions of topics that a failure or the end of the broker cut off: the next load or the next start completes them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import structlog

from magnetar.broker.errors import RestError, ServiceNotReadyError, TopicNotFoundError
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.topics.catalog import partitioned_path
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageClosedError, StorageFullError
from tests.broker.admin_fakes import Client
from tests.storage.managed_for_tests import append, message
from tests.waiting import until

NAME = TopicName.parse("persistent://public/default/t")


@pytest.fixture
async def ruled(broker):
    """The topic with a schema and a policy of its own."""
    await broker.topics.get(NAME, create=True)
    await broker.stored.schemas.put(NAME, pb.Schema.String, b"", {}, Strategy.FULL)
    await broker.stored.namespaces.update_topic(NAME, lambda old: msgspec.structs.replace(old, max_consumers=7))
    return broker


async def belongings(broker):
    return await broker.stored.schemas.history(NAME), broker.stored.namespaces.topic_policies(NAME).max_consumers


@pytest.mark.parametrize("partitioned", [False, True])
async def test_schemas_and_policies_go_before_their_topic(broker, monkeypatch, partitioned):
    """A broker that died between the two left them to the next topic of that name, and no deletion took them."""
    lifecycle, catalog, found = broker.lifecycle, broker.topics.catalog, []
    await (lifecycle.create_partitioned(NAME, 2, {}) if partitioned else lifecycle.create(NAME, {}))
    await broker.stored.schemas.put(NAME, pb.Schema.String, b"", {}, Strategy.FULL)
    await broker.stored.namespaces.update_topic(NAME, lambda old: msgspec.structs.replace(old, max_consumers=7))
    delete = catalog._metadata.delete

    async def noting(path, *arguments):
        if path == partitioned_path(NAME) or NAME.persistence_name in path:
            found.append((path, await belongings(broker)))
        await delete(path, *arguments)

    monkeypatch.setattr(catalog._metadata, "delete", noting)
    await (lifecycle.delete_partitioned(NAME) if partitioned else lifecycle.delete(NAME))
    last_path, last = found[-1]
    assert last_path == partitioned_path(NAME) or not partitioned
    assert last == ([], None)


async def test_the_next_load_completes_a_deletion_whose_schemas_stayed(ruled, monkeypatch):
    """The topic was gone behind the failure, and with it the way to delete its schemas and policies."""
    store = ruled.stored.schemas._store

    async def full(_path):
        raise StorageFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "delete", full)
        with pytest.raises(StorageFullError):
            await ruled.lifecycle.delete(NAME)
    assert ruled.topics.known(NAME)
    assert await belongings(ruled) != ([], None)
    with pytest.raises(TopicNotFoundError):
        await ruled.lifecycle.persistent(NAME)
    assert await belongings(ruled) == ([], None)
    assert not ruled.topics.known(NAME)


async def cut_off_deletion(ruled, monkeypatch):
    """Delete the topic with a store that fails before the end."""

    async def stops(_path, *_arguments):
        raise StorageClosedError("stopping")

    with monkeypatch.context() as patch:
        patch.setattr(ruled.topics.catalog._metadata, "delete", stops)
        with pytest.raises(StorageClosedError):
            await ruled.lifecycle.delete(NAME)
    assert ruled.topics.known(NAME)


async def test_the_start_completes_a_deletion_that_was_cut_off(ruled, monkeypatch):
    """Behind the cursors, a topic was left with its entries, no subscription and no ids of its producers: a message that
    was sent again was stored twice.
    """
    topic = ruled.topics.loaded[str(NAME)]
    await topic.subscriptions.create(SubscribeRequest("s", from_earliest=True))
    await append(topic.ledger, [message()])
    await cut_off_deletion(ruled, monkeypatch)
    await ruled.topics.complete_deletions()
    assert not ruled.topics.known(NAME)
    assert await belongings(ruled) == ([], None)
    assert await ruled.stored.stores.ledgers.list_ledgers() == []
    assert await ruled.stored.stores.metadata.children("/deleted-managed-ledgers") == []
    again = await ruled.topics.get(NAME, create=True)
    assert (again.ledger.entries, list(again.subscriptions.by_name)) == (0, [])
    await ruled.topics.complete_deletions()
    assert ruled.topics.known(NAME)


PLACE = "public/default/t"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", f"persistent/{PLACE}/maxConsumers", 9, 404),
        ("DELETE", f"persistent/{PLACE}/maxConsumers", None, 404),
        ("POST", f"schemas/{PLACE}/schema", {"type": "STRING", "schema": "", "properties": {}}, 200),
        ("POST", f"persistent/{PLACE}/permissions/r", ["produce"], 404),
    ],
)
async def test_a_change_behind_a_deletion_that_was_cut_off_is_no_part_of_the_deletion(
    ruled, monkeypatch, method, path, body, status
):
    """The next load of the topic completed the deletion, with policies, schemas and grants that were set meanwhile."""
    await cut_off_deletion(ruled, monkeypatch)
    assert (await Client(ruled.admin_services(None, None))(method, path, body)).status == status
    assert not ruled.topics.known(NAME)
    before = await belongings(ruled), ruled.stored.namespaces.policies("public/default")
    await ruled.topics.get(NAME, create=True)
    assert (await belongings(ruled), ruled.stored.namespaces.policies("public/default")) == before
    assert (len(before[0][0]), before[0][1]) == (int(path.startswith("schemas")), None)


async def test_a_load_with_creation_begins_with_an_empty_topic_behind_a_deletion_that_was_cut_off(ruled, monkeypatch):
    topic = ruled.topics.loaded[str(NAME)]
    await append(topic.ledger, [message()])

    async def fails():
        raise StorageClosedError("stopping")

    with monkeypatch.context() as patch:
        patch.setattr(topic.delay_index, "delete", fails)
        with pytest.raises(StorageClosedError):
            await ruled.lifecycle.delete(NAME)
    again = await ruled.topics.get(NAME, create=True)
    assert (again.ledger.entries, await belongings(ruled)) == (0, ([], None))


async def test_a_deletion_of_a_topic_of_another_broker_is_left_to_that_broker(ruled, monkeypatch):
    topic = ruled.topics.loaded[str(NAME)]
    await topic.ledger.begin_deletion()
    await ruled.topics.unload(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(ruled.topics.context, "serves", lambda _name: False)
        await ruled.topics.complete_deletions()
    assert ruled.topics.known(NAME)
    await ruled.topics.complete_deletions()
    assert not ruled.topics.known(NAME)


async def test_a_topic_is_gone_though_a_ledger_of_it_cannot_be_deleted(ruled, monkeypatch):
    """The request failed behind the end of the topic, and the next look at the topic made it again, empty."""
    await append(ruled.topics.loaded[str(NAME)].ledger, [message()])

    async def fails(_ledger_id):
        raise StorageFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(ruled.stored.stores.ledgers, "delete", fails)
        await ruled.lifecycle.delete(NAME)
    assert not ruled.topics.known(NAME)
    with pytest.raises(TopicNotFoundError):
        await ruled.lifecycle.persistent(NAME)
    await ruled.topics.complete_deletions()
    assert await ruled.stored.stores.ledgers.list_ledgers() == []


async def test_a_ledger_that_cannot_be_deleted_leaves_no_other_deletion_undone(ruled, monkeypatch):
    """Notes are read in the order of the names of their logs; the error of a ledger ended the look."""
    ledgers, other = ruled.stored.stores.ledgers, TopicName.parse("persistent://public/default/u")
    await append(ruled.topics.loaded[str(NAME)].ledger, [message()])
    await ruled.lifecycle.create(other, {})
    delete, stuck = ledgers.delete, set(await ledgers.list_ledgers())

    async def fails(ledger_id):
        if ledger_id in stuck:
            raise StorageFullError("full")
        await delete(ledger_id)

    with monkeypatch.context() as patch:
        patch.setattr(ledgers, "delete", fails)
        await ruled.lifecycle.delete(NAME)
        await ruled.topics.loaded[str(other)].ledger.begin_deletion()
        await ruled.topics.unload(other)
        await ruled.topics.complete_deletions()
        assert not ruled.topics.known(other)
        assert stuck & set(await ledgers.list_ledgers())
    await ruled.topics.complete_deletions()
    assert await ledgers.list_ledgers() == []


async def test_ledgers_of_a_deletion_that_is_under_way_are_left_to_it(ruled, monkeypatch):
    topic, ledgers = ruled.topics.loaded[str(NAME)], ruled.stored.stores.ledgers
    await append(topic.ledger, [message()])
    reached, go_on, delete, deleted = asyncio.Event(), asyncio.Event(), ledgers.delete, []

    async def slow(ledger_id):
        deleted.append(ledger_id)
        reached.set()
        await go_on.wait()
        await delete(ledger_id)

    monkeypatch.setattr(ledgers, "delete", slow)
    deletion = asyncio.create_task(ruled.lifecycle.delete(NAME))
    await asyncio.wait_for(reached.wait(), 60)
    await ruled.topics.complete_deletions()
    go_on.set()
    await deletion
    assert len(deleted) == len(set(deleted))
    assert await ledgers.list_ledgers() == []


async def test_a_look_for_deletions_waits_for_a_deletion_that_is_under_way(ruled, monkeypatch):
    topics, (reached, go_on) = ruled.topics, (asyncio.Event(), asyncio.Event())
    forget = topics.forget

    async def slow(name):
        reached.set()
        await go_on.wait()
        await forget(name)

    monkeypatch.setattr(topics, "forget", slow)
    deletion = asyncio.create_task(ruled.lifecycle.delete(NAME))
    await asyncio.wait_for(reached.wait(), 60)
    look = asyncio.create_task(topics.complete_deletions())
    with structlog.testing.capture_logs() as logged:
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(deletion, look)
    assert [each for each in logged if each["event"] == "topic.deletion_not_completed"] == []
    assert not topics.known(NAME)


async def test_a_running_broker_completes_deletions_from_time_to_time(ruled, monkeypatch):
    """In a cluster another broker may die within a deletion, and no broker start afterwards."""
    await ruled.topics.loaded[str(NAME)].ledger.begin_deletion()
    await ruled.topics.unload(NAME)
    maintenance = ruled.maintenance
    await maintenance.close()
    monkeypatch.setattr("magnetar.broker.maintenance.DELETIONS_EVERY_S", 0.001)
    maintenance.settings_changed()
    await until(lambda: not ruled.topics.known(NAME))
    await maintenance.close()


async def test_a_repeated_deletion_completes_the_first(ruled):
    """The request that deleted the topic was answered that there is none."""
    await ruled.topics.loaded[str(NAME)].ledger.begin_deletion()
    await ruled.topics.unload(NAME)
    await ruled.lifecycle.delete(NAME)
    assert not ruled.topics.known(NAME)
    with pytest.raises(TopicNotFoundError):
        await ruled.lifecycle.delete(NAME)


async def test_a_deletion_that_cannot_be_completed_holds_no_other(ruled, monkeypatch):
    other = TopicName.parse("persistent://public/default/u")
    await ruled.topics.get(other, create=True)
    for name in (NAME, other):
        await ruled.topics.loaded[str(name)].ledger.begin_deletion()
        await ruled.topics.unload(name)

    async def fails(name):
        if name == NAME:
            raise StorageFullError("full")

    with monkeypatch.context() as patch:
        patch.setattr(ruled.topics, "forget", fails)
        await ruled.topics.complete_deletions()
    assert (ruled.topics.known(NAME), ruled.topics.known(other)) == (True, False)


@pytest.mark.parametrize("takes", [True, False])
async def test_a_deletion_in_a_bundle_without_an_owner_gets_an_owner(ruled, monkeypatch, takes):
    """Such a topic stayed listed until a client looked its bundle up."""
    await ruled.topics.loaded[str(NAME)].ledger.begin_deletion()
    await ruled.topics.unload(NAME)
    served, looked_up = set(), []

    class Elsewhere:
        async def find_owner(self, name):
            looked_up.append(name)
            if not takes:
                raise RestError(503, "no broker")
            served.add(name)

    monkeypatch.setattr(ruled.topics.context, "serves", served.__contains__)
    monkeypatch.setattr(ruled.lifecycle, "_elsewhere", Elsewhere())
    await ruled.lifecycle.complete_deletions()
    assert (looked_up, ruled.topics.known(NAME)) == ([NAME], not takes)


PARTITIONED = TopicName.parse("persistent://public/default/partitioned")


async def deletion_halfway(broker, monkeypatch, *, fails=False):
    """Delete a topic of three partitions up to its second partition; return the deletion and its release."""
    topics, reached, go_on = broker.topics, asyncio.Event(), asyncio.Event()
    delete = topics.delete

    async def waits(part):
        if part == PARTITIONED.partition_name(1):
            reached.set()
            await go_on.wait()
            if fails:
                raise StorageFullError("full")
        await delete(part)

    await broker.lifecycle.create_partitioned(PARTITIONED, 3, {})
    monkeypatch.setattr(topics, "delete", waits)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(PARTITIONED))
    await asyncio.wait_for(reached.wait(), 60)
    await until(lambda: not topics.known(PARTITIONED.partition_name(0)))
    return deletion, go_on


async def test_a_client_that_connects_again_brings_no_partition_back_during_the_deletion(broker, monkeypatch):
    """A producer of a large topic connected again 100 ms after its partition was deleted, and created it: the partition
    stayed without its partitioned topic.
    """
    deletion, go_on = await deletion_halfway(broker, monkeypatch)
    first, second = PARTITIONED.partition_name(0), PARTITIONED.partition_name(1)
    with pytest.raises(ServiceNotReadyError):
        await broker.topics.get(first, create=True)
    assert not broker.topics.known(first)
    assert (await broker.topics.get(second, create=True)).name == second  # the partition exists until its turn
    go_on.set()
    await deletion
    assert broker.topics.catalog.names("public/default") == []
    await broker.lifecycle.create_partitioned(PARTITIONED, 3, {})
    await broker.topics.delete(first)
    assert (await broker.topics.get(first, create=True)).name == first


async def test_a_partition_that_a_client_creates_right_before_the_deletion_is_deleted(broker, monkeypatch):
    """A creation whose load had begun was not known to the deletion."""
    first, opens, go_on = PARTITIONED.partition_name(0), asyncio.Event(), asyncio.Event()
    await broker.lifecycle.create_partitioned(PARTITIONED, 1, {})
    await broker.topics.delete(first)
    load = broker.topics._load_persistent

    async def slow(name):
        opens.set()
        await go_on.wait()
        await load(name)

    monkeypatch.setattr(broker.topics, "_load_persistent", slow)
    client = asyncio.create_task(broker.topics.get(first, create=True))
    await asyncio.wait_for(opens.wait(), 60)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(PARTITIONED))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({client, deletion})
    deletion.result()
    assert broker.topics.catalog.names("public/default") == []


async def test_a_deletion_that_fails_lets_clients_create_partitions_again(broker, monkeypatch):
    deletion, go_on = await deletion_halfway(broker, monkeypatch, fails=True)
    go_on.set()
    with pytest.raises(StorageFullError):
        await deletion
    first = PARTITIONED.partition_name(0)
    assert (await broker.topics.get(first, create=True)).name == first


class Elsewhere:
    """Other brokers; they serve no topic."""

    async def delete(self, name, *, force): ...


@pytest.mark.parametrize("fails", [False, True])
async def test_other_brokers_learn_of_a_deletion_and_of_its_failure(broker, monkeypatch, fails):
    monkeypatch.setattr(broker.lifecycle, "_elsewhere", Elsewhere())
    monkeypatch.setattr(type(broker.topics.context), "serves", lambda _context, _name: True)
    deletion, go_on = await deletion_halfway(broker, monkeypatch, fails=fails)
    metadata, path = broker.topics.catalog._metadata, partitioned_path(PARTITIONED)
    marked = msgspec.json.decode((await metadata.get(path))[0])
    assert marked == {"partitions": 3, "deleted": True, "deleter": marked["deleter"]}
    go_on.set()
    await asyncio.wait({deletion})
    stored = await metadata.get(path)
    assert msgspec.json.decode(stored[0]) == {"partitions": 3} if fails else stored is None
    assert not broker.topics.catalog.is_ending(PARTITIONED)


async def test_a_deletion_at_another_broker_lets_clients_create_no_partition(broker):
    await broker.lifecycle.create_partitioned(PARTITIONED, 2, {})
    await broker.topics.delete(PARTITIONED.partition_name(0))
    await broker.topics.catalog.update_partitioned(PARTITIONED, lambda now: msgspec.structs.replace(now, deleted=True))
    with pytest.raises(ServiceNotReadyError):
        await broker.topics.get(PARTITIONED.partition_name(0), create=True)
    await broker.lifecycle.delete_partitioned(PARTITIONED)
    assert broker.topics.catalog.partitioned(PARTITIONED) is None
