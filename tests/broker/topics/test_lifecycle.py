"""Growth of a partitioned topic beside other requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from magnetar.broker.admin.topic_calls import delete_unused
from magnetar.broker.admin_backend.topic_logs import AdminTopicLogs
from magnetar.broker.broker import Broker
from magnetar.broker.consumers.consumer import EXCLUSIVE, Consumer, ConsumerSpec
from magnetar.broker.errors import NotAllowedError, ServiceNotReadyError, TopicNotFoundError
from magnetar.broker.schemas.compatibility import Strategy
from magnetar.broker.settings import Settings
from magnetar.broker.topics.catalog import PartitionedTopic, partitioned_path
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageFullError
from tests.twins.fake_connection import FakeConnection

NAME = TopicName.parse("persistent://public/default/t")


@pytest.fixture
async def growing(broker, monkeypatch):
    """A topic of two partitions that is growing to four: the subscription of the last partition is to come.

    Gives the growth and its release.
    """
    lifecycle, reached, go_on = broker.lifecycle, asyncio.Event(), asyncio.Event()
    subscribe = lifecycle._subscribe

    async def waits(part: TopicName, request: SubscribeRequest) -> None:
        if part == NAME.partition_name(3) and not reached.is_set():
            reached.set()
            await go_on.wait()
        await subscribe(part, request)

    await lifecycle.create_partitioned(NAME, 2, {})
    first = await lifecycle.persistent(NAME.partition_name(0))
    await first.subscriptions.create(SubscribeRequest("s", from_earliest=True))
    monkeypatch.setattr(lifecycle, "_subscribe", waits)
    growth = asyncio.create_task(lifecycle.grow(NAME, 4))
    await asyncio.wait_for(reached.wait(), 60)
    yield growth, go_on
    go_on.set()
    await asyncio.wait({growth}, timeout=60)


async def test_a_growth_that_another_growth_overtakes_takes_no_partition_away(broker, growing):
    growth, go_on = growing
    await broker.lifecycle.grow(NAME, 6)
    go_on.set()
    await growth
    assert broker.topics.catalog.partitioned(NAME).partitions == 6


async def test_a_namespace_settles_behind_the_creations_of_its_partitioned_topics(broker, monkeypatch):
    go_on, metadata = asyncio.Event(), broker.topics.catalog._metadata
    put = metadata.put

    async def held(path, *given):
        if path == partitioned_path(NAME):
            await go_on.wait()
        return await put(path, *given)

    monkeypatch.setattr(metadata, "put", held)
    creation = asyncio.create_task(broker.lifecycle.create_partitioned(NAME, 2, {}))
    await asyncio.sleep(0)
    settled = asyncio.create_task(broker.topics.settled(NAME.namespace))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not settled.done()
    go_on.set()
    await settled
    assert broker.topics.catalog.partitioned_names(NAME.namespace, "persistent") == [str(NAME)]
    await creation


async def is_gone(broker):
    catalog = broker.topics.catalog
    assert catalog.partitioned(NAME) is None
    assert await catalog._metadata.get(partitioned_path(NAME)) is None
    assert catalog.names(NAME.namespace) == [], "partitions that are topics of their own"
    return True


async def test_a_topic_that_is_deleted_while_it_grows_stays_deleted_with_all_partitions(broker, growing):
    growth, go_on = growing
    await broker.lifecycle.delete_partitioned(NAME)
    go_on.set()
    with pytest.raises(TopicNotFoundError):
        await growth
    assert await is_gone(broker)


async def test_a_topic_that_another_broker_deletes_while_it_grows_stays_deleted(broker, growing):
    """The watch of the record has not reported the deletion yet."""
    growth, go_on = growing
    for part in broker.lifecycle.parts(NAME):
        await broker.topics.delete(part)
    await broker.topics.catalog._metadata.delete(partitioned_path(NAME))
    go_on.set()
    with pytest.raises(TopicNotFoundError):
        await growth
    assert await is_gone(broker)


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


async def test_a_partition_that_was_a_topic_before_the_growth_stays(broker, recording):
    own = NAME.partition_name(3)
    await broker.topics.make_known(own)
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    reached, go_on = recording(2)
    growth = asyncio.create_task(broker.lifecycle.grow(NAME, 4))
    await asyncio.wait_for(reached.wait(), 60)
    await broker.lifecycle.delete_partitioned(NAME)
    go_on.set()
    with pytest.raises(TopicNotFoundError):
        await growth
    assert broker.topics.catalog.names(NAME.namespace) == [str(own)]


async def cut_growth(broker, monkeypatch, partitions, at):
    """A growth whose broker dies before it records the partition ``at``, and the catalog of the next broker."""
    topics = broker.topics
    make_known = topics.make_known

    async def dies(part):
        if part == NAME.partition_name(at):
            raise asyncio.CancelledError
        await make_known(part)

    with monkeypatch.context() as patch:
        patch.setattr(topics, "make_known", dies)
        with pytest.raises(asyncio.CancelledError):
            await broker.lifecycle.grow(NAME, partitions)
    await topics.catalog.load([NAME.namespace])


async def test_a_deletion_takes_the_partitions_of_a_growth_whose_broker_has_died(broker, monkeypatch):
    await broker.lifecycle.create_partitioned(NAME, 2, {"a": "b"})
    await cut_growth(broker, monkeypatch, 6, at=4)
    assert broker.topics.catalog.exists(NAME.partition_name(3))
    assert broker.topics.catalog.partitioned(NAME).partitions == 2
    logs = AdminTopicLogs(broker.topics, broker.lifecycle, None)
    await logs.change_properties(NAME, lambda now: now | {"c": "d"})
    await broker.lifecycle.grow(NAME, 3)
    assert broker.topics.catalog.partitioned(NAME).partitions == 3
    assert await logs.properties(NAME) == {"a": "b", "c": "d"}
    await broker.lifecycle.delete_partitioned(NAME)
    assert await is_gone(broker)


async def test_a_deletion_leaves_a_topic_from_before_a_growth_whose_broker_has_died(broker, monkeypatch):
    own = NAME.partition_name(3)
    await broker.topics.make_known(own)
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await cut_growth(broker, monkeypatch, 6, at=5)
    await cut_growth(broker, monkeypatch, 7, at=6)
    await broker.lifecycle.delete_partitioned(NAME)
    assert broker.topics.catalog.names(NAME.namespace) == [str(own)]


async def test_a_repeated_growth_ends_the_growth_of_a_broker_that_has_died(broker, monkeypatch):
    await broker.topics.make_known(NAME.partition_name(4))
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await cut_growth(broker, monkeypatch, 6, at=3)
    await broker.lifecycle.grow(NAME, 6)
    stored, _ = await broker.topics.catalog._metadata.get(partitioned_path(NAME))
    assert msgspec.json.decode(stored) == {"partitions": 6}
    assert broker.topics.catalog.partitioned(NAME) == PartitionedTopic(6)
    await broker.lifecycle.delete_partitioned(NAME)
    assert await is_gone(broker)


async def test_a_forced_deletion_deletes_several_partitions_at_the_same_time(broker, monkeypatch):
    await broker.lifecycle.create_partitioned(NAME, 20, {})
    delete, under_way, counts = broker.topics.delete, set(), []

    async def counted(part):
        under_way.add(part)
        counts.append(len(under_way))
        await delete(part)
        under_way.remove(part)

    monkeypatch.setattr(broker.topics, "delete", counted)
    await broker.lifecycle.delete_partitioned(NAME)
    assert max(counts) == 8
    assert await is_gone(broker)


async def test_a_topic_does_not_grow_while_it_is_deleted(broker, monkeypatch):
    topics, reached, go_on = broker.topics, asyncio.Event(), asyncio.Event()
    delete = topics.delete

    async def waits(part):
        reached.set()
        await go_on.wait()
        await delete(part)

    await broker.lifecycle.create_partitioned(NAME, 2, {})
    monkeypatch.setattr(topics, "delete", waits)
    deletion = asyncio.create_task(broker.lifecycle.delete_partitioned(NAME))
    await asyncio.wait_for(reached.wait(), 60)
    with pytest.raises(ServiceNotReadyError, match="is being deleted"):
        await broker.lifecycle.grow(NAME, 4)
    go_on.set()
    await deletion
    assert await is_gone(broker)


@pytest.mark.parametrize("first", ["put", "delete"])
async def test_of_a_growth_and_a_deletion_that_meet_at_the_record_the_deletion_holds(broker, monkeypatch, first):
    metadata, kinds = broker.topics.catalog._metadata, ("put", "delete")
    reached, go_on = ({kind: asyncio.Event() for kind in kinds} for _ in range(2))

    def waiting(kind, call):
        async def waits(path, *arguments):
            if path == partitioned_path(NAME):
                reached[kind].set()
                await go_on[kind].wait()
            return await call(path, *arguments)

        return waits

    await broker.lifecycle.create_partitioned(NAME, 2, {})
    for kind in kinds:
        monkeypatch.setattr(metadata, kind, waiting(kind, getattr(metadata, kind)))
    requests = {}
    for kind, request in (
        ("put", broker.lifecycle.grow(NAME, 4)),
        ("delete", broker.lifecycle.delete_partitioned(NAME)),
    ):
        requests[kind] = asyncio.create_task(request)
        await asyncio.wait_for(reached[kind].wait(), 60)
    for kind in sorted(kinds, key=lambda kind: kind != first):
        go_on[kind].set()
        await asyncio.wait({requests[kind]}, timeout=60)
    assert requests["delete"].exception() is None
    assert await is_gone(broker)


async def test_a_topic_that_is_deleted_while_it_is_created_leaves_no_partition(broker, recording):
    reached, go_on = recording(1)
    creation = asyncio.create_task(broker.lifecycle.create_partitioned(NAME, 2, {}))
    await asyncio.wait_for(reached.wait(), 60)
    await broker.lifecycle.delete_partitioned(NAME)
    go_on.set()
    await creation
    assert await is_gone(broker)


async def test_no_topic_is_created_in_a_namespace_that_is_being_deleted(broker):
    """A client whose topic is deleted connects again at once; its topic would be left without the namespace."""
    kept = TopicName.parse("persistent://public/default/kept")
    await broker.topics.get(kept, create=True)
    await broker.topics.unload(kept)
    await broker.stored.namespaces.update_namespace(
        "public/default", lambda old: msgspec.structs.replace(old, deleted=True)
    )
    for domain in ("persistent", "non-persistent"):
        with pytest.raises(TopicNotFoundError):
            await broker.topics.get(TopicName.parse(f"{domain}://public/default/u"), create=True)
    with pytest.raises(TopicNotFoundError):
        await broker.topics.partitions(NAME, auto_create=True)
    with pytest.raises(TopicNotFoundError):
        await broker.lifecycle.create(NAME, {})
    with pytest.raises(TopicNotFoundError):
        await broker.lifecycle.create_partitioned(NAME, 2, {})
    assert broker.topics.catalog.partitioned(NAME) is None
    await broker.topics.get(kept, create=True)  # only a loaded topic can be deleted


async def test_a_topic_whose_record_the_store_keeps_can_be_deleted_again(broker, monkeypatch):
    metadata = broker.topics.catalog._metadata
    delete = metadata.delete

    async def refuses(path, *versions):
        if path == partitioned_path(NAME):
            raise StorageFullError("full")
        await delete(path, *versions)

    await broker.lifecycle.create_partitioned(NAME, 2, {})
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "delete", refuses)
        with pytest.raises(StorageFullError):
            await broker.lifecycle.delete_partitioned(NAME)
    assert broker.topics.catalog.partitioned(NAME).partitions == 2
    await broker.lifecycle.delete_partitioned(NAME)
    await broker.lifecycle.create_partitioned(NAME, 3, {})


async def test_a_record_that_another_broker_has_deleted_is_deleted_all_the_same(broker):
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.topics.catalog._metadata.delete(partitioned_path(NAME))
    await broker.lifecycle.delete_partitioned(NAME)
    assert broker.topics.catalog.partitioned(NAME) is None


async def test_properties_that_are_set_during_a_growth_take_no_partition_away(broker, monkeypatch):
    """Each record is made of the record that it replaces, not of the record that was known when the request came."""
    metadata, reached, go_on = broker.topics.catalog._metadata, asyncio.Event(), asyncio.Event()
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    put = metadata.put

    async def waits(path, *arguments):
        if path == partitioned_path(NAME) and not reached.is_set():
            reached.set()
            await go_on.wait()
        return await put(path, *arguments)

    monkeypatch.setattr(metadata, "put", waits)
    logs = AdminTopicLogs(broker.topics, broker.lifecycle, None)
    setting = asyncio.create_task(logs.change_properties(NAME, lambda now: now | {"a": "b"}))
    await asyncio.wait_for(reached.wait(), 60)
    await broker.lifecycle.grow(NAME, 3)
    go_on.set()
    await setting
    record = PartitionedTopic(3, {"a": "b"})
    assert broker.topics.catalog.partitioned(NAME) == record
    assert msgspec.json.decode((await metadata.get(partitioned_path(NAME)))[0], type=PartitionedTopic) == record


async def test_properties_that_are_set_at_the_same_time_are_all_kept(broker):
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    logs = AdminTopicLogs(broker.topics, broker.lifecycle, None)
    await asyncio.gather(*(logs.change_properties(NAME, lambda now, key=key: now | {key: "v"}) for key in "abc"))
    assert await logs.properties(NAME) == {"a": "v", "b": "v", "c": "v"}


async def test_properties_of_a_plain_topic_that_change_at_the_same_time_keep_all_changes(broker):
    await broker.lifecycle.create(NAME, {"x": "1", "y": "1"})
    logs = AdminTopicLogs(broker.topics, broker.lifecycle, None)
    changes = [{"x": None}, {"a": "1"}, {"y": "2"}, {"b": "1"}, {"a": None}]

    def merged(now, change):
        return {key: value for key, value in (now | change).items() if value is not None}

    await asyncio.gather(*(logs.change_properties(NAME, lambda now, each=each: merged(now, each)) for each in changes))
    assert await logs.properties(NAME) == {"y": "2", "b": "1", "index": "-1"}
    await broker.topics.unload(NAME)
    assert await logs.properties(NAME) == {"y": "2", "b": "1", "index": "-1"}


async def test_created_partitions_are_known_and_not_loaded(broker):
    """Ten thousand loaded partitions cost 200 MiB and held up a stop."""
    await broker.lifecycle.create_partitioned(NAME, 100, {})
    assert not broker.topics.loaded
    assert all(broker.topics.known(NAME.partition_name(index)) for index in range(100))
    assert not broker.topics.known(NAME.partition_name(100))
    await broker.lifecycle.delete_partitioned(NAME)
    assert not broker.topics.known(NAME.partition_name(0)) and not broker.topics.loaded


async def test_a_missing_namespace_gets_no_partitions(broker):
    name = TopicName.parse("persistent://public/missing/t")
    with pytest.raises(TopicNotFoundError):
        await broker.lifecycle.create_partitioned(name, 2, {})
    assert not broker.topics.known(name.partition_name(0))


async def test_a_topic_that_another_broker_records_first_has_its_count_of_partitions(tmp_path):
    """The watch of the record has not reported it yet."""
    settings = Settings(
        data_dir=str(tmp_path / "data"),
        broker_service_port=None,
        web_service_port=None,
        allow_auto_topic_creation_type="partitioned",
        default_num_partitions=2,
    )
    broker = Broker(settings)
    await broker.start()
    stored = msgspec.json.encode(PartitionedTopic(partitions=5))
    await broker.stored.catalog._metadata.put(partitioned_path(NAME), stored)
    assert await broker.topics.partitions(NAME, auto_create=True) == 5
    assert await broker.topics.partitions(NAME, auto_create=True) == 5
    await broker.stop()


WITH_RECORD = "broker_delete_inactive_partitioned_topic_metadata_enabled"
SCHEMA = (pb.Schema.String, b"", {}, Strategy.FULL)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_partitioned_topic_goes_with_its_last_inactive_partition(broker, domain, enabled):
    broker.topics.context.settings.change(WITH_RECORD, enabled)
    name = TopicName.parse(f"{domain}://public/default/t")
    lifecycle, parts = broker.lifecycle, [name.partition_name(index) for index in range(2)]
    await lifecycle.create_partitioned(name, 2, {})
    await broker.stored.schemas.put(name, *SCHEMA)
    for part in parts:
        await broker.topics.get(part, create=True)
    await lifecycle.delete_inactive(parts[1])
    assert broker.topics.catalog.partitioned(name), "a partition is left"
    await lifecycle.delete_inactive(parts[0])
    assert not broker.topics.known(parts[0])
    assert (broker.topics.catalog.partitioned(name) is None) == enabled
    assert bool(await broker.stored.schemas.live(name)) != enabled


async def test_a_partition_that_was_never_loaded_keeps_its_topic(broker):
    broker.topics.context.settings.change(WITH_RECORD, True)
    await broker.lifecycle.create_partitioned(NAME, 2, {})
    await broker.lifecycle.delete_inactive(NAME.partition_name(1))
    assert broker.topics.known(NAME.partition_name(0))
    assert broker.topics.catalog.partitioned(NAME)


async def test_the_check_for_inactive_topics_deletes_the_partitioned_topic(broker):
    broker.topics.context.settings.change(WITH_RECORD, True)
    await broker.lifecycle.create_partitioned(NAME, 1, {})
    topic = await broker.topics.get(NAME.partition_name(0), create=False)
    topic.life.last_used_s = float("-inf")
    await next(job for job in broker.maintenance.jobs if job.name == "inactive_topics").run()
    assert await is_gone(broker)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("comes", [True, False])
async def test_an_inactive_topic_stays_to_which_a_client_comes_before_its_deletion(broker, domain, comes):
    """The deletion waits behind loads of other topics. A request that has found the topic creates a subscription."""
    name = TopicName.parse(f"{domain}://public/default/idle")
    topic = await broker.topics.get(name, create=True)
    topic.life.last_used_s = float("-inf")
    broker.topics._loads = loads = asyncio.Semaphore(1)
    async with loads:
        check = next(job for job in broker.maintenance.jobs if job.name == "inactive_topics")
        checking = asyncio.ensure_future(check.run())
        await asyncio.sleep(0.01)
        if comes:
            await topic.subscriptions.create(SubscribeRequest("jobs", from_earliest=True))
    await checking
    assert topic.is_open == (broker.topics.loaded.get(str(name)) is topic) == comes
    assert not comes or "jobs" in (await broker.topics.get(name, create=False)).subscriptions.by_name


@pytest.mark.parametrize("comes", [True, False])
async def test_a_deletion_without_force_is_refused_where_a_client_comes_before_it_begins(broker, comes):
    topic = await broker.topics.get(NAME, create=True)
    broker.topics._loads = loads = asyncio.Semaphore(1)
    async with loads:
        deleting = asyncio.ensure_future(delete_unused(SimpleNamespace(lifecycle=broker.lifecycle), NAME))
        await asyncio.sleep(0.01)
        if comes:
            consumer = Consumer(FakeConnection(), ConsumerSpec(1, NAME, "jobs", EXCLUSIVE))
            await topic.subscriptions.subscribe(consumer, SubscribeRequest("jobs", from_earliest=True))
    (refusal,) = await asyncio.gather(deleting, return_exceptions=True)
    assert topic.is_open == (broker.topics.loaded.get(str(NAME)) is topic) == comes
    assert getattr(refusal, "status", None) == (412 if comes else None)


async def test_two_deletions_of_a_partitioned_topic_at_the_same_time_both_end(broker):
    lifecycle = broker.lifecycle
    await lifecycle.create_partitioned(NAME, 3, {})
    await asyncio.gather(lifecycle.delete_partitioned(NAME), lifecycle.delete_partitioned(NAME))
    assert await is_gone(broker)


async def test_a_partition_that_ends_by_itself_while_its_topic_is_deleted(broker):
    """The check for inactive topics deletes a partition, or an administrator does."""
    lifecycle = broker.lifecycle
    await lifecycle.create_partitioned(NAME, 3, {})
    alone = asyncio.create_task(lifecycle.delete(NAME.partition_name(0)))
    await asyncio.sleep(0)
    await lifecycle.delete_partitioned(NAME)
    await alone
    assert await is_gone(broker)


async def test_no_request_creates_a_topic_of_the_transaction_coordinator(broker):
    name = TopicName.parse("persistent://public/default/a__transaction_pending_ack")
    with pytest.raises(NotAllowedError, match="Can not create transaction system topic"):
        await broker.lifecycle.create(name, {})
    assert not broker.topics.known(name)
