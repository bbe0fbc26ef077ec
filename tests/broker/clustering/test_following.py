"""A broker applies the changes that other brokers store."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.broker.clustering import following
from magnetar.broker.clustering.following import Following
from magnetar.broker.dynamic_settings import DynamicSettings
from magnetar.broker.errors import UnreadableRecordError
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.policies.stored_records import ExistsError
from magnetar.broker.policies.values import ResourceGroup, ResourceQuota, TenantInfo
from magnetar.broker.settings import Settings
from magnetar.broker.tasks import TaskSet
from magnetar.broker.topics.catalog import PartitionedTopic, TopicCatalog
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageUnavailableError
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from tests.storage.engine_for_tests import ManualClock, ManualScheduler
from tests.twins.memory_cluster import MemoryCluster
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.waiting import until

SETTINGS = Settings()


class World:
    """One broker: its policies, its catalogue and its managed ledgers."""

    def __init__(self, cluster, ledgers):
        self.cluster, self.ledger_store = cluster, ledgers
        self.metadata = cluster.connect()
        self.tasks = TaskSet()
        self.following = Following(self.metadata, self.tasks)
        clock = ManualClock()
        self.ledgers = ManagedLedgerFactory(ledgers, self.metadata, clock, ManualScheduler(clock), PulsarLayout())
        self.catalog = TopicCatalog(self.metadata, self.ledgers)

    async def start(self):
        await self.following.start()
        self.namespaces = await NamespaceStore.open(self.metadata, SETTINGS)
        names = [name for tenant in self.namespaces.tenants.names() for name in self.namespaces.namespaces_of(tenant)]
        await self.catalog.load(names)
        self.settings = DynamicSettings(self.metadata, Settings())
        await self.settings.load()
        await self.following.follow(self.namespaces, self.catalog, self.settings)
        return self


@pytest.fixture
async def brokers():
    cluster, ledgers = MemoryCluster(), MemoryLedgerStore()
    made = [await World(cluster, ledgers).start() for _ in range(2)]
    yield made
    for each in made:
        each.following.close()
        await each.tasks.close()


async def test_changed_settings(brokers):
    one, two = brokers
    await one.settings.change("maxTenants", "9")
    await until(lambda: two.settings.values == {"maxTenants": "9"})
    await two.settings.remove("maxTenants")
    await until(lambda: one.settings.values == {})


async def test_changes_while_a_broker_starts_arrive(brokers):
    one, _ = brokers
    late = World(one.cluster, one.ledger_store)

    async def follow(*read):  # the broker has read all state, and follows no changes yet
        reported = set()
        late.metadata.watch("/admin", reported.add)
        await one.namespaces.create_tenant("late", TenantInfo(allowed_clusters=["standalone"]))
        await one.settings.change("maxTenants", "9")
        await until(lambda: reported >= {"/admin/policies/late", "/admin/configuration"})
        await Following.follow(late.following, *read)

    late.following.follow = follow
    await late.start()
    try:
        await until(lambda: "late" in late.namespaces.tenants and late.settings.values == {"maxTenants": "9"})
    finally:
        late.following.close()
        await late.tasks.close()


async def test_policies_and_namespaces(brokers):
    one, two = brokers
    told = []
    two.namespaces.listen(told.append)
    await one.namespaces.create_tenant("t", TenantInfo(allowed_clusters=["standalone"]))
    await one.namespaces.create_namespace("t/n", one.namespaces.new_policies())
    await until(lambda: two.namespaces.exists("t/n") and "t" in two.namespaces.tenants)
    with pytest.raises(ExistsError):
        await two.namespaces.create_namespace("t/n", two.namespaces.new_policies())
    await two.namespaces.update_namespace("t/n", lambda old: replace(old, message_ttl_in_seconds=5))
    await one.namespaces.update_namespace("t/n", lambda old: replace(old, max_consumers_per_topic=3))
    await until(lambda: two.namespaces.policies("t/n") == one.namespaces.policies("t/n"))
    assert one.namespaces.policies("t/n").message_ttl_in_seconds == 5
    assert told
    await one.namespaces.delete_namespace("t/n")
    await until(lambda: not two.namespaces.exists("t/n"))


async def test_a_namespace_that_another_program_damages_and_corrects(brokers):
    one, two = brokers
    await one.namespaces.create_tenant("t", TenantInfo(allowed_clusters=["standalone"]))
    await one.namespaces.create_namespace("t/n", one.namespaces.new_policies())
    good, version = await one.metadata.get("/admin/policies/t/n")
    version = await one.metadata.put("/admin/policies/t/n", b"{", version)
    late = await World(one.cluster, one.ledger_store).start()
    try:
        with pytest.raises(UnreadableRecordError):
            late.namespaces.policies("t/n")
        await one.metadata.put("/admin/policies/t/n", good, version)
        await until(lambda: "t/n" in late.namespaces.namespaces.readable())
        assert late.namespaces.policies("t/n") == two.namespaces.policies("t/n")
        await one.ledgers.make_known("t/n/persistent/x")
        await until(lambda: late.catalog.names("t/n") == ["persistent://t/n/x"])
    finally:
        late.following.close()
        await late.tasks.close()


async def test_a_broker_that_has_caught_up_knows_the_new_names_of_another_broker(brokers):
    """The reports of watches come late: behind the answer to the client of the other broker."""
    one, two = brokers
    two.metadata.hold_reports()
    name = TopicName.parse("persistent://t/n/parts")
    await one.namespaces.create_tenant("t", TenantInfo(allowed_clusters=["standalone"]))
    await one.namespaces.create_namespace("t/n", one.namespaces.new_policies())
    await one.catalog.create_partitioned(name, PartitionedTopic(partitions=3))
    await one.ledgers.make_known("t/n/persistent/plain")
    assert "t" not in two.namespaces.tenants
    assert two.catalog.partitioned(name) is None
    await two.following.caught_up()
    assert "t" in two.namespaces.tenants
    assert two.namespaces.exists("t/n")
    assert two.catalog.partitioned(name).partitions == 3
    assert two.catalog.names("t/n") == ["persistent://t/n/plain"]  # the first topics of a new namespace
    await one.catalog.delete_partitioned(name)
    await one.namespaces.delete_namespace("t/n")
    assert two.catalog.partitioned(name) is not None
    await two.following.caught_up()
    assert two.catalog.partitioned(name) is None
    assert not two.namespaces.exists("t/n")


async def test_a_broker_catches_up_behind_the_reads_of_earlier_reports(brokers, monkeypatch):
    one, two = brokers
    name, get, go_on = TopicName.parse("persistent://public/default/parts"), two.metadata.get, asyncio.Event()

    async def late(path):
        await go_on.wait()
        return await get(path)

    monkeypatch.setattr(two.metadata, "get", late)
    await one.catalog.create_partitioned(name, PartitionedTopic(partitions=3))
    caught_up = asyncio.create_task(two.following.caught_up())
    await until(lambda: two.following._work)
    await asyncio.sleep(0)
    assert not caught_up.done()
    go_on.set()
    await caught_up
    assert two.catalog.partitioned(name).partitions == 3


async def test_a_broker_knows_a_change_whose_notice_has_come(brokers):
    one, two = brokers
    policies, parts = "/admin/policies/t/n", "/admin/partitioned-topics/t/n/persistent/a%20b"
    name = TopicName.parse("persistent://t/n/a b")
    await one.namespaces.create_tenant("t", TenantInfo(allowed_clusters=["standalone"]))
    await one.namespaces.create_namespace("t/n", one.namespaces.new_policies())
    await one.catalog.create_partitioned(name, PartitionedTopic(partitions=2))
    await until(lambda: two.namespaces.exists("t/n") and two.catalog.partitioned(name) is not None)
    await until(lambda: not two.following._work)
    assert two.following.change_of([policies, parts]) is None
    two.metadata.hold_reports()
    await one.namespaces.update_namespace("t/n", lambda old: replace(old, max_consumers_per_topic=3))
    await one.catalog.update_partitioned(name, lambda old: old.grown(4))
    await until(lambda: len(two.metadata._held) == 2)
    assert two.namespaces.policies("t/n").max_consumers_per_topic is None
    assert two.following.change_of(["/admin/policies/t"]) is None
    await two.following.change_of([policies, "/admin/policies/t"])
    assert two.namespaces.policies("t/n").max_consumers_per_topic == 3
    await two.following.change_of([parts])
    assert two.catalog.partitioned(name).partitions == 4
    assert two.following.change_of([policies, parts]) is None


async def test_a_request_waits_for_the_work_on_a_report_for_a_bounded_time(brokers, monkeypatch):
    monkeypatch.setattr(following, "_APPLIED_WITHIN_S", 0.01)
    two, never = brokers[1], asyncio.Event()
    path = "/admin/partitioned-topics/t/n/persistent/a+b"
    two.following._spawn(never.wait, path)
    await two.following.change_of([path.replace("+", "%20")])
    never.set()
    await until(lambda: not two.following._work)
    assert two.following.change_of([path]) is None


async def test_a_broker_without_its_metadata_does_not_catch_up(brokers):
    brokers[1].metadata.suspend()
    with pytest.raises(StorageUnavailableError):
        await brokers[1].following.caught_up()


async def test_resource_groups_and_quotas(brokers):
    one, two = (each.namespaces for each in brokers)
    await one.resource_groups.create("g", ResourceGroup(publish_rate_in_msgs=5))
    await until(lambda: "g" in two.resource_groups)
    await two.resource_groups.update("g", lambda old: replace(old, dispatch_rate_in_bytes=7))
    await until(lambda: one.resource_groups.get("g") == two.resource_groups.get("g"))
    assert one.resource_groups.get("g").publish_rate_in_msgs == 5
    await two.resource_groups.delete("g")
    await until(lambda: "g" not in one.resource_groups)
    quota, bundle = ResourceQuota(memory=9), "public/default/0x00000000_0xffffffff"
    await one.quotas.create(bundle, quota)
    await until(lambda: two.quotas.get(bundle) == quota)
    await two.quotas.delete(bundle)
    await until(lambda: bundle not in one.quotas)


async def test_changes_at_the_same_time_are_all_kept(brokers):
    for number in range(20):
        each = brokers[number % 2]
        await each.namespaces.update_namespace("public/default", lambda old, n=number: with_property(old, n))
    await until(lambda: len(brokers[0].namespaces.policies("public/default").properties) == 20)
    await until(lambda: len(brokers[1].namespaces.policies("public/default").properties) == 20)


async def test_topics_come_and_go(brokers):
    one, two = brokers
    name = TopicName.parse("persistent://public/default/a b")
    await one.ledgers.make_known(name.persistence_name)
    await one.ledgers.make_known(name.persistence_name)
    await until(lambda: two.catalog.exists(name))
    await one.ledgers.delete(name.persistence_name)
    await until(lambda: not two.catalog.exists(name))
    parts = TopicName.parse("persistent://public/default/parts")
    await one.catalog.create_partitioned(parts, PartitionedTopic(partitions=3))
    await until(lambda: two.catalog.partitioned(parts) is not None)
    await one.catalog.update_partitioned(parts, lambda _: PartitionedTopic(partitions=4))
    await until(lambda: two.catalog.partitioned(parts).partitions == 4)
    await one.catalog.delete_partitioned(parts)
    await until(lambda: two.catalog.partitioned(parts) is None)


@pytest.mark.parametrize("is_followed", [False, True])
async def test_of_two_brokers_that_record_a_partitioned_topic_both_know_the_first_record(
    brokers, monkeypatch, is_followed
):
    one, two = brokers
    name, put = TopicName.parse("persistent://public/default/parts"), two.metadata.put

    async def put_behind(*args):
        if is_followed:
            await until(lambda: two.catalog.partitioned(name).partitions == 3)
        return await put(*args)

    monkeypatch.setattr(two.metadata, "put", put_behind)
    assert await asyncio.gather(
        one.catalog.create_partitioned(name, PartitionedTopic(partitions=3)),
        two.catalog.create_partitioned(name, PartitionedTopic(partitions=5)),
    ) == [True, False]
    assert [each.catalog.partitioned(name).partitions for each in brokers] == [3, 3]


async def test_of_many_topics_those_that_differ_are_looked_at(brokers, monkeypatch):
    one, two = brokers
    count = 600  # more than are read in one turn
    names = [TopicName.parse(f"persistent://public/default/{number}") for number in range(count)]
    for name in names:
        await one.ledgers.make_known(name.persistence_name)
    await until(lambda: all(map(two.catalog.exists, names)))
    parsed = []
    monkeypatch.setattr(
        "magnetar.broker.clustering.following.TopicName.from_persistence_name",
        lambda text, whole=TopicName.from_persistence_name: parsed.append(text) or whole(text),
    )
    await one.ledgers.delete(names[7].persistence_name)
    await until(lambda: not two.catalog.exists(names[7]))
    await until(lambda: not one.catalog.exists(names[7]))
    assert set(parsed) == {names[7].persistence_name}
    assert all(two.catalog.exists(name) for name in names if name is not names[7])


async def test_a_topic_that_went_before_its_namespace_was_watched_is_gone(brokers):
    one, _ = brokers
    late = World(one.cluster, one.ledger_store)
    name = TopicName.parse("persistent://public/default/gone")
    late.metadata.watch_children = lambda path, report: report([]) or (lambda: None)

    async def follow(*read):
        late.catalog.created(name)  # read, then deleted by another broker before the watch was set
        await Following.follow(late.following, *read)

    late.following.follow = follow
    await late.start()
    await until(lambda: not late.catalog.exists(name))
    late.following.close()
    await late.tasks.close()


async def test_a_topic_created_behind_the_first_report_of_its_namespace_stays(brokers):
    one, two = brokers
    name = TopicName.parse("persistent://public/new/t")
    watch = two.metadata.watch_children

    def watch_children(path, report):
        stop = watch(path, report)
        two.catalog.created(name)  # before the report is handled
        return stop

    two.metadata.watch_children = watch_children
    await one.namespaces.create_namespace("public/new", one.namespaces.new_policies())
    await until(lambda: two.catalog.exists(name))
    await idle(two)
    assert two.catalog.exists(name)


async def test_a_deleted_namespace_is_watched_no_more_until_it_is_created_again(brokers):
    one, two = brokers
    name, watched, watch = TopicName.parse("persistent://public/new/t"), [], two.metadata.watch_children

    def watch_children(path, report):
        stop = watch(path, report)
        watched.append(path)
        return lambda: watched.remove(path) or stop()

    two.metadata.watch_children = watch_children
    for _ in range(2):
        await one.namespaces.create_namespace("public/new", one.namespaces.new_policies())
        await one.ledgers.make_known(name.persistence_name)
        await until(lambda: two.catalog.exists(name))
        assert watched == ["/managed-ledgers/public/new/persistent"]
        await one.namespaces.delete_namespace("public/new")  # before the deletion of the topic is reported
        await until(lambda: not two.catalog.exists(name))
        await one.ledgers.delete(name.persistence_name)
        await idle(two)
        assert watched == []


async def test_a_change_of_policies_handles_no_older_list_of_topics(brokers):
    one, two = brokers
    name, children, reported = TopicName.parse("persistent://public/default/t"), two.metadata.children, asyncio.Event()

    async def late_children(path):
        found = await children(path)
        await reported.wait()
        return found

    two.metadata.children = late_children
    await one.namespaces.update_namespace("public/default", lambda old: replace(old, message_ttl_in_seconds=5))
    await until(lambda: two.namespaces.policies("public/default").message_ttl_in_seconds == 5)
    await one.ledgers.make_known(name.persistence_name)
    await until(lambda: two.catalog.exists(name))
    reported.set()
    await idle(two)
    assert two.catalog.exists(name)


async def test_a_node_that_cannot_be_read_changes_nothing(brokers):
    one, two = brokers
    await one.metadata.put("/admin/policies/public/default", b"garbage")
    await one.metadata.put("/admin/policies/other", b'{"adminRoles":[],"allowedClusters":[]}')
    await until(lambda: "other" in two.namespaces.tenants)
    assert two.namespaces.exists("public/default")


async def test_a_change_whose_read_fails_is_read_again_until_the_service_answers(brokers, monkeypatch):
    one, two = brokers
    monkeypatch.setattr(following, "_RETRY_S", 0.0)
    reads = []

    async def get(path, real=two.metadata.get):
        if path == "/admin/policies/t":
            reads.append(path)
            if len(reads) <= 2:
                raise StorageUnavailableError("the session has expired")
        return await real(path)

    monkeypatch.setattr(two.metadata, "get", get)
    await one.namespaces.create_tenant("t", TenantInfo(admin_roles=["a"]))
    await until(lambda: "t" in two.namespaces.tenants)
    assert len(reads) == 3


async def idle(world):
    """Wait until the broker has handled every report."""
    await until(lambda: len(world.tasks) == 0)


def replace(policies, **changes):
    import msgspec

    return msgspec.structs.replace(policies, **changes)


def with_property(policies, number):
    return replace(policies, properties={**policies.properties, str(number): "x"})


async def test_isolation_policies(brokers):
    one, two = brokers
    await one.namespaces.isolation.update("standalone", lambda old: old | {"p": {"namespaces": ["a"]}}, {})
    await until(lambda: two.namespaces.isolation.get("standalone") == {"p": {"namespaces": ["a"]}})
    await two.namespaces.isolation.update("standalone", lambda old: old | {"q": {"namespaces": ["b"]}}, {})
    await until(lambda: set(one.namespaces.isolation.get("standalone") or ()) == {"p", "q"})


async def test_a_report_that_is_read_while_its_namespace_goes_leaves_no_topic(brokers):
    one, two = brokers
    await one.namespaces.create_namespace("public/new", one.namespaces.new_policies())
    await until(lambda: "public/new" in two.following._topic_watches)
    await idle(two)
    reading = asyncio.ensure_future(two.following._topics_changed("public/new", [str(n) for n in range(1000)]))
    await asyncio.sleep(0)
    two.following._forget_topics("public/new")
    await reading
    assert two.catalog.names("public/new") == []
