"""Content types, odd values and odd paths: requests that are refused before the broker looks for their subject."""

from harness.steps import namespace, rest
from transcript import scenario

TEXT = {"Content-Type": "text/plain"}


@scenario
def other_types_where_json_alone_is_taken(s):
    ns = "/admin/v2/namespaces/" + namespace(s)
    group = f"/admin/v2/resourcegroups/{s.tag}"
    for method, path in (
        ("GET", ns),
        ("GET", ns + "/retention"),
        ("DELETE", ns + "/retention"),
        ("POST", ns + "/dispatcherPauseOnAckStatePersistent"),
        ("POST", ns + "/resourcegroup/none"),
        ("GET", "/admin/v2/tenants"),
        ("GET", "/admin/v2/tenants/public"),
        ("GET", "/admin/v2/resourcegroups"),
        ("DELETE", group),
        ("GET", "/admin/v2/resource-quotas"),
        ("GET", "/admin/v3/transactions/coordinators"),
    ):
        s.call(method, path, headers=TEXT)


@scenario
def other_types_where_anything_is_taken(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for path in (
        "/admin/v2/clusters",
        "/admin/v2/brokers/health",
        "/admin/v2/bookies/racks-info",
        rest(topic, "/retention"),
        rest(topic, "/stats"),
        topic.replace("persistent://", "/lookup/v2/topic/persistent/"),
    ):
        s.call("GET", path, headers=TEXT)
    s.call("DELETE", rest(topic, "/retention"), headers=TEXT)


@scenario
def properties_of_a_namespace_with_nulls(s):
    ns = f"/admin/v2/namespaces/{namespace(s)}/properties"
    s.call("PUT", ns, {"a": "b", "c": "d"})
    s.call("PUT", ns, {"a": None, "e": 1})
    s.call("GET", ns, keep=True)


@scenario
def migration_of_a_namespace_by_odd_bodies(s):
    ns = "/admin/v2/namespaces/" + namespace(s)
    for body in (b"null", b"true", b'"x"', b"0"):
        s.call("POST", ns + "/migration", raw=body)
    s.call("GET", ns, keep=["migrated"])


@scenario
def subscription_types_of_nothing(s):
    ns = "/admin/v2/namespaces/" + namespace(s)
    s.call("POST", ns + "/subscriptionTypesEnabled")
    s.call("POST", ns + "/subscriptionTypesEnabled", raw=b"null")
    s.call("POST", ns + "/subscriptionTypesEnabled", [])
    s.call("GET", ns + "/subscriptionTypesEnabled", keep=True)


@scenario
def empty_texts_for_numbers_that_may_be_unset(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for path in ("maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription", "deduplicationSnapshotInterval"):
        s.call("POST", rest(topic, f"/{path}"), 5)
        s.call("POST", rest(topic, f"/{path}"), raw=b'""')
        s.call("GET", rest(topic, f"/{path}"), keep=True)


@scenario
def storage_class_of_persistence(s):
    name = namespace(s)
    topic = f"/admin/v2/persistent/{name}/t"
    s.http("PUT", topic, quietly=True)
    quorums = dict.fromkeys(("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"), 1)
    for path in (f"/admin/v2/namespaces/{name}/persistence", topic + "/persistence"):
        for body in ({"managedLedgerStorageClassName": "bookkeeper"}, {"managedLedgerStorageClassName": None}):
            s.call("POST", path, quorums | {"managedLedgerMaxMarkDeleteRate": 1.0} | body)
            s.call("GET", path, keep=True)


@scenario
def paths_with_escapes_of_no_byte(s):
    s.call("GET", "/admin/v2/clusters/%zz")
    s.call("GET", "/admin/v2/namespaces/public/%")


@scenario
def places_of_topics_in_a_namespace_that_is_not_there(s):
    for place in (f"public/{s.tag}", f"{s.tag}/n"):
        s.call("GET", f"/admin/v2/namespaces/{place}/0x00000000_0x40000000/topicHashPositions")


@scenario
def places_of_non_persistent_topics(s):
    name = namespace(s)
    for domain in ("persistent", "non-persistent"):
        s.http("PUT", f"/admin/v2/{domain}/{name}/t", quietly=True)
    path = f"/admin/v2/namespaces/{name}/%s/topicHashPositions"
    s.call("GET", path % "0x00000000_0xffffffff", keep=lambda r: len(r["topicHashPositions"]))


@scenario
def first_tenant_and_cluster(s):
    s.call("GET", "/admin/v2/tenants/public", keep=True)
    types = ["brokerClientTlsTrustStoreType", "brokerClientTlsKeyStoreType", "brokerClientTlsEnabled"]
    s.call("GET", "/admin/v2/clusters/standalone", keep=types)


@scenario
def parts_of_a_cluster_outlive_its_update(s):
    cluster = f"/admin/v2/clusters/{s.tag}"
    data = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:2"}
    s.call("PUT", cluster, data)
    s.call("POST", cluster + "/failureDomains/d", {"brokers": [f"{s.tag}:1"]})
    s.call("POST", cluster, data | {"serviceUrl": "http://localhost:3"})
    s.call("GET", cluster + "/failureDomains", keep=True)
    s.http("DELETE", cluster + "/failureDomains/d", quietly=True)
    s.http("DELETE", cluster, quietly=True)


@scenario
def migration_of_a_cluster_is_no_part_of_its_data(s):
    cluster = f"/admin/v2/clusters/{s.tag}"
    data = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:2"}
    s.call("PUT", cluster, data | {"migrated": True})
    s.call("GET", cluster + "/migrate")
    s.call("POST", cluster + "/migrate?migrated=true", data)
    s.call("POST", cluster, data | {"migrated": False})
    s.call("GET", cluster + "/migrate", keep=True)
    s.call("POST", cluster + "/migrate?migrated=true")
    s.call("POST", cluster + "/migrate?migrated=false")
    s.call("GET", cluster + "/migrate", keep=True)
    s.call("POST", cluster + "/migrate?migrated=false", {})
    s.call("GET", cluster + "/migrate", keep=True)
    s.call("DELETE", cluster)


@scenario
def brokers_of_several_isolation_policies(s):
    cluster = f"/admin/v2/clusters/{s.tag}"
    s.call("PUT", cluster, {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:2"})
    failover = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}}
    brokers = {"primary": ["b1"], "secondary": ["b2"], "auto_failover_policy": failover}
    policies = cluster + "/namespaceIsolationPolicies"
    for name, namespaces in (("zz", ["public/b.*", "public/a.*"]), ("aa", ["public/b.*"]), ("q", ["public/c"])):
        s.call("POST", f"{policies}/{name}", brokers | {"namespaces": namespaces})
    for broker in ("b1", "b2", "b3"):
        s.call("GET", f"{policies}/brokers/{broker}", keep=True)
    for name in ("zz", "aa", "q"):
        s.call("DELETE", f"{policies}/{name}")
    s.call("DELETE", cluster)


@scenario
def brokers_of_a_failure_domain_in_the_order_of_a_hash(s):
    cluster = f"/admin/v2/clusters/{s.tag}"
    s.call("PUT", cluster, {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:2"})
    for name, count in (("few", 3), ("many", 14)):
        s.call("POST", f"{cluster}/failureDomains/{name}", {"brokers": [f"{name}-{i}:8080" for i in range(count)]})
        s.call("GET", f"{cluster}/failureDomains/{name}", keep=True)
        s.call("DELETE", f"{cluster}/failureDomains/{name}")
    s.call("DELETE", cluster)


@scenario
def quota_of_a_bundle_by_no_body(s):
    path = f"/admin/v2/resource-quotas/{namespace(s)}/0x00000000_0xffffffff"
    s.call("GET", path, keep=True)
    s.call("POST", path)
    s.call("GET", path, keep=True)


@scenario
def retention_beyond_the_range_of_minutes(s):
    ns = f"/admin/v2/namespaces/{namespace(s)}/retention"
    for minutes in (2**31 - 1, 2**31, 3_000_000_000, -(2**31) - 1):
        s.call("POST", ns, {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 3_000_000_000})
        s.call("GET", ns, keep=True)
