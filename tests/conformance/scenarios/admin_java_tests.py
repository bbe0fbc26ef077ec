"""Requests of Apache Pulsar's own Java tests of its admin API that no other file here has."""

from transcript import scenario


def path_of(s, name="t", domain="persistent"):
    s.lookup(f"{domain}://public/default/{s.tag}-{name}")
    return f"/admin/v2/{domain}/public/default/{s.tag}-{name}"


@scenario
def subscription_that_some_partitions_have(s):
    """Partitions that lack the subscription get it; only when all have it the request is a conflict."""
    t = path_of(s)
    s.call("PUT", t + "/partitions", 3)
    s.call("PUT", t + "-partition-1/subscription/s")
    s.call("PUT", t + "/subscription/s")
    s.call("PUT", t + "/subscription/s")
    for i in range(3):
        s.call("GET", f"{t}-partition-{i}/subscriptions", keep=True)


def namespace_of(s, bundles, topics):
    """A namespace of its own with so many bundles and topics t0..; the paths of both."""
    ns = s.tag + "-ns"
    s.http("PUT", f"/admin/v2/namespaces/public/{ns}", {"bundles": {"numBundles": bundles}}, quietly=True)
    for i in range(topics):
        s.http("PUT", f"/admin/v2/persistent/public/{ns}/t{i}", quietly=True)
        s.lookup(f"persistent://public/{ns}/t{i}")
    return f"/admin/v2/namespaces/public/{ns}", f"/admin/v2/persistent/public/{ns}/t"


@scenario
def bundle_with_most_topics_is_split(s):
    n, _ = namespace_of(s, 1, 2)
    for bundle in ("LARGEST", "largest", "HOT"):
        s.call("PUT", f"{n}/{bundle}/split")
        s.call("GET", n + "/bundles", keep=True)


@scenario
def no_bundle_with_topics_to_split(s):
    n, _ = namespace_of(s, 4, 0)
    for bundle in ("LARGEST", "HOT"):
        s.call("PUT", f"{n}/{bundle}/split")
    s.call("GET", n + "/bundles", keep=True)


@scenario
def bundle_with_most_persistent_topics_is_split(s):
    """Non-persistent topics do not count. The three topics are more than those of the broker's own."""
    n, _ = namespace_of(s, 4, 0)
    ns = n.removeprefix("/admin/v2/namespaces/")

    def bundle_of(domain, name):
        return s.http("GET", f"/lookup/v2/topic/{domain}/{ns}/{name}/bundle", quietly=True)[1]

    chosen = bundle_of("persistent", "t")
    found = [f"t{i}" for i in range(60) if bundle_of("persistent", f"t{i}") == chosen][:3]
    others = [f"n{i}" for i in range(60) if bundle_of("non-persistent", f"n{i}") != chosen][:20]
    for domain, names in (("persistent", found), ("non-persistent", others)):
        for name in names:
            s.http("PUT", f"/admin/v2/{domain}/{ns}/{name}", quietly=True)
            s.lookup(f"{domain}://{ns}/{name}")
    s.call("PUT", n + "/LARGEST/split")
    low, _, high = chosen.partition("_")
    bounds = s.http("GET", n + "/bundles", quietly=True)[1]["boundaries"]
    s.note("the bundle of the persistent topics is split", bounds.index(high) - bounds.index(low) == 2)


@scenario
def bundle_is_split_by_number_of_topics(s):
    """The cut is halfway between the two topics in the middle, so it depends on their names."""
    n, _ = namespace_of(s, 1, 5)
    s.call("PUT", n + "/0x00000000_0xffffffff/split?splitAlgorithmName=topic_count_equally_divide")
    _, bundles = s.http("GET", n + "/bundles", quietly=True)
    s.note("bundles", bundles["numBundles"])


@scenario
def bundle_is_split_at_positions(s):
    n, _ = namespace_of(s, 1, 2)
    path = n + "/0x00000000_0xffffffff/split?splitAlgorithmName=specified_positions_divide"
    s.call("PUT", path, [0x30000000, 0x50000000, 0])
    s.call("GET", n + "/bundles", keep=True)


@scenario
def insides_of_a_non_persistent_topic(s):
    """The subscriptions of a non-persistent topic are cursors without fields."""
    t = path_of(s, domain="non-persistent")
    s.call("PUT", t)
    s.call("GET", t + "/internalStats", keep=["cursors"])
    c = s.connect()
    for i, kind in enumerate(("Shared", "Exclusive")):
        topic = f"non-persistent://public/default/{s.tag}-t"
        c.subscribe(topic, f"sub{i}", i, quietly=True, subType=kind, consumer_name="c")
    s.call("GET", t + "/internalStats", keep=["cursors"])


FAILOVER = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"}}


def isolation(**more):
    return {"namespaces": ["n/.*"], "primary": ["b1.*"], "secondary": [], "auto_failover_policy": FAILOVER} | more


def failover(**parameters):
    return isolation(auto_failover_policy={"policy_type": "min_available", "parameters": parameters})


@scenario
def isolation_policies_that_are_none(s):
    """Patterns have to be valid, a limit has to be a number; only known fields are kept."""
    c = "/admin/v2/clusters/" + s.tag
    s.call("PUT", c, {"serviceUrl": "http://h:1"})
    p = c + "/namespaceIsolationPolicies"
    for body in (
        isolation(primary=["[b"]),
        isolation(secondary=["[b"]),
        isolation(namespaces=[]),
        isolation(primary=[]),
        isolation(secondary=None),
        isolation(namespaces="n"),
        isolation(auto_failover_policy=None),
        isolation(auto_failover_policy={"policy_type": "other", "parameters": FAILOVER["parameters"]}),
        isolation(auto_failover_policy={"policy_type": "min_available"}),
        failover(),
        failover(min_limit="1"),
        failover(min_limit="x", usage_threshold="1"),
    ):
        s.call("POST", p + "/p", body)
    for i, body in enumerate(
        (
            failover(min_limit=-1, usage_threshold="-1", more="x"),
            isolation(unload_scope="none"),
            isolation(unload_scope="x", more=1),
            isolation(namespaces=[1]),
        )
    ):
        s.call("POST", f"{p}/p{i}", body)
        s.call("GET", f"{p}/p{i}", keep=True)
    s.call("DELETE", c)
    for i in range(4):
        s.call("DELETE", f"{p}/p{i}")
    s.call("GET", p, keep=True)
    s.call("DELETE", c)


@scenario
def consumers_of_a_partitioned_topic_added_up(s):
    """By their place, as long as every partition has as many."""
    t = path_of(s)
    s.call("PUT", t + "/partitions", 3)
    topic = f"persistent://public/default/{s.tag}-t"
    c = s.connect()
    stats = t + "/partitioned-stats?perPartition=false"
    at = iter(range(1, 99))
    for names, parts in (("ab", (0, 1, 2)), ("c", (0,)), ("d", (2,))):
        for i in parts:
            for name in names:
                c.subscribe(
                    f"{topic}-partition-{i}", "sub", next(at), quietly=True, subType="Shared", consumer_name=name
                )
        _, found = s.http("GET", stats, quietly=True)
        s.note("consumers", [each.get("consumerName") for each in found["subscriptions"]["sub"]["consumers"]])


@scenario
def cursors_have_encoded_names(s):
    t = path_of(s)
    s.call("PUT", t)
    c = s.connect()
    name = "a b+&*%{}() \\/$@#^-_.~\u00fc"
    c.subscribe(f"persistent://public/default/{s.tag}-t", name, 1, quietly=True)
    for path in ("/internalStats", "/internal-info"):
        _, found = s.http("GET", t + path, quietly=True)
        s.note(path, sorted(found["cursors"]))
    _, found = s.http("GET", t + "/stats", quietly=True)
    s.note("stats", sorted(found["subscriptions"]))


HEADERS = tuple(
    "X-Pulsar-" + name
    for name in (
        "Base64-encryption-keys", "Base64-encryption-param", "Base64-ordering-key", "Base64-schema-version", "Is-Encrypted",
        "PROPERTY", "PROPERTY-CHUNK-ID", "PROPERTY-TOTAL-CHUNKS", "batch-size", "chunk-id", "compression",
        "encryption-algo", "highest-sequence-id", "marker-type", "null-partition-key", "null-value",
        "num-batch-message", "num-chunks-from-msg", "partition-key", "partition-key-b64-encoded", "replicated-from",
        "replicated-to", "sequence-id", "total-chunk-msg-size", "txn-aborted", "txn-uncommitted", "txnid-least-bits",
        "txnid-most-bits", "uncompressed-size", "uuid",
    )
)  # fmt: skip
KEY = {"key": "k1", "value": b"\x01\x02", "metadata": [{"key": "m", "value": "v"}]}


def _peeked(name, text, **metadata):
    def run(s):
        t = path_of(s)
        s.call("PUT", t + "/subscription/sub", "earliest")
        c = s.connect()
        c.producer(f"persistent://public/default/{s.tag}-t", 1, quietly=True)
        c.publish_all(1, [b"m"], **metadata)
        s.call("GET", t + "/subscription/sub/position/1", show=HEADERS)

    run.__name__ = run.__qualname__ = "headers_of_a_peeked_message_" + name
    run.__doc__ = text
    scenario(run)


_peeked("without_value", "It is not an empty one.", null_value=True, null_partition_key=True)
_peeked(
    "with_a_key_of_bytes",
    "Its text stays Base64.",
    partition_key="AQI=",
    partition_key_b64_encoded=True,
    ordering_key=b"\x03\x04",
)
_peeked(
    "of_a_chunk", "One chunk is one message.", uuid="p-0", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9
)
_peeked(
    "of_a_schema",
    "And with what clients rarely set.",
    schema_version=b"\0\0\0\0\0\0\0\1",
    highest_sequence_id=7,
    replicate_to=["a", "b"],
)
_peeked(
    "encrypted",
    "Who peeks gets what is needed to decrypt.",
    encryption_keys=[KEY],
    encryption_algo="A",
    encryption_param=b"\x05\x06",
)


MIB = 1024 * 1024


def _quotas_and_retention(of):
    def run(s):
        n, t = namespace_of(s, 1, 1)
        base = n if of == "namespace" else t + "0"

        def quota(size, seconds, kind=""):
            body = {"limitSize": size, "limitTime": seconds, "policy": "producer_exception"}
            s.call("POST", base + "/backlogQuota" + (kind and "?backlogQuotaType=" + kind), body)

        def retention(minutes, megabytes):
            s.call("POST", base + "/retention", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes})

        retention(10, 10)
        for kind in ("destination_storage", "message_age"):
            for size, seconds in ((10 * MIB - 1, 0), (10 * MIB, 0), (-1, -1), (1, 599), (1, 600)):
                quota(size, seconds, kind)
        s.call("DELETE", base + "/retention")
        for kind in ("destination_storage", "message_age"):
            quota(5 * MIB, 100, kind)
            for minutes, megabytes in ((1, 5), (-1, 5), (-1, 6), (1, -1), (2, -1), (2, 6), (-1, -1), (0, 0)):
                retention(minutes, megabytes)
            s.call("DELETE", base + "/backlogQuota?backlogQuotaType=" + kind)

    run.__name__ = run.__qualname__ = f"quotas_and_retention_of_a_{of}"
    scenario(run)


_quotas_and_retention("namespace")
_quotas_and_retention("topic")


@scenario
def subscriptions_are_decoded_twice(s):
    """In the path of a topic, the second time like a form."""
    t = path_of(s)
    s.call("PUT", t)
    for name in (
        "100%25", "x%25zz", "a%2Bb", "a+b", "a%2520b", "a%252Fb", "c%2Fd", "%25C3%25BC", "%252525", "q%2525"
    ):  # fmt: skip
        s.call("PUT", f"{t}/subscription/{name}")
    s.call("GET", t + "/subscriptions", keep=sorted)
    for name in ("a%252Fb", "c%252Fd", "a%2520b"):
        s.call("POST", f"{t}/subscription/{name}/skip_all")
        s.call("DELETE", f"{t}/subscription/{name}")
    s.call("GET", t + "/subscriptions", keep=sorted)
