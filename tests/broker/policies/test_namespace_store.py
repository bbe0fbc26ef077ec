"""The store of tenants, namespaces and policies: durable, consistent with the stored records, reported to listeners."""

import asyncio
import contextlib
import dataclasses

import msgspec
import pytest
from structlog.testing import capture_logs

from magnetar.broker.errors import UnreadableRecordError
from magnetar.broker.policies.namespace_store import NamespaceStore, PolicyChange
from magnetar.broker.policies.records import Policies, TopicPolicies
from magnetar.broker.policies.stored_records import ExistsError, MissingError
from magnetar.broker.policies.values import (
    AuthPolicies,
    AutoTopicCreation,
    BacklogQuota,
    InactiveTopicPolicies,
    ResourceQuota,
    RetentionPolicies,
    TenantInfo,
)
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import StorageFullError
from tests.twins.memory_metadata import MemoryMetadataStore

T = TopicName.parse("persistent://public/default/t")
ODD = TopicName.parse("persistent://public/default/a b%2Fc:ü")


@pytest.fixture
def metadata():
    return MemoryMetadataStore()


@pytest.fixture
async def store(metadata):
    return await NamespaceStore.open(metadata, Settings())


def set_ttl(seconds):
    return lambda old: msgspec.structs.replace(old, message_ttl_in_seconds=seconds)


async def test_the_first_start_creates_the_objects_that_clients_expect(store):
    assert store.clusters.names() == ["standalone"]
    assert store.tenants.names() == ["public", "pulsar"]
    assert store.namespaces.names() == ["public/default", "pulsar/system"]
    assert store.exists("public/default")
    assert not store.exists("public/other")


async def add_member(metadata, path):
    """Add a member to the record, as a newer version of Apache Pulsar does."""
    value, version = await metadata.get(path)
    await metadata.put(path, msgspec.json.encode(msgspec.json.decode(value) | {"z_new": {"a": [1, None]}}), version)


async def has_member(metadata, path):
    return msgspec.json.decode((await metadata.get(path))[0]).get("z_new") == {"a": [1, None]}


async def test_members_of_a_newer_version_survive_changes(store, metadata):
    await store.create_tenant("t", TenantInfo(admin_roles=["a"], allowed_clusters=["standalone"]))
    await store.create_namespace("t/n", store.new_policies())
    paths = ("/admin/clusters/standalone", "/admin/policies/t", "/admin/policies/t/n")
    for path in paths:
        await add_member(metadata, path)
    opened = await NamespaceStore.open(metadata, Settings())
    for again in (opened, store):  # the second store reads the members when its first write has lost
        for seconds in (6, 7):
            await again.update_namespace("t/n", set_ttl(seconds))
            await again.tenants.update("t", lambda old: old)
            await again.clusters.update("standalone", lambda old: old)
        assert [await has_member(metadata, path) for path in paths] == [True] * 3
        assert (await NamespaceStore.open(metadata, Settings())).policies("t/n").message_ttl_in_seconds == 7
    await store.namespaces.delete("t/n")
    await store.create_namespace("t/n", store.new_policies())
    assert not await has_member(metadata, "/admin/policies/t/n")


async def test_null_is_no_value_as_in_apache_pulsar(store, metadata):
    await store.create_tenant("t", TenantInfo(admin_roles=["a"], allowed_clusters=["standalone"]))
    await store.create_namespace("t/n", store.new_policies())
    nulls = b'{"bundles":null,"deleted":null,"message_ttl_in_seconds":5,"auth_policies":null,"z_new":null}'
    await metadata.put("/admin/policies/t/n", nulls, 0)
    again = await NamespaceStore.open(metadata, Settings())
    assert again.policies("t/n") == Policies(message_ttl_in_seconds=5)


NOT_UTF_8, TOO_DEEP = b'{"properties":{"a":"\xff"}}', b'{"a":' + 100_000 * b"["


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"deleted":"perhaps"}', b'{"\xff":1}', NOT_UTF_8, TOO_DEEP])
async def test_an_unreadable_namespace_fails_alone(store, metadata, value):
    await store.create_tenant("t", TenantInfo(admin_roles=["a"], allowed_clusters=["standalone"]))
    await store.create_namespace("t/n", store.new_policies())
    await metadata.put("/admin/policies/public/default", value, 0)
    again = await NamespaceStore.open(metadata, Settings())
    assert again.policies("t/n") == store.policies("t/n")
    assert again.exists("public/default"), "no other client may take the name"
    assert again.namespaces_of("public") == ["public/default"], "its tenant cannot be deleted"
    assert "public/default" not in again.namespaces.readable()
    refused = pytest.raises(UnreadableRecordError, match=r"payload for key '/admin/policies/public/default'$")
    for question in (again.policies, again.namespaces.get):
        with refused:
            question("public/default")
    for work in (again.update_namespace("public/default", set_ttl(5)), again.reload("public/default")):
        with refused:
            await work
    with pytest.raises(ExistsError):
        await again.create_namespace("public/default", again.new_policies())
    assert (await metadata.get("/admin/policies/public/default"))[0] == value


async def test_a_corrected_record_is_in_force_again(store, metadata):
    good, _ = await metadata.get("/admin/policies/public/default")
    await metadata.put("/admin/policies/public/default", b"{", 0)
    again = await NamespaceStore.open(metadata, Settings())
    told = []
    again.listen(told.append)
    await metadata.put("/admin/policies/public/default", good, 1)
    await again.reload("public/default")
    assert again.policies("public/default") == store.policies("public/default")
    assert told == [PolicyChange("public", "public/default")]


async def test_a_record_that_becomes_unreadable_keeps_its_value(store, metadata):
    before = store.policies("public/default")
    await metadata.put("/admin/policies/public/default", b"{", 0)
    with pytest.raises(UnreadableRecordError):
        await store.reload("public/default")
    assert store.policies("public/default") is before
    with pytest.raises(UnreadableRecordError):
        await store.update_namespace("public/default", set_ttl(5))
    assert store.policies("public/default") is before


@pytest.mark.parametrize("value", [b"{", b'{"\xff":1}', TOO_DEEP])
async def test_other_unreadable_records_fail_alone(store, metadata, value):
    await store.create_tenant("t", TenantInfo(admin_roles=["a"], allowed_clusters=["standalone"]))
    paths = ("clusters/standalone", "clusters/standalone/namespaceIsolationPolicies", "policies/public")
    paths += ("resourcegroups/g", "topic-policies/public/default/persistent/t")
    for path in paths:
        await metadata.put(f"/admin/{path}", value)
    again = await NamespaceStore.open(metadata, Settings())
    for kind, name in (
        (again.clusters, "standalone"),
        (again.isolation, "standalone"),
        (again.tenants, "public"),
        (again.resource_groups, "g"),
        (again.topics, str(T)),
    ):
        with pytest.raises(UnreadableRecordError):
            kind.get(name)
    assert again.isolation.in_force("standalone") == {}
    assert again.tenants.names() == ["public", "pulsar", "t"]
    assert again.policies("public/default") == store.policies("public/default")
    await again.resource_groups.delete("g")
    assert (again.resource_groups.names(), await metadata.get("/admin/resourcegroups/g")) == ([], None)
    with pytest.raises(UnreadableRecordError):
        await again.isolation.update("standalone", lambda old: old, {})
    await again.isolation.forget("standalone")
    assert again.isolation.get("standalone") is None


async def test_an_unknown_name_in_place_of_one_of_a_set_is_null_as_in_apache_pulsar(store, metadata):
    policies = {
        "schema_compatibility_strategy": "OF_TOMORROW",
        "subscription_auth_mode": "Suffix",
        "inactive_topic_policies": {"inactiveTopicDeleteMode": "never", "maxInactiveDurationSeconds": 5},
        "auth_policies": {"namespace_auth": {"r": ["fly", "consume"]}},
        "backlog_quota_map": {"destination_storage": {"limitSize": 5, "policy": "pray"}},
    }
    await metadata.put("/admin/policies/public/default", msgspec.json.encode(policies), 0)
    again = await NamespaceStore.open(metadata, Settings())
    assert again.policies("public/default") == Policies(
        auth_policies=AuthPolicies(namespace_auth={"r": [None, "consume"]}),
        inactive_topic_policies=InactiveTopicPolicies(max_inactive_duration_seconds=5),
        backlog_quota_map={"destination_storage": BacklogQuota(limit_size=5)},
    )


async def test_an_unknown_name_in_the_policies_of_a_topic_leaves_the_others(store, metadata):
    """The type of these policies contains itself, for those of all clusters."""
    tomorrow = {"schema_compatibility_strategy": "OF_TOMORROW", "max_producers": 3}
    path = "/admin/topic-policies/public/default/persistent/t"
    await metadata.put(path, msgspec.json.encode(tomorrow | {"for_all_clusters": tomorrow}))
    again = await NamespaceStore.open(metadata, Settings())
    expected = TopicPolicies(max_producers=3)
    assert again.topic_policies(T) == msgspec.structs.replace(expected, for_all_clusters=expected)


@pytest.mark.parametrize("types", [["Exclusive", "Quantum"], ["Quantum"]])
async def test_unknown_types_of_subscriptions_stay_as_in_apache_pulsar(store, metadata, types):
    await metadata.put("/admin/policies/public/default", msgspec.json.encode({"subscription_types_enabled": types}), 0)
    again = await NamespaceStore.open(metadata, Settings())
    assert again.policies("public/default").subscription_types_enabled == types
    assert again.effective(T).subscription_types_enabled == tuple(types)


BUNDLE = "public/default/0x00000000_0xffffffff"


async def test_resource_quotas_lie_where_apache_pulsar_has_them(store, metadata):
    for name, memory in (("default", 5), (BUNDLE, 6)):
        await store.quotas.create(name, ResourceQuota(memory=memory))
        assert msgspec.json.decode((await metadata.get(f"/loadbalance/resource-quota/{name}"))[0])["memory"] == memory
    again = await NamespaceStore.open(metadata, Settings())
    assert again.quotas.names() == ["default", BUNDLE]
    assert again.quotas.get(BUNDLE) == ResourceQuota(memory=6)


async def test_quotas_of_an_earlier_version_move(store, metadata):
    former = "/admin/resource-quotas"
    for name, memory in (("default", 5), ("public%2Fdefault%2F0x00000000_0xffffffff", 6)):
        await metadata.put(f"{former}/{name}", msgspec.json.encode(ResourceQuota(memory=memory)))
    await store.quotas.create("default", ResourceQuota(memory=7))  # as by a broker of Apache Pulsar
    again = await NamespaceStore.open(metadata, Settings())
    assert (again.quotas.get("default").memory, again.quotas.get(BUNDLE).memory) == (7, 6)
    assert await metadata.children(former) == []


async def test_everything_is_there_after_a_restart(store, metadata):
    await store.create_tenant("t", TenantInfo(admin_roles=["a"], allowed_clusters=["standalone"]))
    await store.create_namespace("t/n", store.new_policies())
    await store.update_namespace("t/n", set_ttl(5))
    await store.update_topic(ODD, set_ttl(7))
    again = await NamespaceStore.open(metadata, Settings())
    assert again.tenants.get("t") == store.tenants.get("t")
    assert again.policies("t/n") == store.policies("t/n")
    assert again.topic_policies(ODD).message_ttl_in_seconds == 7
    await again.update_namespace("t/n", set_ttl(6))
    assert again.policies("t/n").message_ttl_in_seconds == 6


async def test_deleted_defaults_stay_deleted(store, metadata):
    await store.delete_namespace("public/default")
    again = await NamespaceStore.open(metadata, Settings())
    assert not again.exists("public/default")


async def test_first_start_that_was_cut_off_is_done_again():
    for writes in range(1, 6):
        metadata = MemoryMetadataStore()
        left = [writes]

        def stop(_path, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise StorageFullError("cut off")

        metadata.before_write = stop
        with contextlib.suppress(StorageFullError):
            await NamespaceStore.open(metadata, Settings())
        metadata.before_write = lambda _path: None
        store = await NamespaceStore.open(metadata, Settings())
        assert store.namespaces.names() == ["public/default", "pulsar/system"]
        assert store.clusters.names() == ["standalone"]


async def test_another_cluster_name_adds_a_cluster(metadata, store):
    with capture_logs() as logs:
        again = await NamespaceStore.open(metadata, dataclasses.replace(Settings(), cluster_name="c2"))
        await NamespaceStore.open(metadata, dataclasses.replace(Settings(), cluster_name="c2"))
    assert again.clusters.names() == ["c2", "standalone"]
    (warning,) = logs
    assert (warning["event"], warning["cluster"], warning["known"]) == ("cluster.new", "c2", ["standalone"])
    assert "set clusterName back" in warning["remedy"]


async def test_a_failed_write_changes_nothing(store, metadata):
    metadata.fail_writes = StorageFullError("full")
    for attempt in (
        store.create_namespace("public/n", store.new_policies()),
        store.update_namespace("public/default", set_ttl(5)),
        store.delete_namespace("public/default"),
        store.update_topic(T, set_ttl(5)),
    ):
        with pytest.raises(StorageFullError):
            await attempt
    assert store.policies("public/default").message_ttl_in_seconds is None
    assert not store.exists("public/n")
    metadata.fail_writes = None
    await store.update_namespace("public/default", set_ttl(5))
    assert store.policies("public/default").message_ttl_in_seconds == 5


async def test_requests_about_existing_and_missing_names(store):
    with pytest.raises(ExistsError):
        await store.create_namespace("public/default", store.new_policies())
    with pytest.raises(MissingError):
        await store.update_namespace("public/none", set_ttl(5))
    with pytest.raises(MissingError):
        await store.delete_namespace("public/none")
    with pytest.raises(MissingError):
        await store.update_tenant("none", TenantInfo())


async def test_changes_at_the_same_time_are_all_kept(store):
    async def add(i):
        await store.update_namespace(
            "public/default",
            lambda old: msgspec.structs.replace(old, properties=old.properties | {str(i): "x"}),
        )

    await asyncio.gather(*(add(i) for i in range(20)))
    assert len(store.policies("public/default").properties) == 20


async def test_listeners_hear_of_each_change_after_it_is_stored(store):
    heard = []

    def listener(change):
        heard.append((change, store.exists("public/n")))

    store.listen(listener)
    await store.create_namespace("public/n", store.new_policies())
    await store.update_namespace("public/n", set_ttl(5))
    await store.update_topic(T.partition_name(3), set_ttl(5))
    await store.delete_namespace("public/n")
    assert heard == [
        (PolicyChange("public", "public/n"), True),
        (PolicyChange("public", "public/n"), True),
        (PolicyChange("public", "public/default", str(T)), True),
        (PolicyChange("public", "public/n"), False),
    ]


async def test_policies_and_grants_of_a_topic_go_with_it(store):
    grants = AuthPolicies(destination_auth={str(T): {"r": ["produce"]}, str(ODD): {"r": ["consume"]}})
    await store.update_namespace("public/default", lambda old: msgspec.structs.replace(old, auth_policies=grants))
    await store.update_topic(T, set_ttl(5))
    await store.delete_topic(T)
    await store.delete_topic(T)
    assert store.topic_policies(T).message_ttl_in_seconds is None
    assert list(store.policies("public/default").auth_policies.destination_auth) == [str(ODD)]


# --- policies in force --------------------------------------------------------------------------------------------


async def test_nothing_in_memory_stays_of_deleted_records(store, metadata):
    names = [f"public/n{number}" for number in range(20)]
    kept = {"effective": len(store._effective), "locks": len(store.namespaces._locks)}
    for name in names:
        topic = TopicName.parse(f"persistent://{name}/t")
        await store.create_namespace(name, store.new_policies())
        await store.update_topic(topic, set_ttl(5))
        metadata.before_write = lambda _path, topic=topic: store.effective(topic)  # a topic that is still loaded
        await store.delete_topic(topic)
        await store.delete_namespace(name)
        metadata.before_write = lambda _path: None
    assert {"effective": len(store._effective), "locks": len(store.namespaces._locks)} == kept
    assert not store.topics._locks


async def test_nothing_in_memory_stays_of_records_that_another_broker_deletes(store, metadata):
    name, kept = "public/n", len(store._effective)
    topic = TopicName.parse(f"persistent://{name}/t")
    await store.create_namespace(name, store.new_policies())
    store.effective(topic)
    await store.update_topic(topic, set_ttl(5))
    store.effective(topic)
    store.in_use.add(name)
    await store.topics.delete(str(topic))
    store.topic_changed(topic)
    await metadata.delete(f"/admin/policies/{name}")
    await store.reload(name)
    assert (len(store._effective), store.in_use) == (kept, set())


async def test_topic_beats_namespace_beats_broker(store):
    assert store.effective(T).message_ttl_seconds == 0
    await store.update_namespace("public/default", set_ttl(5))
    assert store.effective(T).message_ttl_seconds == 5
    await store.update_topic(T, set_ttl(7))
    assert store.effective(T).message_ttl_seconds == 7
    assert store.effective(T.partition_name(0)).message_ttl_seconds == 7
    assert store.effective(ODD).message_ttl_seconds == 5
    await store.update_topic(T, set_ttl(0))
    assert store.effective(T).message_ttl_seconds == 0, "zero is a value"


async def test_a_change_without_effect_on_the_configuration_keeps_its_object(store):
    """Topics compare the object: a grant costs twenty thousand topics no comparison of all fields."""
    before = store.effective(T)
    grants = AuthPolicies(namespace_auth={"r": ["produce"]})
    await store.update_namespace("public/default", lambda old: msgspec.structs.replace(old, auth_policies=grants))
    assert store.effective(T) is before
    await store.update_namespace("public/default", set_ttl(5))
    assert store.effective(T) is not before


@pytest.mark.parametrize(
    ("older", "means"),
    [
        (None, "FULL"),
        ("AutoUpdateDisabled", "ALWAYS_INCOMPATIBLE"),
        ("AlwaysCompatible", "ALWAYS_COMPATIBLE"),
        ("Backward", "BACKWARD"),
        ("ForwardTransitive", "FORWARD_TRANSITIVE"),
    ],
)
async def test_the_older_schema_policy_counts_where_the_newer_is_not_set(store, older, means):
    def change(**values):
        return lambda policies: msgspec.structs.replace(policies, **values)

    await store.update_namespace("public/default", change(schema_auto_update_compatibility_strategy=older))
    assert store.effective(T).schema_compatibility_strategy == means
    await store.update_namespace("public/default", change(schema_compatibility_strategy="BACKWARD_TRANSITIVE"))
    assert store.effective(T).schema_compatibility_strategy == "BACKWARD_TRANSITIVE"


async def test_defaults_come_from_the_settings():
    settings = dataclasses.replace(
        Settings(),
        allow_auto_topic_creation_type="partitioned",
        default_num_partitions=3,
        default_retention_time_in_minutes=5,
        default_retention_size_in_mb=6,
        backlog_quota_default_limit_bytes=100,
        backlog_quota_default_limit_second=50,
        backlog_quota_default_retention_policy="producer_exception",
        broker_delete_inactive_topics_frequency_seconds=9,
        schema_compatibility_strategy="BACKWARD",
        encryption_require_on_producer=True,
    )
    store = await NamespaceStore.open(MemoryMetadataStore(), settings)
    config = store.effective(T)
    assert (config.auto_topic_creation_type, config.default_num_partitions) == ("partitioned", 3)
    assert config.retention == RetentionPolicies(5, 6)
    assert (config.size_quota.limit_size, config.size_quota.policy) == (100, "producer_exception")
    assert config.age_quota.limit_time == 50
    assert config.inactive_topic.max_inactive_duration_seconds == 9
    assert config.schema_compatibility_strategy == "BACKWARD"
    assert config.encryption_required


async def test_overrides_of_a_namespace(store):
    override = Policies(
        auto_topic_creation_override=AutoTopicCreation(allow_auto_topic_creation=False),
        backlog_quota_map={"message_age": BacklogQuota(limit_time=5, policy="producer_exception")},
        inactive_topic_policies=InactiveTopicPolicies(max_inactive_duration_seconds=1, delete_while_inactive=True),
        subscription_types_enabled=["Shared"],
        schema_compatibility_strategy="UNDEFINED",
        max_topics_per_namespace=9,
    )
    await store.create_namespace("public/n", override)
    config = store.effective(TopicName.parse("persistent://public/n/t"))
    assert not config.allow_auto_topic_creation
    assert config.age_quota.limit_time == 5
    assert config.size_quota.limit_size == -1
    assert config.subscription_types_enabled == ("Shared",)
    assert config.schema_compatibility_strategy == "FULL"
    assert config.max_topics_per_namespace == 9


async def test_topic_policies_are_not_looked_at_when_switched_off(metadata):
    store = await NamespaceStore.open(metadata, dataclasses.replace(Settings(), topic_level_policies_enabled=False))
    await store.update_topic(T, set_ttl(5))
    assert store.effective(T).message_ttl_seconds == 0


async def test_equal_policies_give_equal_configurations(store):
    assert store.effective(T) is store.effective(T.partition_name(1)), "merged once"
    before = store.effective(T)
    await store.update_namespace("public/default", lambda old: msgspec.structs.replace(old, properties={"a": "b"}))
    assert store.effective(T) == before


async def test_a_record_that_another_broker_deleted_and_made_anew_is_read_though_its_version_is_the_same(
    metadata, store
):
    other = await NamespaceStore.open(metadata, Settings())
    await store.create_tenant("t", TenantInfo(admin_roles=["former"]))
    await other.reload("t")
    told = []
    other.listen(told.append)
    await store.delete_tenant("t")
    await store.create_tenant("t", TenantInfo(admin_roles=["present"]))
    await other.reload("t")
    assert other.tenants.get("t").admin_roles == ["present"]
    assert told == [PolicyChange("t")]
    await other.reload("t")  # nothing has changed since
    assert told == [PolicyChange("t")]
