"""What Apache Pulsar's own Java tests of its admin API ask of a broker and no other file here does."""

from transcript import scenario


def path_of(s, name="t", domain="persistent"):
    s.lookup(f"{domain}://public/default/{s.tag}-{name}")
    return f"/admin/v2/{domain}/public/default/{s.tag}-{name}"


@scenario
def subscription_that_some_partitions_have(s):
    """It comes to those that have it not; a conflict is when all have it."""
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
    """Its subscriptions are cursors without anything in them."""
    t = path_of(s, domain="non-persistent")
    s.call("PUT", t)
    s.call("GET", t + "/internalStats", keep=["cursors"])
    c = s.connect()
    for i, kind in enumerate(("Shared", "Exclusive")):
        topic = f"non-persistent://public/default/{s.tag}-t"
        c.subscribe(topic, f"sub{i}", i, quietly=True, subType=kind, consumer_name="c")
    s.call("GET", t + "/internalStats", keep=["cursors"])
