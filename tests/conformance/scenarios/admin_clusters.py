"""Clusters, tenants, namespaces and their bundles, resource groups and quotas over REST."""

from transcript import scenario


def calls(s, *steps, keep=True):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=keep)


@scenario
def cluster_from_creation_to_deletion(s):
    c = "/admin/v2/clusters/" + s.tag
    calls(
        s,
        ("GET", c),
        ("PUT", c, {"serviceUrl": "http://h:1", "brokerServiceUrl": "pulsar://h:2"}),
        ("PUT", c, {"serviceUrl": "http://h:1"}),
        ("POST", c, {"serviceUrl": "http://h:3"}),
        ("POST", c + "none", {"serviceUrl": "http://h:3"}),
        ("PUT", c + "2", {"serviceUrl": "ftp://h"}),
        ("PUT", c + "2"),
        ("DELETE", c),
        ("DELETE", c),
    )


@scenario
def cluster_peers(s):
    c = "/admin/v2/clusters/" + s.tag
    s.call("PUT", c, {"serviceUrl": "http://h:1"})
    s.call("PUT", c + "2", {"serviceUrl": "http://h:2"})
    calls(
        s,
        ("GET", c + "/peers"),
        ("POST", c + "/peers", [s.tag + "2"]),
        ("GET", c + "/peers"),
        ("POST", c + "/peers", ["nowhere"]),
        ("POST", c + "/peers", [s.tag]),
        ("POST", c + "/peers", []),
        ("GET", c + "/peers"),
        ("GET", c + "none/peers"),
        ("DELETE", c),
        ("DELETE", c + "2"),
    )


@scenario
def cluster_failure_domains(s):
    c = "/admin/v2/clusters/" + s.tag
    s.call("PUT", c, {"serviceUrl": "http://h:1"})
    d = c + "/failureDomains"
    calls(
        s,
        ("GET", d),
        ("GET", d + "/d"),
        ("POST", d + "/d", {"brokers": ["b1"]}),
        ("GET", d + "/d"),
        ("GET", d),
        ("POST", d + "/e", {"brokers": ["b1"]}),
        ("POST", d + "/e", {"brokers": ["b2"]}),
        ("DELETE", d + "/d"),
        ("DELETE", d + "/d"),
        ("GET", d),
        ("POST", c + "none/failureDomains/d", {"brokers": ["b1"]}),
        ("DELETE", c),
    )


@scenario
def cluster_without_isolation_policies(s):
    c = "/admin/v2/clusters/" + s.tag
    s.call("PUT", c, {"serviceUrl": "http://h:1"})
    p = c + "/namespaceIsolationPolicies"
    calls(s, ("GET", p), ("GET", p + "/p"), ("POST", p + "/q", {}), ("GET", c + "none/namespaceIsolationPolicies"))
    s.call("DELETE", c)


@scenario
def isolation_policies_of_a_cluster(s):
    c = "/admin/v2/clusters/" + s.tag
    s.call("PUT", c, {"serviceUrl": "http://h:1"})
    p = c + "/namespaceIsolationPolicies"
    policy = {
        "namespaces": ["public/iso.*"],
        "primary": ["b[12]"],
        "secondary": ["b3"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }
    calls(
        s,
        ("GET", p + "/brokers/b1"),
        ("GET", p + "/brokers"),
        ("POST", p + "/q", policy),
        ("GET", p),
        ("GET", p + "/q"),
        ("GET", p + "/none"),
        ("GET", p + "/brokers/b1"),
        ("GET", p + "/brokers/b3"),
        ("GET", p + "/brokers/b12"),
        ("GET", c + "none/namespaceIsolationPolicies/brokers/b1"),
        ("GET", c + "none/namespaceIsolationPolicies/brokers"),
        ("DELETE", p + "/q"),
        ("DELETE", p + "/q"),
        ("GET", p),
        ("GET", p + "/q"),
        ("GET", p + "/brokers/b1"),
        ("DELETE", c),
    )


@scenario
def cluster_that_moves(s):
    c = "/admin/v2/clusters/" + s.tag
    s.call("PUT", c, {"serviceUrl": "http://h:1"})
    calls(
        s,
        ("GET", c + "/migrate"),
        ("POST", c + "/migrate?migrated=true", {"serviceUrl": "http://x:1", "brokerServiceUrl": "pulsar://x:2"}),
        ("GET", c + "/migrate"),
        ("GET", c),
        ("DELETE", c),
    )


@scenario
def tenant_bodies(s):
    t = "/admin/v2/tenants/" + s.tag
    calls(
        s,
        ("PUT", t),
        ("PUT", t, {}),
        ("PUT", t, {"adminRoles": ["a"]}),
        ("PUT", t, {"allowedClusters": []}),
        ("PUT", t, {"allowedClusters": ["nowhere"]}),
        ("PUT", t, {"adminRoles": [" a"], "allowedClusters": ["standalone"]}),
        ("PUT", t, {"allowedClusters": ["standalone"]}),
        ("GET", t),
        ("POST", t, {}),
        ("POST", t, {"allowedClusters": ["nowhere"]}),
        ("POST", t + "none", {"allowedClusters": ["standalone"]}),
        ("DELETE", t),
    )


@scenario
def tenant_with_namespaces_is_not_deleted(s):
    t, n = "/admin/v2/tenants/" + s.tag, f"/admin/v2/namespaces/{s.tag}/n"
    calls(
        s,
        ("PUT", t, {"adminRoles": [], "allowedClusters": ["standalone"]}),
        ("PUT", n),
        ("DELETE", t),
        ("DELETE", n),
        ("DELETE", t),
        ("DELETE", t),
        ("DELETE", t + "?force=true"),
    )


@scenario
def namespace_with_topics_is_not_deleted(s):
    n = "/admin/v2/namespaces/" + s.namespace()
    topic = "/admin/v2/persistent/" + s.namespace() + "/t"
    s.call("PUT", n)
    s.lookup("persistent://" + s.namespace() + "/t")
    calls(s, ("PUT", topic), ("DELETE", n), ("DELETE", topic), ("DELETE", n), ("DELETE", n), ("GET", n + "/topics"))


@scenario
def namespace_properties(s):
    n = "/admin/v2/namespaces/" + s.namespace()
    calls(
        s,
        ("PUT", n),
        ("GET", n + "/properties"),
        ("PUT", n + "/properties", {"a": "b", "n": 1}),
        ("GET", n + "/properties"),
        ("PUT", n + "/property/k/v"),
        ("GET", n + "/property/k"),
        ("GET", n + "/property/none"),
        ("DELETE", n + "/property/k"),
        ("DELETE", n + "/property/k"),
        ("GET", n + "/properties"),
        ("DELETE", n + "/properties"),
        ("GET", n + "/properties"),
    )


@scenario
def namespace_topics_by_mode(s):
    n, ns = "/admin/v2/namespaces/" + s.namespace(), s.namespace()
    s.call("PUT", n)
    for domain in ("persistent", "non-persistent"):
        s.lookup(f"{domain}://{ns}/t")
        s.call("PUT", f"/admin/v2/{domain}/{ns}/t")
        s.call("PUT", f"/admin/v2/{domain}/{ns}/p/partitions", 2)
    for query in ("", "?mode=PERSISTENT", "?mode=NON_PERSISTENT", "?mode=ALL", "?mode=other"):
        s.call("GET", n + "/topics" + query, keep=sorted)
    for domain in ("persistent", "non-persistent"):
        s.call("GET", f"/admin/v2/{domain}/{ns}/partitioned", keep=sorted)
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)


@scenario
def namespace_bundles_are_split(s):
    n = "/admin/v2/namespaces/" + s.namespace()
    first = n + "/0x00000000_0x40000000"
    calls(
        s,
        ("PUT", n),
        ("GET", n + "/bundles"),
        ("PUT", first + "/split"),
        ("GET", n + "/bundles"),
        ("PUT", first + "/split"),
        ("PUT", n + "/0x00000000_0xffffffff/split"),
        ("PUT", n + "/0x40000000_0x80000000/split?splitAlgorithmName=other"),
        ("GET", n + "/bundles"),
    )


@scenario
def namespace_bundles_are_unloaded_and_cleared(s):
    n = "/admin/v2/namespaces/" + s.namespace()
    first = n + "/0x00000000_0x40000000"
    calls(
        s,
        ("PUT", n),
        ("PUT", first + "/unload"),
        ("PUT", n + "/0x1_0x2/unload"),
        ("PUT", n + "/unload"),
        ("POST", n + "/clearBacklog"),
        ("POST", n + "/clearBacklog/s"),
        ("POST", n + "/unsubscribe/s"),
        ("POST", first + "/clearBacklog"),
        ("DELETE", n + "/other"),
    )


@scenario
def namespace_backlog_cleared_for_one_or_all(s):
    ns = s.namespace()
    n, topic = "/admin/v2/namespaces/" + ns, f"persistent://{ns}/t"
    s.call("PUT", n)
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    t = "/admin/v2/" + topic.replace("://", "/")
    for name in ("a", "b"):
        s.call("PUT", f"{t}/subscription/{name}")
    c.publish_all(1, [b"m%d" % i for i in range(3)])

    def backlog():
        found = s.http("GET", t + "/stats", quietly=True)[1]["subscriptions"]
        s.note("backlog", {k: v["msgBacklog"] for k, v in sorted(found.items())})

    backlog()
    s.call("POST", n + "/clearBacklog/a")
    backlog()
    s.call("POST", n + "/clearBacklog")
    backlog()
    s.call("POST", n + "/unsubscribe/a")
    s.call("GET", t + "/subscriptions", keep=True)


@scenario
def namespace_anti_affinity(s):
    n = "/admin/v2/namespaces/" + s.namespace()
    group = f"/admin/v2/namespaces/standalone/antiAffinity/{s.tag}"
    s.call("PUT", n)
    s.call("POST", n + "/antiAffinity", raw=s.tag.encode(), keep=True)
    calls(
        s,
        ("GET", n + "/antiAffinity"),
        ("GET", group + "?tenant=public"),
        ("GET", group),
        ("GET", group.replace("standalone", "nowhere") + "?tenant=public"),
        ("GET", group + "?tenant=unknown-tenant"),
        ("DELETE", n + "/antiAffinity"),
        ("GET", n + "/antiAffinity"),
        ("GET", group + "?tenant=public"),
    )


@scenario
def namespace_permissions(s):
    n = "/admin/v2/namespaces/" + s.namespace()
    calls(
        s,
        ("PUT", n),
        ("GET", n + "/permissions"),
        ("POST", n + "/permissions/r", ["produce", "consume"]),
        ("GET", n + "/permissions"),
        ("POST", n + "/permissions/r", ["functions"]),
        ("GET", n + "/permissions"),
        ("DELETE", n + "/permissions/none"),
        ("DELETE", n + "/permissions/r"),
        ("GET", n + "/permissions"),
        ("GET", n + "/permissions/subscription"),
        ("POST", n + "/permissions/subscription/s", ["r"]),
        ("GET", n + "/permissions/subscription"),
        ("DELETE", n + "/permissions/s/r"),
        ("GET", n + "/permissions/subscription"),
    )


@scenario
def resource_group_and_a_namespace_in_it(s):
    n, g = "/admin/v2/namespaces/" + s.namespace(), "/admin/v2/resourcegroups/" + s.tag
    calls(
        s,
        ("PUT", n),
        ("GET", g),
        ("POST", n + "/resourcegroup/" + s.tag),
        ("PUT", g, {"publishRateInMsgs": 1}),
        ("GET", g),
        ("PUT", g, {"publishRateInBytes": 2, "dispatchRateInMsgs": 3}),
        ("GET", g),
        ("POST", n + "/resourcegroup/" + s.tag),
        ("GET", n + "/resourcegroup"),
        ("DELETE", g),
        ("DELETE", n + "/resourcegroup"),
        ("GET", n + "/resourcegroup"),
        ("DELETE", g),
        ("GET", g),
    )


@scenario
def resource_quota_of_a_bundle(s):
    s.call("PUT", "/admin/v2/namespaces/" + s.namespace())
    q = f"/admin/v2/resource-quotas/{s.namespace()}/0x00000000_0x40000000"
    quota = {"msgRateIn": 1.0, "msgRateOut": 2.0, "bandwidthIn": 3.0, "bandwidthOut": 4.0, "memory": 5.0}
    calls(
        s,
        ("GET", q),
        ("POST", q, quota | {"dynamic": False}),
        ("GET", q),
        ("DELETE", q),
        ("GET", q),
        ("GET", q.replace("0x4", "0x5")),
    )


@scenario
def broker_answers(s):
    for path in (
        "/admin/v2/brokers/health?topicVersion=V2",
        "/admin/v2/brokers/ready",
        "/admin/v2/metadata/migration/status",
    ):
        s.call("GET", path, keep=True)
    for path in ("/admin/v2/brokers", "/admin/v2/brokers/standalone", "/admin/v2/brokers/configuration"):
        s.call("GET", path, keep=lambda found: isinstance(found, list))
    for path in ("/admin/v2/brokers/configuration/runtime", "/admin/v2/brokers/configuration/values"):
        s.call("GET", path, keep=lambda found: isinstance(found, dict))
    s.call("POST", "/admin/v2/brokers/configuration/brokerServicePort/1")
    s.call("POST", "/admin/v2/brokers/configuration/unknown/1")
    s.call("GET", "/admin/v2/brokers/standalone/unknown/ownedNamespaces")


@scenario
def quorums_up_to_five(s):
    n = "/admin/v2/namespaces/public/" + s.tag
    topic = f"/admin/v2/persistent/public/{s.tag}/t"
    s.call("PUT", n)
    s.call("PUT", topic)
    for quorums in (
        (5, 5, 5),
        (6, 2, 2),
        (5, 6, 2),
        (6, 6, 6),
        (2, 2, 0),
        (2, 0, 0),
        (0, 0, 0),
        (-1, -1, -1),
        (3, 2, 1),
    ):
        names = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
        body = dict(zip(names, quorums, strict=True)) | {"managedLedgerMaxMarkDeleteRate": -1}
        calls(s, ("POST", n + "/persistence", body), ("POST", topic + "/persistence", body))
    calls(s, ("GET", n + "/persistence"), ("DELETE", topic + "?force=true"))


@scenario
def clusters_with_odd_bodies(s):
    path = "/admin/v2/clusters/" + s.tag
    for body in (
        None,
        {},
        {"serviceUrl": ""},
        {"serviceUrl": "nonsense"},
        {"serviceUrl": "http://h:1", "brokerServiceUrl": "pulsar://h:1"},
        {"serviceUrl": "ftp://h:1"},
        {"serviceUrl": "http://h:1,g:2"},
        {"brokerServiceUrl": "http://h:1"},
        {"serviceUrlTls": "http://h:1"},
        {"serviceUrlTls": "https://h:1"},
        {"peerClusterNames": ["none"]},
        {"authenticationPlugin": "x", "authenticationParameters": "y"},
        {"x": 1},
        [],
        "x",
    ):
        s.call("PUT", path, body)
        s.call("GET", path, keep=True)
        s.call("POST", path, body)
        s.http("DELETE", path, quietly=True)
    calls(
        s,
        ("GET", path),
        ("POST", path, {"serviceUrl": "http://h:1"}),
        ("DELETE", path),
        ("PUT", "/admin/v2/clusters/standalone", {"serviceUrl": "http://h:1"}),
    )


@scenario
def resource_groups_with_odd_bodies(s):
    path = "/admin/v2/resourcegroups/" + s.tag
    for body in (
        None,
        {},
        {"publishRateInMsgs": 1},
        {"publishRateInMsgs": -1, "publishRateInBytes": 2, "dispatchRateInMsgs": 3, "dispatchRateInBytes": 4},
        {"publishRateInMsgs": "x"},
        {"x": 1},
        [],
        {"publishRateInMsgs": None},
    ):
        s.call("PUT", path, body)
        s.call("GET", path, keep=True)
    ns = "/admin/v2/namespaces/" + s.namespace()
    s.call("PUT", ns)
    calls(
        s,
        ("GET", ns + "/resourcegroup"),
        ("POST", ns + "/resourcegroup/none"),
        ("POST", ns + "/resourcegroup/" + s.tag),
        ("GET", ns + "/resourcegroup"),
        ("DELETE", ns + "/resourcegroup"),
        ("DELETE", path),
        ("GET", path),
    )


@scenario
def clusters_that_replace_each_other_are_not_used_together(s):
    names = [f"{s.tag}-c{i}" for i in range(4)]
    first, peer, other, free = names
    for name in names:
        s.http("PUT", f"/admin/v2/clusters/{name}", {"serviceUrl": "http://localhost:1"}, quietly=True)
    s.http("PUT", f"/admin/v2/tenants/{s.tag}", {"allowedClusters": [*names, "standalone"]}, quietly=True)
    ns, topic = f"/admin/v2/namespaces/{s.tag}/n", f"/admin/v2/persistent/{s.tag}/n/t"
    s.http("PUT", ns, {"replication_clusters": ["standalone"]}, quietly=True)
    s.call("POST", f"/admin/v2/clusters/{first}/peers", [peer, other])
    for path, *clusters in (
        (ns + "/replication", first, peer, other, free), (ns + "/replication", first, other), (ns + "/replication", peer, other),
        (ns + "/replication", first, free), (ns + "/replication", first, peer, "nowhere"), (ns + "/replication", "standalone"),
        (ns + "/allowedClusters", "standalone", first, peer), (ns + "/allowedClusters", first, peer),
        (topic + "/replication", "standalone", first, peer), (topic + "/replication", first, peer),
        (ns + "-none/allowedClusters", first, peer), (topic + "-none/replication", first, peer),
    ):  # fmt: skip
        if path.startswith(topic):
            s.http("PUT", topic, quietly=True)
        status, answer = s.http("POST", path, clusters, quietly=True)
        reason = answer["reason"].partition(" replication-clusters")[0] if answer else None
        s.note(s.neutral([path, clusters]), [status, s.neutral(reason)])
