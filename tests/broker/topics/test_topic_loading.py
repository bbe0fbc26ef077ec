"""Topics that are being loaded when the broker or the load ends: none of their parts stays behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from magnetar.broker.compaction.topic_compaction import TopicCompaction
from magnetar.broker.errors import NotAllowedError, ServiceNotReadyError, TopicNotFoundError
from magnetar.broker.foreign_entries.config import ConvertingConfig
from magnetar.broker.foreign_entries.converting_service import Converting
from magnetar.broker.policies.records import bundle_of
from magnetar.broker.policies.values import AutoTopicCreation, BundlesData
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.settings import Settings
from magnetar.broker.slices import SLICE_ITEMS
from magnetar.broker.topics import topic_registry
from magnetar.broker.topics.catalog import PartitionedTopic
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import ManagedLedgerFencedError, StorageClosedError
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.ledger_list import ledger_list_path
from tests.broker.admin.test_long_lists import Turns
from tests.storage.managed_for_tests import append, message

NAME = TopicName.parse("persistent://public/default/t")


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_topics_of_a_domain_that_is_switched_off_are_refused_before_their_existence_matters(
    broker, domain, create
):
    """The text speaks of persistent topics in both cases, as that of Apache Pulsar 4.2.4."""
    off = Settings(enable_persistent_topics=False, enable_non_persistent_topics=False)
    broker.topics.context.settings = off
    with pytest.raises(NotAllowedError, match=r"^Broker is unable to load persistent topic$"):
        await broker.topics.get(TopicName.parse(f"{domain}://public/default/t"), create=create)


async def test_a_failed_load_closes_its_parts(broker, monkeypatch):
    begun = []

    async def fails(self, **_options):
        begun.append(self)
        raise StorageClosedError("the store is closed")

    converting = broker.topics.context.converting = Converting(ConvertingConfig.of(Settings()), lambda: 0)
    indexes = []
    monkeypatch.setattr(TopicCompaction, "open", fails)
    monkeypatch.setattr("magnetar.delayed.bucket_index.BucketDelayIndex.close", lambda self: _note(indexes, self))
    with pytest.raises(StorageClosedError):
        await broker.topics.get(NAME, create=True)
    assert begun
    assert len(indexes) == 1
    assert not broker.topics.loaded
    assert not converting.topics


async def test_a_namespace_is_settled_when_the_loads_under_way_have_ended(broker, monkeypatch):
    """The deletion of a namespace awaits them: the topic would be left without its namespace."""
    reached, go_on, topics = asyncio.Event(), asyncio.Event(), broker.topics
    opened = ManagedLedgerFactory.open

    async def slow(self, *arguments):
        reached.set()
        await go_on.wait()
        return await opened(self, *arguments)

    monkeypatch.setattr(ManagedLedgerFactory, "open", slow)
    load = asyncio.create_task(topics.get(NAME, create=True))
    await asyncio.wait_for(reached.wait(), 60)
    await topics.settled("public/other")
    settled = asyncio.create_task(topics.settled("public/default"))
    assert not (await asyncio.wait({settled}, timeout=0))[0]
    go_on.set()
    await asyncio.wait_for(settled, 60)
    assert topics.catalog.exists(NAME)
    await load


async def _note(seen, index):
    seen.append(index)


async def test_a_stop_waits_for_topics_that_are_being_loaded_and_takes_no_more(broker, monkeypatch):
    go_on, open_, opened = asyncio.Event(), TopicCompaction.open, []

    async def slow(self, **options):
        await go_on.wait()
        await open_(self, **options)
        opened.append(self)

    monkeypatch.setattr(TopicCompaction, "open", slow)
    loading = asyncio.ensure_future(broker.topics.get(NAME, create=True))
    while not broker.topics.busy_count:  # noqa: ASYNC110 - a task's progress
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(broker.topics.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    await asyncio.wait({loading})
    assert opened
    assert not broker.topics.loaded
    with pytest.raises(ServiceNotReadyError):
        await broker.topics.get(TopicName.parse("persistent://public/default/u"), create=True)


@pytest.mark.parametrize("stage", ["log", "parts"])
async def test_a_stop_gives_up_a_load_that_does_not_end(broker, monkeypatch, stage):
    async def never(*_args, **_options):
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    if stage == "log":
        monkeypatch.setattr(ManagedLedgerFactory, "_bring_up", never)
    else:
        monkeypatch.setattr(TopicCompaction, "open", never)
    monkeypatch.setattr(topic_registry, "_LOADS_END_WITHIN_S", 0.01)
    loading = asyncio.ensure_future(broker.topics.get(NAME, create=True))
    await begun.wait()
    async with asyncio.timeout(5):
        await broker.topics.close()
    with pytest.raises(ServiceNotReadyError):
        await loading
    assert not broker.topics.busy_count
    assert not broker.topics.loaded


async def test_a_topic_follows_policies_that_change_during_its_load(broker, monkeypatch):
    begun, go_on, open_ = asyncio.Event(), asyncio.Event(), TopicCompaction.open

    async def slow(self, **options):
        begun.set()
        await go_on.wait()
        await open_(self, **options)

    monkeypatch.setattr(TopicCompaction, "open", slow)
    loading = asyncio.ensure_future(broker.topics.get(NAME, create=True))
    await begun.wait()
    await broker.stored.namespaces.update_topic(
        NAME, lambda policies: msgspec.structs.replace(policies, deduplication_enabled=True)
    )
    assert not loading.done()
    go_on.set()
    topic = await loading
    assert topic.deduplication.enabled


async def test_a_deletion_that_begins_during_an_unload_deletes_the_topic(broker):
    await broker.topics.get(NAME, create=True)
    unloading = asyncio.ensure_future(broker.topics.unload(NAME))
    while not broker.topics.busy_count:  # noqa: ASYNC110 - a task's progress
        await asyncio.sleep(0)
    await broker.topics.delete(NAME)
    await unloading
    assert not broker.topics.known(NAME)


async def test_a_failed_deletion_leaves_no_open_log_to_the_next_load(broker, monkeypatch):
    async def fails(self):
        raise StorageClosedError("the store is closed")

    topic = await broker.topics.get(NAME, create=True)
    with monkeypatch.context() as patch:
        patch.setattr(TopicCompaction, "close", fails)
        with pytest.raises(StorageClosedError):
            await broker.topics.delete(NAME)
    assert topic.life.has_ended
    again = await broker.topics.get(NAME, create=False)
    assert again.ledger is not topic.ledger
    await broker.topics.delete(NAME)
    assert not broker.topics.known(NAME)


@pytest.mark.parametrize("at", ["the index", "the log"])
async def test_a_former_owner_deletes_no_ledger_of_the_index_or_the_compaction(broker, monkeypatch, at):
    """The log gets its next owner before the deletion of the index, or between index and log."""
    topic = await broker.topics.get(NAME, create=True)
    await append(topic.ledger, [message()])
    assert topic.compaction.start()
    await topic.compaction.wait()
    store, metadata, path = topic.ledger.store, topic.ledger._env.metadata, ledger_list_path(topic.ledger.name)
    deleting = topic.delay_index if at == "the index" else topic.ledger
    delete = deleting.delete

    async def lose(*given):
        value, version = await metadata.get(path)
        await metadata.put(path, value, version)  # as the next owner does
        await delete(*given)

    monkeypatch.setattr(deleting, "delete", lose)
    before = await store.list_ledgers()
    with pytest.raises(ManagedLedgerFencedError):
        await broker.topics.delete(NAME)
    assert topic.compaction.ledger_ids <= set(before)
    assert topic.compaction.ledger_ids
    assert await store.list_ledgers() == before
    assert broker.topics.known(NAME)
    assert not broker.topics.loaded


async def test_a_former_owner_deletes_neither_schemas_nor_policies(broker):
    """The next owner of the log serves the topic, with its schemas and policies."""
    topic, stored = await broker.topics.get(NAME, create=True), broker.stored
    await stored.schemas.put(NAME, pb.Schema.String, b"", {}, Strategy.FULL)
    await stored.namespaces.update_topic(NAME, lambda old: msgspec.structs.replace(old, max_consumers=7))
    metadata, path = topic.ledger._env.metadata, ledger_list_path(topic.ledger.name)
    value, version = await metadata.get(path)
    await metadata.put(path, value, version)  # as the next owner does
    with pytest.raises(ManagedLedgerFencedError):
        await broker.lifecycle.delete(NAME)
    assert len(await stored.schemas.history(NAME)) == 1
    assert stored.namespaces.topic_policies(NAME).max_consumers == 7
    assert not broker.topics.loaded
    await broker.lifecycle.delete(NAME)
    assert await stored.schemas.history(NAME) == []
    assert stored.namespaces.topic_policies(NAME).max_consumers is None


async def test_a_deletion_takes_the_compacted_ledger_along_and_ends_when_the_store_keeps_it(broker, monkeypatch):
    topic = await broker.topics.get(NAME, create=True)
    await append(topic.ledger, [message()])
    assert topic.compaction.start()
    await topic.compaction.wait()
    (compacted,) = topic.compaction.ledger_ids
    store = topic.ledger.store
    delete, deleted = store.delete, []

    async def delete_but_one(ledger_id):
        deleted.append(ledger_id)
        if ledger_id == compacted:
            raise StorageClosedError("the store is closed")
        await delete(ledger_id)

    monkeypatch.setattr(store, "delete", delete_but_one)
    await broker.topics.delete(NAME)
    assert deleted[-1] == compacted
    assert not broker.topics.known(NAME)


class StubTopic:
    """Notes its close; the last of them fails."""

    def __init__(self, number: int, turns: Turns, ended: list[int], last: int) -> None:
        self.name, self._number, self._turns = NAME.partition_name(number), number, turns
        self._ended, self._last = ended, last

    async def close(self) -> None:
        self._turns.note()
        await asyncio.sleep(0)
        if self._number == self._last:
            raise StorageClosedError("the store is closed")
        self._ended.append(self._number)


async def test_a_stop_closes_many_topics_in_slices(broker):
    turns, ended = Turns(), []
    many = SLICE_ITEMS * 2 + 10
    topics = {f"t{number}": StubTopic(number, turns, ended, many - 1) for number in range(many)}
    broker.topics.loaded.update(topics)
    ticks = asyncio.create_task(turns.run())
    await broker.topics.close()
    ticks.cancel()
    assert turns.most <= SLICE_ITEMS
    assert ended == list(range(many - 1))
    assert not broker.topics.loaded


@pytest.fixture
async def without_last(broker):
    """A partitioned topic whose last partition was deleted by itself."""
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.lifecycle.delete(NAME.partition_name(1))
    return broker


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_a_partition_that_was_deleted_by_itself_comes_back_only_for_clients_that_create_topics(
    without_last, is_allowed
):
    part, topics = NAME.partition_name(1), without_last.topics
    override = AutoTopicCreation(allow_auto_topic_creation=is_allowed)
    await without_last.stored.namespaces.update_namespace(
        NAME.namespace, lambda old: msgspec.structs.replace(old, auto_topic_creation_override=override)
    )
    with pytest.raises(TopicNotFoundError, match=f"^Topic {part} does not exist$"):
        await topics.get(part, create=False)
    assert not topics.known(part)
    assert await topics.partitions(part, auto_create=True) == 0
    assert (await topics.get(part, create=True)).is_open


async def test_a_growth_makes_the_subscriptions_of_a_partition_that_was_deleted_by_itself(without_last):
    first = await without_last.lifecycle.persistent(NAME.partition_name(0))
    await first.subscriptions.create(SubscribeRequest("s", from_earliest=True))
    await without_last.lifecycle.grow(NAME, 3)
    for part in without_last.lifecycle.parts(NAME):
        assert "s" in (await without_last.lifecycle.persistent(part)).subscriptions.by_name


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_topic_whose_bundle_is_released_before_its_load_is_not_loaded(broker, monkeypatch, domain):
    """A non-persistent topic stayed loaded beside the topic of the next owner: its messages did not reach the others."""
    name = TopicName.parse(f"{domain}://public/default/released")
    load = asyncio.create_task(broker.topics.get(name, create=True))
    await asyncio.sleep(0)  # the load begins in the next turn
    monkeypatch.setattr(broker.topics.context, "serves", lambda _name: False)
    with pytest.raises(ServiceNotReadyError):
        await load
    assert str(name) not in broker.topics.loaded


async def test_the_refusal_of_a_topic_of_another_broker_names_its_bundle(broker, monkeypatch):
    context = broker.topics.context
    monkeypatch.setattr(context, "serves", lambda _name: False)
    monkeypatch.setattr(context, "broker_id", lambda: "localhost:8080")
    bundles = BundlesData(boundaries=["0x00000000", "0x80000000", "0xffffffff"], num_bundles=2)
    monkeypatch.setattr(context, "bundles", {"public/default": bundles}.get)
    with pytest.raises(ServiceNotReadyError) as refused:
        await broker.topics.get(NAME, create=True)
    bundle = f"public/default/{bundle_of(str(NAME), bundles)}"
    assert str(refused.value) == (
        f"Namespace bundle ({bundle}) for topic ({NAME}) not served by this instance:localhost:8080. "
        "Please redo the lookup."
    )
    with pytest.raises(ServiceNotReadyError, match=r"\(public/none/0x00000000_0xffffffff\)"):
        await broker.topics.get(TopicName.parse("persistent://public/none/t"), create=True)


async def test_a_limit_of_topics_counts_those_that_are_being_created(broker):
    """Each creation looked at the topics that existed: hundreds of clients at once passed any limit."""
    await broker.stored.namespaces.update_namespace(
        "public/default", lambda old: msgspec.structs.replace(old, max_topics_per_namespace=3)
    )
    names = [TopicName.parse(f"persistent://public/default/many-{i}") for i in range(20)]
    found = await asyncio.gather(*(broker.topics.get(name, create=True) for name in names), return_exceptions=True)
    assert sum(isinstance(each, NotAllowedError) for each in found) == 17
    assert broker.topics.catalog.count("public/default") == 3
    await broker.topics.delete(names[0])
    assert broker.topics.catalog.count_with_new("public/default") == 2
    await broker.topics.get(names[19], create=True)


async def test_a_limit_of_topics_counts_partitions_that_are_being_created(broker):
    """Each creation looked at the partitions that existed: requests at the same time passed any limit."""
    await broker.stored.namespaces.update_namespace(
        "public/default", lambda old: msgspec.structs.replace(old, max_topics_per_namespace=10)
    )
    names = [TopicName.parse(f"persistent://public/default/parts-{i}") for i in range(6)]
    creations = (broker.lifecycle.create_partitioned(name, 3, {}) for name in names)
    found = await asyncio.gather(*creations, return_exceptions=True)
    assert [isinstance(each, NotAllowedError) for each in found] == [False] * 3 + [True] * 3
    catalog = broker.topics.catalog
    assert (catalog.count("public/default"), catalog._reserved) == (9, {})
    await broker.topics.get(NAME, create=True)
    with pytest.raises(NotAllowedError):
        await broker.lifecycle.create_partitioned(names[4], 1, {})


async def test_a_client_may_use_a_partition_while_others_of_its_topic_are_being_created(broker):
    await broker.stored.namespaces.update_namespace(
        "public/default", lambda old: msgspec.structs.replace(old, max_topics_per_namespace=3)
    )
    name, catalog = TopicName.parse("persistent://public/default/parts"), broker.topics.catalog
    with catalog.reserved(name, 3):
        with catalog.reserved(name, 3):
            assert catalog.count_with_new("public/default") == 3
        await catalog.create_partitioned(name, PartitionedTopic(3))
        await broker.topics.get(name.partition_name(1), create=True)
        assert catalog.count_with_new("public/default") == 3
        await broker.topics.get(name.partition_name(1), create=True)
        with pytest.raises(NotAllowedError):
            await broker.topics.get(NAME, create=True)
    assert catalog.count_with_new("public/default") == 1


async def limited(broker, most):
    await broker.stored.namespaces.update_namespace(
        "public/default", lambda old: msgspec.structs.replace(old, max_topics_per_namespace=most)
    )
    begun = []

    async def load(_name):
        begun.append(asyncio.get_running_loop().create_future())
        await begun[-1]

    broker.topics._load = load
    return begun


async def test_the_end_of_a_failed_creation_leaves_the_next_creation_counted(broker):
    """The next creation began before a callback of the failed creation, which then took it out of the count."""
    begun = await limited(broker, 1)
    count = broker.topics.catalog.count_with_new
    first = asyncio.ensure_future(broker.topics.get(NAME, create=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    begun[0].set_exception(StorageClosedError("the store is closed"))
    second = asyncio.ensure_future(broker.topics.get(NAME, create=True))
    with pytest.raises(StorageClosedError):
        await first
    assert (len(begun), count("public/default")) == (2, 1)
    with pytest.raises(NotAllowedError):
        await broker.topics.get(TopicName.parse("persistent://public/default/other"), create=True)
    begun[1].set_exception(StorageClosedError("the store is closed"))
    with pytest.raises(StorageClosedError):
        await second
    assert count("public/default") == 0


async def test_a_request_for_a_topic_that_is_being_created_has_room_for_it(broker):
    """PUT of a topic that a client creates at the same time was refused, although the topic fits."""
    begun = await limited(broker, 1)
    client = asyncio.ensure_future(broker.topics.get(NAME, create=True))
    await asyncio.sleep(0)
    assert broker.topics.has_room(NAME, 1)
    assert not broker.topics.has_room(TopicName.parse("persistent://public/default/other"), 1)
    admin = asyncio.ensure_future(broker.lifecycle.create(NAME, {}))
    await asyncio.sleep(0)
    del broker.topics._load
    begun[0].set_result(None)
    await asyncio.gather(client, admin)
    assert broker.topics.catalog.count_with_new("public/default") == 1
