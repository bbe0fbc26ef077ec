"""Requests about names that another broker has created, and whose reports have not come yet."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from magnetar.broker.errors import (
    AuthorizationError,
    ConnectionFatalError,
    NotAllowedError,
    ServiceNotReadyError,
    TopicNotFoundError,
)
from magnetar.broker.handlers import consume, lookup, publish, schema
from magnetar.broker.policies.values import ClusterData, TenantInfo
from magnetar.broker.topics import news
from magnetar.broker.topics.catalog import PartitionedTopic, partitioned_path
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageUnavailableError
from tests.broker.admin_fakes import Client
from tests.waiting import until

PARTS = TopicName.parse("persistent://t/n/parts")
PLAIN = TopicName.parse("persistent://t/n/plain")
KNOWN = TopicName.parse("persistent://public/default/known")


class OtherBroker:
    """Changes the store of the broker, which has the changes once it has caught up."""

    def __init__(self, broker):
        self.stored, self.reports, self.runs = broker.stored, [], 0
        self.metadata = broker.stored.stores.metadata
        self.before_reports = None

    async def catch_up(self):
        self.runs += 1
        if self.before_reports is not None:
            await self.before_reports()
        reports, self.reports = self.reports, []
        for report in reports:
            await report()

    async def create_namespace(self):
        """A tenant, and its namespace."""
        store = self.stored.namespaces
        tenant = msgspec.json.encode(TenantInfo(allowed_clusters=["standalone"]))
        await self.metadata.put("/admin/policies/t", tenant, -1)
        await self.metadata.put("/admin/policies/t/n", msgspec.json.encode(store.new_policies()), -1)
        self.reports += [partial(store.reload, "t"), partial(store.reload, "t/n")]

    async def create_partitioned(self, name, partitions):
        record = msgspec.json.encode(PartitionedTopic(partitions=partitions))
        await self.metadata.put(partitioned_path(name), record)
        self.reports.append(partial(self.stored.catalog.reload_partitioned, name))


@pytest.fixture
async def other(broker):
    made = OtherBroker(broker)
    broker.services.news._catch_up = made.catch_up
    await broker.topics.get(KNOWN, create=True)
    await broker.lifecycle.create_partitioned(KNOWN.in_domain("non-persistent"), 2, {})
    return made


@pytest.fixture
async def conn(broker):
    """A connection whose role may do everything; it cannot have clients, as it never reads."""
    made = SimpleNamespace(services=broker.services, closed=False, loop=asyncio.get_running_loop(), answers=[])
    made.producers, made.consumers, made.sought_consumers, made.watchers = {}, {}, {}, {}
    made.lists = asyncio.Lock()
    made.is_super_user = False
    made.authorize = made.authorize_namespace = lambda *_: None
    made.may = made.may_namespace = lambda *_: True
    made.write = lambda data: made.answers.append(pb.BaseCommand.FromString(data[8:]))
    made.require_output = lambda _: None
    return made


@pytest.mark.parametrize("may_create", [True, False])
async def test_the_partitions_of_a_topic_that_another_broker_has_created(other, conn, may_create):
    await other.create_namespace()
    await other.create_partitioned(PARTS, 3)
    command = pb.CommandPartitionedTopicMetadata(
        topic=str(PARTS), request_id=1, metadata_auto_creation_enabled=may_create
    )
    await lookup.on_partitioned_metadata(conn, command)
    assert conn.answers[0].partitionMetadataResponse.partitions == 3
    assert other.runs == 1


async def test_a_partitioned_topic_of_a_known_namespace(other, conn):
    name = TopicName.parse("persistent://public/default/parts")
    await other.create_partitioned(name, 3)
    await lookup.on_partitioned_metadata(conn, pb.CommandPartitionedTopicMetadata(topic=str(name), request_id=1))
    assert conn.answers[0].partitionMetadataResponse.partitions == 3


async def test_a_lookup_in_a_namespace_that_another_broker_has_created(other, conn):
    await other.create_namespace()
    await lookup.on_lookup(conn, pb.CommandLookupTopic(topic=str(PARTS), request_id=1))
    assert conn.answers[0].lookupTopicResponse.response == pb.CommandLookupTopicResponse.Connect


async def test_a_producer_of_the_name_of_a_partitioned_topic_makes_no_plain_topic(broker, other, conn):
    await other.create_namespace()
    await other.create_partitioned(PARTS, 3)
    with pytest.raises(NotAllowedError):
        await publish.on_producer(conn, pb.CommandProducer(topic=str(PARTS), producer_id=1, request_id=1))
    assert not broker.topics.known(PARTS)
    assert not conn.producers


async def test_a_consumer_of_a_partition_that_another_broker_has_created(broker, other, conn):
    await other.create_namespace()
    await other.create_partitioned(PARTS, 3)
    command = pb.CommandSubscribe(
        topic=str(PARTS.partition_name(2)), subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1
    )
    command.request_id, command.force_topic_creation = 1, False
    conn.services.topics.require_enabled = lambda _: (_ for _ in ()).throw(NotAllowedError("reached"))
    with pytest.raises(NotAllowedError, match="reached"):  # the namespace is there; else its bundle has no owner
        await consume.on_subscribe(conn, command)
    assert broker.stored.catalog.partitioned(PARTS).partitions == 3


async def test_topics_of_a_namespace_that_another_broker_has_created(other, conn):
    await other.create_namespace()
    command = pb.CommandGetTopicsOfNamespace(namespace="t/n", request_id=1, mode=pb.CommandGetTopicsOfNamespace.ALL)
    await lookup.on_get_topics_of_namespace(conn, command)
    assert list(conn.answers[0].getTopicsOfNamespaceResponse.topics) == []


async def test_the_schema_of_a_topic_in_a_namespace_that_another_broker_has_created(other, conn):
    await other.create_namespace()
    command = pb.CommandGetOrCreateSchema(topic=str(PLAIN), request_id=1)
    with pytest.raises(TopicNotFoundError):
        await schema.on_get_or_create_schema(conn, command)
    assert other.runs == 1


async def test_a_producer_that_is_closed_while_the_broker_catches_up_is_not_created(broker, other, conn):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def wait():
        reached.set()
        await go_on.wait()

    other.before_reports = wait
    name = TopicName.parse("persistent://public/default/new")
    command = pb.CommandProducer(topic=str(name), producer_id=1, request_id=1)
    creating = asyncio.create_task(publish.on_producer(conn, command))
    await reached.wait()
    await publish.on_close_producer(conn, pb.CommandCloseProducer(producer_id=1, request_id=2))
    go_on.set()
    await creating
    assert [each.type for each in conn.answers] == [pb.BaseCommand.SUCCESS]
    assert not conn.producers
    assert broker.topics.loaded[str(name)].is_idle


async def test_names_that_memory_has_cost_nothing(other, conn):
    partition = KNOWN.in_domain("non-persistent").partition_name(1)
    for name in (KNOWN, partition, partition.base):
        await lookup.on_partitioned_metadata(conn, pb.CommandPartitionedTopicMetadata(topic=str(name), request_id=1))
    services = conn.services
    assert services.news.of_tenant("public") is services.news.of_namespace("public/default") is None
    assert services.news.of_topic(KNOWN, may_create=False) is None
    assert other.runs == 0


async def test_names_that_memory_has_wait_for_changes_whose_notices_have_come(broker, other):
    news, asked = broker.services.news, []

    def change_of(paths):
        asked.append(list(paths))
        return asyncio.sleep(0)

    news._change_of = change_of
    await news.of_tenant("public")
    await news.of_namespace("public/default")
    await news.of_topic(KNOWN.in_domain("non-persistent").partition_name(1), may_create=True)
    of_namespace = ["/admin/policies/public/default", "/admin/policies/public"]
    record = "/admin/partitioned-topics/public/default/non-persistent/known"
    assert asked == [["/admin/policies/public"], of_namespace, [*of_namespace, record]]
    assert other.runs == 0


async def test_a_role_whose_grant_memory_lacks_is_not_refused_before_memory_has_caught_up(broker, other, conn):
    granted = []

    def authorize(command, *_):
        if not granted:
            raise AuthorizationError(str(command))

    async def report():
        granted.append(1)

    conn.authorize = conn.authorize_namespace = authorize
    conn.may = conn.may_namespace = lambda *_: bool(granted)
    conn.is_super_user = True
    topic, requests = str(KNOWN), {"request_id": 1}
    for handler, command in (
        (lookup.on_lookup, pb.CommandLookupTopic(topic=topic, **requests)),
        (lookup.on_partitioned_metadata, pb.CommandPartitionedTopicMetadata(topic=topic, **requests)),
        (
            lookup.on_get_topics_of_namespace,
            pb.CommandGetTopicsOfNamespace(namespace=KNOWN.namespace, mode=0, **requests),
        ),
        (schema.on_get_or_create_schema, pb.CommandGetOrCreateSchema(topic=topic, **requests)),
    ):
        granted.clear()
        with pytest.raises(AuthorizationError):
            await handler(conn, command)
        other.reports.append(report)
        await handler(conn, command)
        assert granted
    twice = [pb.KeyValue(key="k", value="v")] * 2  # the check behind the rights
    subscribe = {"subscription": "s", "subType": pb.CommandSubscribe.Shared, "consumer_id": 1}
    for handler, command in (
        (publish.on_producer, pb.CommandProducer(topic=topic, producer_id=1, metadata=twice, **requests)),
        (consume.on_subscribe, pb.CommandSubscribe(topic=topic, metadata=twice, **subscribe, **requests)),
    ):
        granted.clear()
        with pytest.raises(AuthorizationError):
            await handler(conn, command)
        other.reports.append(report)
        with pytest.raises(ConnectionFatalError, match="twice"):
            await handler(conn, command)


async def test_a_broker_alone_waits_for_nothing(broker):
    services = broker.services
    asked = (services.news.of_anything(), services.news.of_tenant("t"), services.news.of_namespace("t/n"))
    assert asked == (None, None, None)
    assert services.news.of_topic(PARTS, may_create=True) is None


async def test_a_partition_beyond_those_that_memory_has_may_come_from_a_growth(broker, other, conn):
    name = TopicName.parse("persistent://public/default/parts")
    await broker.stored.catalog.create_partitioned(name, PartitionedTopic(partitions=2))
    await other.create_partitioned(name, 4)
    assert conn.services.news.of_topic(name.partition_name(1), may_create=True) is None
    await conn.services.news.of_topic(name.partition_name(3), may_create=True)
    assert broker.stored.catalog.partitioned(name).partitions == 4


async def test_a_plain_topic_whose_report_comes_later(broker, other, conn):
    """The list of topics of a namespace is reported at its own time: a request that would be refused waits for it."""
    await broker.stored.dynamic_settings.change("allowAutoTopicCreation", "false")
    name = TopicName.parse("persistent://public/default/plain")
    await broker.stored.ledgers.make_known(name.persistence_name)
    command = pb.CommandPartitionedTopicMetadata(topic=str(name), request_id=1)
    asking = asyncio.create_task(lookup.on_partitioned_metadata(conn, command))
    await until(lambda: broker.stored.catalog._listeners and other.runs)
    listeners = len(broker.stored.catalog._listeners)
    await asyncio.sleep(0)
    assert not asking.done()
    broker.stored.catalog.created(name)
    await asking
    assert conn.answers[0].partitionMetadataResponse.response == pb.CommandPartitionedTopicMetadataResponse.Success
    assert len(broker.stored.catalog._listeners) < listeners
    missing = pb.CommandPartitionedTopicMetadata(topic=f"{name}-missing", request_id=2)
    with pytest.raises(TopicNotFoundError):
        await lookup.on_partitioned_metadata(conn, missing)


async def test_a_report_costs_the_same_however_many_requests_wait_for_reports(broker, other):
    """A listener for each request would have each of a thousand reported topics walk through thousands of requests."""
    catalog, names = broker.stored.catalog, [TopicName.parse(f"persistent://public/default/m{n}") for n in range(300)]
    stored, go_on = asyncio.Event(), asyncio.Event()

    async def is_stored(_name):
        stored.set()
        await go_on.wait()
        return True

    broker.services.news._stored = is_stored
    alone = len(catalog._listeners)
    waits = [asyncio.ensure_future(broker.services.news.of_topic(name, may_create=False)) for name in names * 2]
    await stored.wait()
    assert len(catalog._listeners) == alone + 1
    waits.pop().cancel()
    for name in names:
        catalog.created(name)
    go_on.set()
    await asyncio.gather(*waits)
    assert len(catalog._listeners) == alone


async def test_a_topic_whose_report_does_not_come_is_tried_again(broker, other, monkeypatch):
    monkeypatch.setattr(news, "_REPORTED_WITHIN_S", 0.001)
    await broker.stored.ledgers.make_known("public/default/persistent/plain")
    name = TopicName.parse("persistent://public/default/plain")
    with pytest.raises(ServiceNotReadyError):
        await broker.services.news.of_topic(name, may_create=False)


async def test_a_store_that_does_not_answer(broker, other, monkeypatch):
    async def away(_name):
        raise StorageUnavailableError("away")

    broker.services.news._stored = away
    with pytest.raises(ServiceNotReadyError):
        await broker.services.news.of_topic(KNOWN.in_domain("persistent").base.partition_name(7), may_create=False)


@pytest.fixture
def admin(broker):
    """A client of the admin API of the broker."""
    return Client(broker.admin_services(None, None))


async def test_requests_of_an_administrator_whose_names_another_broker_has_created(broker, other, admin):
    await other.create_namespace()
    assert (await admin("GET", "tenants/t")).status == 200
    assert other.runs == 1
    await other.create_partitioned(PARTS, 3)
    found = await admin("GET", "persistent/t/n/parts/partitions")
    assert (found.status, found.json["partitions"]) == (200, 3)
    assert (await admin("GET", "namespaces/t/n")).status == 200
    assert other.runs == 2
    assert (await admin("GET", "tenants/missing")).status == 404


async def test_a_namespace_of_a_tenant_that_another_broker_has_created(broker, other, admin):
    store = broker.stored.namespaces
    await other.metadata.put("/admin/policies/t", msgspec.json.encode(TenantInfo(allowed_clusters=["standalone"])), -1)
    other.reports.append(partial(store.reload, "t"))
    assert (await admin("PUT", "namespaces/t/n", {"bundles": {"numBundles": 1}})).status == 204


async def test_a_name_that_another_broker_has_deleted_can_be_taken(broker, other, admin):
    store = broker.stored.namespaces
    await store.create_tenant("t", TenantInfo(allowed_clusters=["standalone"]))
    await store.create_namespace("t/n", store.new_policies())
    await other.metadata.delete("/admin/policies/t/n")
    other.reports.append(partial(store.reload, "t/n"))
    assert (await admin("PUT", "namespaces/t/n", {"bundles": {"numBundles": 1}})).status == 204
    await other.metadata.delete("/admin/policies/t/n")
    other.reports.append(partial(store.reload, "t/n"))
    assert (await admin("DELETE", "tenants/t")).status == 204


async def test_a_cluster_that_another_broker_has_created(broker, other, admin):
    clusters = broker.stored.namespaces.clusters
    await other.metadata.put("/admin/clusters/c9", msgspec.json.encode(ClusterData(service_url="http://c9:8080")))
    other.reports.append(partial(clusters.load, "c9"))
    assert (await admin("GET", "clusters/c9")).status == 200
    assert (await admin("GET", "clusters/standalone")).status == 200
    assert other.runs == 1


async def test_an_administrator_during_an_outage_is_told_to_try_again(broker, other, admin):
    async def away():
        raise ServiceNotReadyError("The metadata store does not answer")

    broker.services.news._catch_up = away
    assert (await admin("GET", "tenants/missing")).status == 503
    assert (await admin("GET", "tenants/public")).status == 200
