"""Tenants, clusters, bundles and brokers over REST: names and bodies at the edge of validity."""

from harness.steps import namespace
from transcript import scenario

BUNDLES = {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"]}


@scenario
def tenant_with_a_cluster_twice(s):
    path = f"/admin/v2/tenants/{s.tag}"
    s.call("PUT", path, {"allowedClusters": ["standalone", "standalone"], "adminRoles": ["b", "a", "b"]})
    s.call("GET", path, keep=["allowedClusters"])
    s.call("DELETE", path + "?force=x")
    s.call("GET", path)


@scenario
def namespace_with_boundaries_and_another_number(s):
    for name, count in (("a", 1), ("b", 2), ("c", 5)):
        path = "/admin/v2/namespaces/" + s.namespace(name)
        s.call("PUT", path, {"bundles": BUNDLES | {"numBundles": count}})
        s.call("GET", path + "/bundles", keep=True)


@scenario
def namespace_allowed_in_clusters_of_nobody(s):
    path = "/admin/v2/namespaces/" + s.namespace()
    s.call("PUT", path, {"allowed_clusters": ["nope"]})
    s.call("GET", path)
    s.call("PUT", path, {"allowed_clusters": ["standalone"]})
    s.call("GET", path + "/allowedClusters", keep=True)


@scenario
def cluster_with_a_space_in_its_address(s):
    path = f"/admin/v2/clusters/{s.tag}"
    s.call("PUT", path, {"serviceUrl": "http://a b"})
    s.call("PUT", path, {"serviceUrl": "ftp://a"})
    s.call("GET", path)


@scenario
def health_of_a_broker_by_name(s):
    s.call("GET", "/admin/v2/brokers/health?brokerId=nobody")
    s.call("GET", "/admin/v2/brokers/health?topicVersion=V2", keep=True)


@scenario
def bundle_unloaded_to_a_broker_of_nobody(s):
    ns = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", ns, {"bundles": BUNDLES | {"numBundles": 2}}, quietly=True)
    s.call("PUT", ns + "/0x00000000_0x80000000/unload?destinationBroker=nobody:1")
    s.call("PUT", ns + "/0x00000000_0x80000000/unload")


@scenario
def grants_on_topics_in_a_list(s):
    base, ns = "/admin/v2/namespaces/", namespace(s)
    s.http("PUT", f"/admin/v2/persistent/{ns}/t", quietly=True)
    topic, role = f"persistent://{ns}/t", {"role": "r", "actions": ["produce"]}
    for verb in ("grantPermissionsOnTopics", "revokePermissionsOnTopics"):
        for body in (
            [{"topic": topic} | role],
            [{"topic": topic + "-unknown"} | role],
            [{"topic": topic} | role, {"topic": "persistent://public/default/x"} | role],
            [role],
            [],
            None,
            {},
        ):
            s.call("POST", base + verb, body)
        s.call("GET", f"/admin/v2/persistent/{ns}/t/permissions", keep=True)


@scenario
def figures_of_the_broker_for_tools(s):
    s.call("GET", "/admin/v2/broker-stats/load-report", keep=["loadReportType", "protocols", "advertisedListeners"])
    s.call("GET", "/admin/v2/broker-stats/load-report", keep=lambda r: sorted(k for k in r if k.startswith("num"))[1:])
    for allocator in ("default", "ml-cache", "nope"):
        s.call("GET", f"/admin/v2/broker-stats/allocator-stats/{allocator}", keep=sorted)


@scenario
def brokers_asked_about_themselves(s):
    kinds = lambda x: type(x).__name__  # noqa: E731
    for path in ("brokers", "brokers/none", "brokers/standalone", "brokers/leaderBroker", "brokers/configuration", "brokers/internal-configuration", "brokers/ready", "brokers/version", "brokers/backlog-quota-check", "brokers/health?topicVersion=V1", "brokers/health?topicVersion=V9",
                 "broker-stats/metrics", "broker-stats/mbeans", "broker-stats/topics", "broker-stats/destinations", "broker-stats/allocator-stats/default", "broker-stats/allocator-stats/none", "broker-stats/load-report", "broker-stats/broker-resource-availability/public/default", "broker-stats/nothing", "resource-quotas", "resource-quotas/public/default/0x00000000_0x40000000",
                 "resource-quotas/public/default/x", "resourcegroups", "bookies/all", "bookies/racks-info", "bookies/racks-info/none", "worker/cluster", "clusters/standalone/peers", "clusters/standalone/failureDomains", "clusters/standalone/namespaceIsolationPolicies", "clusters/standalone/namespaceIsolationPolicies/brokers", "tenants/none", "transactions/coordinators"):  # fmt: skip
        s.call("GET", "/admin/v2/" + path, keep=kinds)
