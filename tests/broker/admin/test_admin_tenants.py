"""Clusters, tenants and namespaces over REST: statuses and bodies as Apache Pulsar has them."""

import asyncio
import zlib

import pytest

from magnetar.broker.admin import namespace_routes
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName
from tests.broker.admin_fakes import Client, FakeBroker, open_client
from tests.twins.memory_metadata import MemoryMetadataStore

INFO = {"adminRoles": ["b", "a"], "allowedClusters": ["standalone"]}
FORCE = Settings(force_delete_namespace_allowed=True, force_delete_tenant_allowed=True)


async def test_the_first_start_creates_the_objects_that_clients_expect():
    call = await open_client()
    assert (await call("GET", "clusters")).json == ["standalone"]
    assert (await call("GET", "tenants")).json == ["public", "pulsar"]
    assert (await call("GET", "namespaces/public")).json == ["public/default"]
    cluster = (await call("GET", "clusters/standalone")).json
    assert cluster["serviceUrl"] == "http://localhost:8080"
    assert cluster["brokerServiceUrl"] == "pulsar://localhost:6650"
    assert cluster["brokerClientTlsEnabled"] is False


async def test_requests_about_an_unreadable_namespace_fail_as_in_apache_pulsar():
    metadata, path = MemoryMetadataStore(), "/admin/policies/public/default"
    await NamespaceStore.open(metadata, Settings())
    await metadata.put(path, b"{")
    call = Client(FakeBroker(Settings(), metadata, await NamespaceStore.open(metadata, Settings())))
    refusal = {"reason": f"Failed to deserialize payload for key '{path}'"}
    for method, name, body in (
        ("GET", "namespaces/public/default", None),
        ("GET", "namespaces/public/default/messageTTL", None),
        ("POST", "namespaces/public/default/messageTTL", 5),
        ("DELETE", "namespaces/public/default", None),
        ("PUT", "persistent/public/default/t", None),
    ):
        found = await call(method, name, body)
        assert (found.status, found.json) == (500, refusal), (method, name)
    assert (await call("GET", "namespaces/public")).json == []
    assert (await call("PUT", "namespaces/public/default")).status == 409
    assert (await call("DELETE", "tenants/public")).status == 409
    assert (await call("PUT", "namespaces/public/other")).status == 204


async def test_requests_about_an_unreadable_tenant_fail_as_in_apache_pulsar():
    metadata = MemoryMetadataStore()
    await NamespaceStore.open(metadata, Settings())
    await metadata.put("/admin/policies/public", b"{")
    call = Client(FakeBroker(Settings(), metadata, await NamespaceStore.open(metadata, Settings())))
    assert (await call("GET", "tenants")).json == ["public", "pulsar"]
    assert (await call("GET", "namespaces/public")).json == ["public/default"]
    assert (await call("GET", "namespaces/public/default")).status == 200
    assert (await call("PUT", "persistent/public/default/t")).status == 204
    for method, name, body in (
        ("GET", "tenants/public", None),
        ("POST", "tenants/public", INFO),
        ("PUT", "namespaces/public/new", None),
    ):
        found = await call(method, name, body)
        assert (found.status, found.json) == (
            500,
            {"reason": "Failed to deserialize payload for key '/admin/policies/public'"},
        ), (method, name)
    assert (await call("PUT", "tenants/public", INFO)).status == 409


async def test_cluster_life():
    call = await open_client()
    data = {"serviceUrl": "http://other:8080", "brokerServiceUrl": "pulsar://other:6650"}
    assert (await call("PUT", "clusters/standalone", data)).status == 409
    assert (await call("PUT", "clusters/c2", data)).status == 200
    assert (await call("GET", "clusters/c2")).json["serviceUrl"] == "http://other:8080"
    assert (await call("POST", "clusters/c2", data | {"serviceUrl": "http://new"})).status == 200
    assert (await call("GET", "clusters/c2")).json["serviceUrl"] == "http://new"
    assert (await call("GET", "clusters/c3")).status == 404
    assert (await call("PUT", "clusters/c3", {"serviceUrl": "foo"})).status == 400
    assert (await call("DELETE", "clusters/standalone")).status == 412
    assert (await call("DELETE", "clusters/c2")).status == 204
    assert (await call("DELETE", "clusters/c2")).status == 404


@pytest.mark.parametrize("again", ["POST", "PUT"])
async def test_the_own_cluster_shows_the_addresses_of_an_administrator_and_no_others(again):
    call = await open_client()
    if again == "PUT":
        for path in ("namespaces/public/default", "tenants/public", "namespaces/pulsar/system", "tenants/pulsar"):
            await call("DELETE", path)
        assert (await call("DELETE", "clusters/standalone")).status == 204
    assert (await call(again, "clusters/standalone", {"serviceUrl": "http://given:1"})).status == 200
    cluster = (await call("GET", "clusters/standalone")).json
    assert {key: url for key, url in cluster.items() if "Url" in key and url} == {"serviceUrl": "http://given:1"}
    assert cluster["brokerClientTlsKeyStoreType"] == "JKS"


async def test_tenant_life():
    call = await open_client()
    assert (await call("GET", "tenants/t")).status == 404
    assert (await call("PUT", "tenants/t", INFO)).status == 204
    assert (await call("PUT", "tenants/t", INFO)).status == 409
    assert (await call("GET", "tenants/t")).json == {"adminRoles": ["a", "b"], "allowedClusters": ["standalone"]}
    assert (await call("POST", "tenants/t", INFO | {"adminRoles": ["c"]})).status == 204
    assert (await call("GET", "tenants/t")).json["adminRoles"] == ["c"]
    assert (await call("POST", "tenants/none", INFO)).status == 404
    await call("PUT", "namespaces/t/n")
    assert (await call("DELETE", "tenants/t")).status == 409
    assert (await call("DELETE", "tenants/t?force=true")).status == 405
    await call("DELETE", "namespaces/t/n")
    assert (await call("DELETE", "tenants/t")).status == 204
    assert (await call("DELETE", "tenants/t")).status == 404


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("t", {"adminRoles": []}, 412),
        ("t", INFO | {"adminRoles": ["a", " b"]}, 412),
        ("t", INFO | {"adminRoles": ["b\x01"]}, 412),
        ("t", INFO | {"adminRoles": ["", "\u2003b\u00a0"]}, 204),
        ("t", {"allowedClusters": ["nowhere"]}, 412),
        ("t", {"allowedClusters": 5}, 400),
        ("t", None, 412),
        ("t%20t", INFO, 412),
        ("t", INFO | {"adminRoles": None, "more": 1}, 204),
    ],
)
async def test_tenant_bodies(name, body, status):
    call = await open_client()
    assert (await call("PUT", f"tenants/{name}", body)).status == status


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"allowedClusters": 5}', b"\xff"])
async def test_broken_bodies_are_400(raw):
    call = await open_client()
    assert (await call("PUT", "tenants/t", raw=raw)).status == 400


async def test_body_of_another_content_type_is_415():
    call = await open_client()
    assert (await call("PUT", "tenants/t", INFO, content_type="text/plain")).status == 415


async def test_too_large_a_body_is_413():
    call = await open_client(Settings(http_max_request_size=10))
    assert (await call("PUT", "tenants/t", INFO)).status == 413


async def test_forced_deletion_takes_everything_along():
    call = await open_client(FORCE)
    await call("PUT", "tenants/t", INFO)
    await call("PUT", "namespaces/t/n")
    await call("PUT", "persistent/t/n/topic")
    await call("PUT", "persistent/t/n/parts/partitions", 2)
    assert (await call("DELETE", "tenants/t?force=true")).status == 204
    assert (await call("GET", "tenants/t")).status == 404
    assert call.topics.plain == {}
    assert call.topics.partitioned == {}


async def test_a_namespace_that_is_being_deleted_is_marked_and_loses_its_system_topics_last():
    call = await open_client(FORCE)
    for topic in ("__change_events", "a", "b"):
        await call("PUT", f"persistent/public/default/{topic}")
    deleted, delete = [], call.topics.delete

    async def watched(name):
        deleted.append((name.local_name, call.broker.namespaces.policies("public/default").deleted))
        await delete(name)

    call.topics.delete = watched
    assert (await call("DELETE", "namespaces/public/default?force=true")).status == 204
    assert deleted == [("a", True), ("b", True), ("__change_events", True)]


async def test_a_topic_whose_creation_was_under_way_goes_with_its_namespace():
    call = await open_client(FORCE)
    await call("PUT", "persistent/public/default/a")
    delete = call.topics.delete

    async def late(name):
        await delete(name)
        if name.local_name == "a":
            await call.topics.create(TopicName.parse("persistent://public/default/late"), {})

    call.topics.delete = late
    assert (await call("DELETE", "namespaces/public/default?force=true")).status == 204
    assert call.topics.plain == {}


async def test_a_topic_whose_load_was_under_way_goes_with_its_namespace():
    call = await open_client(FORCE)
    waited = []

    async def settled(namespace):
        waited.append((namespace, call.broker.namespaces.policies(namespace).deleted))
        await call.topics.create(TopicName.parse("persistent://public/default/late"), {})

    call.topics.settled = settled
    assert (await call("DELETE", "namespaces/public/default?force=true")).status == 204
    assert waited == [("public/default", True)]
    assert call.topics.plain == {}


async def test_a_failed_deletion_of_a_namespace_removes_its_mark():
    call = await open_client(FORCE)
    await call("PUT", "persistent/public/default/a")

    async def fails(_name):
        raise ServiceNotReadyError("no")

    call.topics.delete = fails
    assert (await call("DELETE", "namespaces/public/default?force=true")).status == 503
    assert not call.broker.namespaces.policies("public/default").deleted


async def test_topics_of_a_namespace_are_deleted_at_the_same_time_within_a_bound():
    call = await open_client(FORCE)
    for number in range(100):
        await call.topics.create(TopicName.parse(f"persistent://public/default/t{number}"), {})
    delete, under_way, most = call.topics.delete, set(), 0

    async def slow(name):
        nonlocal most
        under_way.add(name)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(name)
        await delete(name)

    call.topics.delete = slow
    assert (await call("DELETE", "namespaces/public/default?force=true")).status == 204
    assert most == 32
    assert call.topics.plain == {}


async def test_a_failed_deletion_of_a_namespace_ends_behind_the_deletions_beside_it():
    call = await open_client(FORCE)
    for number in range(3):
        await call.topics.create(TopicName.parse(f"persistent://public/default/t{number}"), {})
    delete, marks = call.topics.delete, []

    async def second_fails(name):
        if name.local_name == "t1":
            raise ServiceNotReadyError("no")
        await asyncio.sleep(0)
        await delete(name)
        marks.append(call.broker.namespaces.policies("public/default").deleted)

    call.topics.delete = second_fails
    assert (await call("DELETE", "namespaces/public/default?force=true")).status == 503
    assert marks == [True, True]
    assert list(call.topics.plain) == ["persistent://public/default/t1"]


async def test_a_topic_that_is_created_beside_an_unforced_deletion_stops_it():
    call = await open_client()
    namespaces = call.broker.namespaces
    update = namespaces.update_namespace

    async def slow(name, change):
        if change(namespaces.policies(name)).deleted:
            await call.topics.create(TopicName.parse("persistent://public/default/a"), {})
        return await update(name, change)

    namespaces.update_namespace = slow
    assert (await call("DELETE", "namespaces/public/default")).status == 409
    assert not namespaces.policies("public/default").deleted


async def test_namespace_life():
    call = await open_client()
    assert (await call("GET", "namespaces/none")).status == 404
    assert (await call("PUT", "namespaces/none/n")).status == 404
    assert (await call("PUT", "namespaces/public/n")).status == 204
    assert (await call("PUT", "namespaces/public/n", {})).status == 409
    assert (await call("PUT", "namespaces/public/a%20b")).status == 412
    assert (await call("GET", "namespaces/public")).json == ["public/default", "public/n"]
    policies = (await call("GET", "namespaces/public/n")).json
    assert policies["replication_clusters"] == ["standalone"]
    assert policies["bundles"]["boundaries"] == ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    assert policies["is_allow_auto_update_schema"] is True
    assert "retention_policies" not in policies
    await call("PUT", "persistent/public/n/t")
    assert (await call("DELETE", "namespaces/public/n")).status == 409
    await call("DELETE", "persistent/public/n/t")
    assert (await call("DELETE", "namespaces/public/n")).status == 204
    assert (await call("GET", "namespaces/public/n")).status == 404


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("namespaces/bad%20tenant", "Tenant name is not valid"),
        ("namespaces/public/bad%20name/scanOffloadedLedgers", "Namespace name is not valid"),
    ],
)
async def test_invalid_names_count_before_anything_else(path, reason):
    call = await open_client()
    found = await call("GET", path)
    assert (found.status, found.json) == (412, {"reason": reason})


async def test_policies_of_a_new_namespace_are_those_of_the_recorded_answer():
    call = await open_client()
    await call("PUT", "namespaces/public/n", {})
    assert (await call("GET", "namespaces/public/n")).json == {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": ["standalone"],
        "allowed_clusters": [],
        "bundles": {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        },
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True,
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


@pytest.mark.parametrize(
    ("given", "boundaries"),
    [
        (["0xffffffff", "0x80000000", "0x00000000"], ["0x00000000", "0x80000000", "0xffffffff"]),
        (["0x0", "0x00000000", "010", "#FF", "+4294967295"], ["0x00000000", "0x00000008", "0x000000ff", "0xffffffff"]),
        ([0, 9, 4294967295], ["0x00000000", "0x00000009", "0xffffffff"]),
        ([], ["0x00000000", "0x80000000", "0xffffffff"]),
    ],
)
async def test_bundles_of_given_boundaries(given, boundaries):
    """Verified against Apache Pulsar 4.2.4."""
    call = await open_client()
    body = {"bundles": {"boundaries": given, "numBundles": 2}}
    assert (await call("PUT", "namespaces/public/n", body)).status == 204
    found = (await call("GET", "namespaces/public/n/bundles")).json
    assert found == {"boundaries": boundaries, "numBundles": len(boundaries) - 1}


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        (["0x0", "0xf"], 400, "first:0x00000000, last:0x0000000f"),
        (["0xffffffff"], 400, "first:0xffffffff, last:0xffffffff"),
        (["0x0", "-0x1", "0xffffffff"], 400, "first:0x00000000, last:0xffffffffffffffff"),
        (["0x0", "0x1ffffffff"], 400, "first:0x00000000, last:0x1ffffffff"),
        (["0x0", "089", "0xffffffff"], 500, "'089'"),
        (["0x0", "0x8000000000000000", "0xffffffff"], 500, "'0x8000000000000000'"),
        (["x"], 500, "'x'"),
        (["0x"], 500, "'0x'"),
        (["9" * 100_000], 500, "9"),
        ([hex(i) for i in (*range(2**14), 2**32 - 2, 2**32 - 1)], 412, "2^14"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_boundaries_that_leave_gaps_or_are_no_numbers(given, status, reason):
    """A namespace whose bundles leave a gap would have topics without a bundle. Verified against Apache Pulsar 4.2.4,
    but for the limit of bundles.
    """
    call = await open_client()
    answer = await call("PUT", "namespaces/public/n", {"bundles": {"boundaries": given, "numBundles": 2}})
    assert (answer.status, reason in answer.json["reason"]) == (status, True)
    assert (await call("GET", "namespaces/public/n")).status == 404


async def test_the_namespaces_of_a_tenant_have_a_bounded_number_of_bundles(monkeypatch):
    """A namespace of 16,384 bundles takes 1.4 MB of memory: 385 short requests took half a gigabyte."""
    monkeypatch.setattr(namespace_routes, "_MOST_BUNDLES_OF_TENANT", 400)
    call = await open_client()
    many = {"bundles": {"numBundles": 200}}
    await call("PUT", "tenants/t", {"allowedClusters": ["standalone"]})
    for number in range(2):
        assert (await call("PUT", f"namespaces/t/many{number}", many)).status == 204
    answer = await call("PUT", "namespaces/t/many2", many)
    assert answer.status == 412
    assert "have 400 bundles, at most 400 together" in answer.json["reason"]
    assert (await call("PUT", "namespaces/t/few", {"bundles": {"numBundles": 64}})).status == 204
    assert (await call("PUT", "namespaces/public/many", many)).status == 204
    assert (await call("DELETE", "namespaces/t/many0")).status == 204
    assert (await call("PUT", "namespaces/t/many2", {"bundles": {"numBundles": 100}})).status == 204


async def test_namespace_is_created_from_the_policies_given():
    call = await open_client()
    body = {"bundles": {"numBundles": 3}, "message_ttl_in_seconds": 5, "replication_clusters": ["standalone"]}
    assert (await call("PUT", "namespaces/public/n", body)).status == 204
    assert (await call("GET", "namespaces/public/n/bundles")).json == {
        "boundaries": ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"],
        "numBundles": 3,
    }
    assert (await call("GET", "namespaces/public/n/messageTTL")).json == 5
    assert (await call("PUT", "namespaces/public/m", {"replication_clusters": ["x"]})).status == 403
    assert (await call("PUT", "namespaces/public/m", {"bundles": {"numBundles": 2**20 + 1}})).status == 412
    assert (await call("PUT", "namespaces/public/m", {"message_ttl_in_seconds": "x"})).status == 400
    assert (await call("PUT", "namespaces/public/m", {"message_ttl_in_seconds": -5})).status == 412
    half = {"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}}
    assert (await call("PUT", "namespaces/public/m", half)).status == 400


async def test_bundles_are_split_and_unloaded():
    call = await open_client()
    first = "namespaces/public/default/0x00000000_0x40000000"
    for name in "abcdefgh":
        await call("PUT", f"persistent/public/default/{name}")
    assert (await call("PUT", first + "/unload")).status == 204
    unloaded = [name for what, name in call.topics.calls if what == "unload"]
    assert unloaded == [name for name in call.topics.plain if zlib.crc32(name.encode()) < 0x40000000]
    assert 0 < len(unloaded) < 8
    assert (await call("PUT", first + "/split")).status == 204
    assert (await call("PUT", first + "/split")).status == 412
    assert (await call("GET", "namespaces/public/default/bundles")).json["numBundles"] == 5
    assert (await call("DELETE", "namespaces/public/default/nonsense")).status == 412


@pytest.mark.parametrize("bundle", ["0x00000000_0xffffffff", "0x0_0xFFFFFFFF"])
async def test_a_bundle_with_topics_is_not_deleted_however_its_range_is_written(bundle):
    call = await open_client()
    assert (await call("PUT", "namespaces/public/n", {"bundles": {"numBundles": 1}})).status == 204
    assert (await call("DELETE", f"namespaces/public/n/{bundle}")).status == 412, "no broker serves it"
    await call("PUT", "persistent/public/n/t")
    assert (await call("DELETE", f"namespaces/public/n/{bundle}")).status == 409
    assert (await call("DELETE", f"namespaces/public/n/{bundle}?force=true")).status == 204
    assert ("unload", "persistent://public/n/t") in call.topics.calls


async def test_namespace_properties():
    call = await open_client()
    path = "namespaces/public/default/"
    assert (await call("PUT", path + "properties", {"a": "1"})).status == 204
    assert (await call("PUT", path + "property/b/2")).status == 204
    assert (await call("GET", path + "properties")).json == {"a": "1", "b": "2"}
    assert (await call("GET", path + "property/b")).raw == b"2"
    assert (await call("DELETE", path + "property/b")).raw == b"2"
    assert (await call("DELETE", path + "properties")).status == 204
    assert (await call("GET", path + "properties")).json == {}


async def test_subscriptions_of_a_whole_namespace():
    call = await open_client()
    for name in ("t1", "t2"):
        await call("PUT", f"persistent/public/default/{name}/subscription/s")
    assert (await call("POST", "namespaces/public/default/clearBacklog/s")).status == 204
    assert [c[0] for c in call.topics.calls] == ["skip", "skip"]
    assert (await call("POST", "namespaces/public/default/unsubscribe/s")).status == 204
    assert (await call("GET", "persistent/public/default/t1/subscriptions")).json == []


async def test_limits_of_tenants_and_namespaces():
    call = await open_client(Settings(max_tenants=3, max_namespaces_per_tenant=2))
    assert (await call("PUT", "tenants/a", INFO)).status == 204
    assert (await call("PUT", "tenants/b", INFO)).status == 412
    assert (await call("PUT", "namespaces/public/a")).status == 204
    assert (await call("PUT", "namespaces/public/b")).status == 412


@pytest.mark.parametrize(
    ("default", "query"),
    [
        ("range_equally_divide", "?splitAlgorithmName=topic_count_equally_divide"),
        ("topic_count_equally_divide", ""),
    ],
)
async def test_a_bundle_is_cut_between_the_two_topics_in_its_middle(default, query):
    call = await open_client(Settings(default_namespace_bundle_split_algorithm=default))
    await call("PUT", "namespaces/public/m", {"bundles": {"numBundles": 1}})
    names = [f"persistent://public/m/t{i}" for i in range(5)]
    for name in names:
        await call("PUT", name.replace("://", "/"))
    assert (await call("PUT", "namespaces/public/m/LARGEST/split" + query)).status == 204
    _, left, right, *_ = sorted(zlib.crc32(name.encode()) for name in names)
    middle = f"0x{left + (right - left) // 2:08x}"
    assert (await call("GET", "namespaces/public/m/bundles")).json["boundaries"] == ["0x00000000", middle, "0xffffffff"]
