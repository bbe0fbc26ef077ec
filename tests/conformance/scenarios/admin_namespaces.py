"""Namespaces over REST beside their policies: created with bodies, bundles, lists, limits, properties, permissions."""

from harness.steps import published, rest
from transcript import scenario


def new(s, name="ns", body=None, tenant="public"):
    ns = s.namespace(name, tenant)
    s.http("PUT", "/admin/v2/namespaces/" + ns, body, quietly=True)
    return ns, "/admin/v2/namespaces/" + ns


def calls(s, *steps, keep=True):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=keep)


@scenario
def namespaces_created_with_numbers_of_bundles(s):
    for i, bundles in enumerate((1, 2, 3, 0, -1, 16, "4", 2.5, None, True, "x")):
        path = f"/admin/v2/namespaces/public/{s.tag}-{i}"
        s.call("PUT", path, {"bundles": {"numBundles": bundles}})
        s.call("GET", path + "/bundles", keep=lambda x: [x["numBundles"], len(x["boundaries"])])
    for i, body in enumerate(({"bundles": {}}, {"bundles": None}, {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}, {"bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"]}},
                              {"bundles": {"boundaries": ["x"], "numBundles": 1}}, {"bundles": []}, {"replication_clusters": []}, {"replication_clusters": ["none"]}, {"replication_clusters": None}, {"nonsense": 1})):  # fmt: skip
        path = f"/admin/v2/namespaces/public/{s.tag}-b{i}"
        s.call("PUT", path, body)
        s.call("GET", path, keep=lambda x: [x["bundles"], x["replication_clusters"], x["deleted"]])


@scenario
def namespaces_deleted_in_every_way(s):
    ns, path = new(s)
    calls(
        s,
        ("PUT", f"/admin/v2/persistent/{ns}/t"),
        ("DELETE", path),
        ("DELETE", path + "?force=false"),
        ("DELETE", f"/admin/v2/persistent/{ns}/t"),
        ("DELETE", path),
        ("DELETE", path),
        ("GET", path),
    )
    ns, path = new(s, "p")
    calls(
        s,
        ("PUT", f"/admin/v2/persistent/{ns}/t/partitions", 2),
        ("DELETE", path),
        ("DELETE", path + "?force=true"),
        ("GET", path + "/topics"),
        ("DELETE", path + "?force=true"),
    )
    ns, path = new(s, "np")
    calls(
        s, ("PUT", f"/admin/v2/non-persistent/{ns}/t/partitions", 2), ("DELETE", path), ("DELETE", path + "?force=true")
    )
    ns, path = new(s, "used")
    s.lookup(f"persistent://{ns}/t")
    c = s.connect()
    c.producer(f"persistent://{ns}/t", 1, quietly=True)
    calls(s, ("DELETE", path), ("DELETE", path + "?force=true"))
    s.note("told", bool(c.recv_quietly()))


@scenario
def namespaces_and_their_lists_of_topics(s):
    ns, path = new(s)
    for domain in ("persistent", "non-persistent"):
        s.call("PUT", f"/admin/v2/{domain}/{ns}/plain-{domain}")
        s.call("PUT", f"/admin/v2/{domain}/{ns}/parts-{domain}/partitions", 2)
    for query in (
        "",
        "?mode=PERSISTENT",
        "?mode=NON_PERSISTENT",
        "?mode=ALL",
        "?mode=persistent",
        "?mode=x",
        "?mode=",
        "?properties=a%3Db",
    ):
        s.call("GET", path + "/topics" + query, keep=sorted)
    for domain in ("persistent", "non-persistent"):
        for more in (
            "",
            "/partitioned",
            "?bundle=x",
            "?bundle=0x00000000_0x10000000",
        ):
            s.call("GET", f"/admin/v2/{domain}/{ns}{more}", keep=lambda x: len(x) if isinstance(x, list) else x)
        s.call("GET", f"/admin/v2/{domain}/{ns}/partitioned", keep=sorted)


@scenario
def namespaces_with_a_limit_of_topics(s):
    ns, path = new(s)
    base = f"/admin/v2/persistent/{ns}/"
    calls(s, ("GET", path + "/maxTopicsPerNamespace"), ("POST", path + "/maxTopicsPerNamespace", 2), ("PUT", base + "a"), ("PUT", base + "b/partitions", 2), ("PUT", base + "b/partitions", 1), ("PUT", base + "c"),
          ("PUT", base + "d/subscription/s", "latest"), ("POST", base + "b/partitions", 2), ("POST", path + "/maxTopicsPerNamespace", -1), ("DELETE", path + "/maxTopicsPerNamespace"), ("PUT", base + "c"), ("GET", path + "/maxTopicsPerNamespace"))  # fmt: skip


@scenario
def namespaces_with_a_limit_of_topics_and_a_topic_that_is_there(s):
    ns, path = new(s)
    base = f"/admin/v2/persistent/{ns}/"
    calls(
        s,
        ("POST", path + "/maxTopicsPerNamespace", 3),
        ("PUT", base + "a"),
        ("PUT", base + "a/partitions", 2),
        ("PUT", base + "a/partitions", 3),
        ("PUT", base + "b/partitions", 2),
        ("PUT", base + "b/partitions", 2),
        ("PUT", base + "a"),
        ("PUT", base + "b"),
    )


@scenario
def namespaces_with_limits_of_clients(s):
    ns, path = new(s)
    calls(
        s,
        ("POST", path + "/maxProducersPerTopic", 1),
        ("POST", path + "/maxConsumersPerTopic", 1),
        ("POST", path + "/maxSubscriptionsPerTopic", 1),
    )
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1)
    c.producer(topic, 2)
    c.subscribe(topic, "s", consumer_id=1)
    c.subscribe(topic, "s", consumer_id=2)
    c.subscribe(topic, "s2", consumer_id=3)
    calls(
        s,
        ("PUT", rest(topic) + "/subscription/s3", "latest"),
        ("POST", rest(topic) + "/maxSubscriptionsPerTopic", 3),
        ("PUT", rest(topic) + "/subscription/s3", "latest"),
        ("PUT", rest(topic) + "/subscription/s4", "latest"),
    )


@scenario
def namespaces_bundles_split_and_unloaded(s):
    ns, path = new(s, body={"bundles": {"numBundles": 2}})
    s.http("PUT", f"/admin/v2/persistent/{ns}/t", quietly=True)
    for bundle in (
        "0x00000000_0x80000000",
        "0x00000000_0xffffffff",
        "0x00000000_0x40000000",
        "x",
        "LARGEST",
        "0x80000000_0x00000000",
        "0x0_0x8",
        "0X00000000_0X80000000",
    ):
        for method, more in (
            ("PUT", "/unload"),
            ("PUT", "/split?splitAlgorithmName=nonsense"),
            ("POST", "/clearBacklog"),
            ("POST", "/unsubscribe/s"),
        ):
            s.call(method, f"{path}/{bundle}{more}", keep=True)
    s.call("GET", path + "/bundles", keep=True)


@scenario
def namespaces_bundles_split(s):
    ns, path = new(s, body={"bundles": {"numBundles": 2}})
    calls(s, ("PUT", f"{path}/0x00000000_0x80000000/split"), ("GET", path + "/bundles"), ("PUT", f"{path}/0x00000000_0x80000000/split"), ("PUT", f"{path}/0x80000000_0xffffffff/split?unload=true"), ("GET", path + "/bundles"),
          ("PUT", f"{path}/0x00000000_0x40000000/split?splitAlgorithmName=range_equally_divide"), ("PUT", f"{path}/0x20000000_0x40000000/split?splitAlgorithmName=topic_count_equally_divide"), ("GET", path + "/bundles"),
          ("PUT", f"{path}/0x40000000_0x80000000/split?splitAlgorithmName=specified_positions_divide&splitBoundaries=0x50000000"), ("PUT", f"{path}/0x40000000_0x80000000/split?splitAlgorithmName=specified_positions_divide", [1342177280]), ("GET", path + "/bundles"),
          ("PUT", f"{path}/x/split"), ("GET", path + "/bundles"))  # fmt: skip


@scenario
def namespaces_properties_in_every_way(s):
    _, path = new(s)
    calls(s, ("GET", path + "/properties"), ("PUT", path + "/properties", {"a": "1", "b": "2"}), ("PUT", path + "/properties", {"b": "3"}), ("GET", path + "/properties"), ("GET", path + "/property/a"), ("GET", path + "/property/z"),
          ("PUT", path + "/property/c/4"), ("PUT", path + "/property/d/x%2Fy"), ("GET", path + "/property/d"), ("DELETE", path + "/property/a"), ("DELETE", path + "/property/z"), ("GET", path + "/properties"), ("PUT", path + "/properties", {}), ("PUT", path + "/properties", []), ("PUT", path + "/properties", {"n": 5}), ("GET", path + "/properties"), ("DELETE", path + "/properties"), ("GET", path + "/properties"))  # fmt: skip


@scenario
def namespaces_permissions_in_every_way(s):
    ns, path = new(s)
    order = lambda x: {k: sorted(v) for k, v in x.items()} if isinstance(x, dict) else x  # noqa: E731
    calls(s, ("POST", path + "/permissions/a", ["produce", "consume", "functions", "sources", "sinks", "packages"]), ("POST", path + "/permissions/b", []), ("POST", path + "/permissions/d", "produce"),
          ("POST", path + "/permissions/e", {"a": 1}), ("POST", path + "/permissions/g", ["produce", "produce"]), ("POST", path + "/permissions/a%20b", ["consume"]), ("GET", path + "/permissions"),
          ("DELETE", path + "/permissions/a"), ("DELETE", path + "/permissions/nobody"), ("GET", path + "/permissions"), ("POST", path + "/permissions/subscription/s", ["r1", "r2"]), ("POST", path + "/permissions/subscription/s2", []),
          ("GET", path + "/permissions/subscription"), ("DELETE", path + "/permissions/s/r1"), ("DELETE", path + "/permissions/s/nobody"), ("DELETE", path + "/permissions/none/r"), ("GET", path + "/permissions/subscription"), keep=order)  # fmt: skip


@scenario
def namespaces_backlog_cleared(s):
    ns, path = new(s)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    for name in ("s1", "s2"):
        s.http("PUT", rest(topic) + "/subscription/" + name, "earliest", quietly=True)

    def left():
        return s.note(
            "left",
            {
                k: v["msgBacklog"]
                for k, v in s.http("GET", rest(topic) + "/stats", quietly=True)[1]["subscriptions"].items()
            },
        )

    published(s, topic, 3)
    left()
    s.call("POST", path + "/clearBacklog/s1")
    left()
    s.call("POST", path + "/clearBacklog/none")
    s.call("POST", path + "/clearBacklog")
    left()
    s.call("POST", path + "/unsubscribe/s1")
    s.call("POST", path + "/unsubscribe/s1")
    s.call("GET", rest(topic) + "/subscriptions", keep=sorted)
    c = s.connect()
    c.subscribe(topic, "s2", quietly=True)
    s.call("POST", path + "/unsubscribe/s2")
    s.call("GET", rest(topic) + "/subscriptions", keep=sorted)


@scenario
def tenants_in_every_way(s):
    path = "/admin/v2/tenants/" + s.tag
    for body in (None, {}, {"allowedClusters": []}, {"allowedClusters": ["none"]}, {"allowedClusters": ["standalone"], "adminRoles": None}, {"allowedClusters": ["standalone", "standalone"], "adminRoles": ["a", "a", " b "]},
                 {"allowedClusters": "standalone"}, {"allowedClusters": [""]}, {"allowedClusters": ["global"]}, {"allowedClusters": ["standalone"], "adminRoles": ["a,b"]}, {"allowedClusters": ["standalone"], "x": 1}, [], "x"):  # fmt: skip
        s.call("PUT", path, body)
        s.call("GET", path, keep=lambda x: {k: sorted(v) if isinstance(v, list) else v for k, v in x.items()})
        s.http("DELETE", path, quietly=True)
    s.call("POST", path, {"allowedClusters": ["standalone"]})
    s.call("PUT", path, {"allowedClusters": ["standalone"]})
    for body in (
        None,
        {},
        {"allowedClusters": []},
        {"allowedClusters": ["none"]},
        {"adminRoles": ["z"]},
        {"adminRoles": ["z"], "allowedClusters": ["standalone"]},
    ):
        s.call("POST", path, body)
        s.call("GET", path, keep=True)
    s.call("DELETE", path + "?force=true")
    s.call("DELETE", path)


@scenario
def namespaces_replication_and_clusters(s):
    _, path = new(s)
    for body in (
        ["standalone"],
        [],
        ["none"],
        ["standalone", "none"],
        ["global"],
        ["standalone", "standalone"],
        "standalone",
        None,
        {},
        [None],
        [""],
    ):
        s.call("POST", path + "/replication", body)
        s.call("GET", path + "/replication", keep=True)
        s.call("POST", path + "/allowedClusters", body)
        s.call("GET", path + "/allowedClusters", keep=True)


@scenario
def namespaces_unloaded_while_used(s):
    ns, path = new(s)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    s.call("PUT", path + "/unload")
    c.recv()
    s.call("GET", rest(topic) + "/stats", keep=lambda x: len(x["publishers"]))
    s.call("PUT", f"/admin/v2/namespaces/public/{s.tag}-none/unload")


@scenario
def namespaces_and_hash_positions(s):
    ns, path = new(s, body={"bundles": {"numBundles": 1}})
    s.lookup(f"persistent://{ns}/a")
    for name in ("a", "b"):
        s.call("PUT", f"/admin/v2/persistent/{ns}/{name}")
    s.call("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2)
    topics = f"topics=persistent://{ns}/"
    for query in ("", "?topics=a", f"?{topics}b", f"?{topics}p", f"?{topics}p-partition-1&{topics}a", "?topics=none"):
        status, found = s.http("GET", f"{path}/0x00000000_0xffffffff/topicHashPositions{query}", quietly=True)
        s.note("found", [status, sorted(found), sorted(x for x in found["topicHashPositions"] if "__" not in x)])
    for bundle in ("0x00000000_0x40000000", "x", ""):
        s.call("GET", f"{path}/{bundle}/topicHashPositions")


GIVEN_BOUNDARIES = (
    ["0x0", "0xf"], ["0x0", "0xffffffff"], ["0x00000000"], ["0xffffffff"], ["0x0", "0x5", "0xffffffff"],
    ["0xffffffff", "0x80000000", "0x00000000"], ["0", "4294967295"], ["0x0", "0X80", "#FFFFFFFF"],
    ["0x0", "-0x1", "0xffffffff"], ["0x0", "010", "0xffffffff"], ["0x0", "0x00000000", "0xffffffff"],
    ["0x0", "0x1ffffffff"], [""], ["0x"], ["x"], ["0x0", "0xffffffffffffffffff"], ["0x0", " 0xffffffff"],
    ["0x0", "+0xffffffff"], ["0x0", "089", "0xffffffff"], [5, 4294967295], [0, 4294967295],
)  # fmt: skip


@scenario
def namespaces_created_with_boundaries_of_bundles(s):
    for i, boundaries in enumerate(GIVEN_BOUNDARIES):
        path = f"/admin/v2/namespaces/public/{s.tag}-b{i}"
        s.call("PUT", path, {"bundles": {"boundaries": boundaries, "numBundles": 2}})
        s.call("GET", path + "/bundles", keep=True)
    for count in (0, -1):
        path = f"/admin/v2/namespaces/public/{s.tag}-c{count}"
        s.call("PUT", path, {"bundles": {"boundaries": ["x"], "numBundles": count}})
        s.call("GET", path + "/bundles", keep=True)


@scenario
def words_about_bundles_that_a_namespace_does_not_have(s):
    ns, path = new(s, body={"bundles": {"numBundles": 4}})
    for there in (path, f"/admin/v2/namespaces/public/{s.tag}-none"):
        for bundle in ("0x00000000_0x20000000", "0x20000000_0x40000000", "0x40000000_0x00000000", "0x0_0x1"):
            for method, verb in (("PUT", "split"), ("POST", "clearBacklog"), ("POST", "unsubscribe/s"), ("DELETE", "")):
                s.note("call", f"{method} {bundle} {verb}")
                status, answer = s.http(method, f"{there}/{bundle}/{verb}".rstrip("/"), quietly=True)
                s.note("answer", [status, answer["reason"].replace(ns, "NS")])
