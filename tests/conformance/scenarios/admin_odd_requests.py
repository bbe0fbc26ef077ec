"""Requests over REST that few clients send: bodies as Jackson reads them, partitions named directly, missing namespaces."""

from harness.steps import namespace, published_batches, rest
from transcript import scenario


def calls(s, *steps, keep=True):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=keep)


@scenario
def peeking_before_the_first_message_creates_the_subscription(s):
    topic = s.topic()
    path = rest(topic)
    calls(s, ("PUT", path), ("GET", path + "/subscription/s/position/0"), ("GET", path + "/subscriptions"))
    calls(s, ("PUT", path + "/subscription/s/properties", {"a": "1"}), ("GET", path + "/subscription/s/properties"))
    calls(s, ("GET", path + "/subscription/s2/position/-1"), ("GET", path + "/subscriptions"))


@scenario
def properties_of_a_subscription_that_one_partition_has(s):
    path = rest(s.topic())
    calls(s, ("PUT", path + "/partitions", 2), ("PUT", path + "-partition-0/subscription/s", "earliest"))
    calls(s, ("PUT", path + "/subscription/s/properties", {"a": "1"}), ("GET", path + "/subscription/s/properties"))
    calls(s, ("GET", path + "-partition-0/subscription/s/properties"))


@scenario
def entries_that_a_non_persistent_topic_took(s):
    topic = s.topic(domain="non-persistent")
    published_batches(s, topic, (b"a", b"b", b"c"), (b"d",))
    s.call("GET", rest(topic, "/internalStats"), keep=["entriesAddedCounter", "numberOfEntries"])
    s.call("GET", rest(topic, "/stats"), keep=["msgInCounter"])


@scenario
def type_of_the_subscription_of_compaction(s):
    path = rest(s.topic())
    calls(s, ("PUT", path), ("PUT", path + "/compaction"))
    s.eventually("compacted", lambda: s.http("GET", path + "/compaction", quietly=True)[1]["status"] == "SUCCESS")
    s.call("GET", path + "/stats", keep=lambda x: x["subscriptions"]["__compaction"]["type"])
    s.call("PUT", path + "/unload")
    s.call("GET", path + "/stats", keep=lambda x: x["subscriptions"]["__compaction"]["type"])


@scenario
def policies_as_numbers_of_their_choices(s):
    path = f"/admin/v2/namespaces/{namespace(s)}"
    for name, values in (
        ("schemaCompatibilityStrategy", (5, "5", 8, 9, -1, "01", 2.0)),
        ("schemaAutoUpdateCompatibilityStrategy", (5, "0", 7, 8, "x")),
    ):
        for value in values:
            calls(s, ("PUT", f"{path}/{name}", value), ("GET", f"{path}/{name}"))
    for value in (1, "0", 2, "Prefix"):
        calls(s, ("POST", path + "/subscriptionAuthMode", value), ("GET", path + "/subscriptionAuthMode"))


@scenario
def automatic_subscriptions_by_a_truth_value_alone(s):
    ns = namespace(s)
    path = f"/admin/v2/namespaces/{ns}/autoSubscriptionCreation"
    for value in (True, False, "true", [True]):
        calls(s, ("POST", path, value), ("GET", path))
    topic = rest(s.topic(namespace=ns))
    calls(
        s,
        ("PUT", topic),
        ("POST", topic + "/autoSubscriptionCreation", True),
        ("GET", topic + "/autoSubscriptionCreation"),
    )


@scenario
def entry_filters_by_a_text_alone(s):
    path = f"/admin/v2/namespaces/{namespace(s)}/entryFilters"
    calls(s, ("POST", path, "x"), ("POST", path, ""), ("POST", path, {"entryFilterNames": "a,b"}), ("GET", path))


@scenario
def blank_names_of_entry_filters(s):
    ns, topic = namespace(s), s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for names in " ", ",", ",,", " , ", ",a", "a,,b", " a ,b":
        for path in f"/admin/v2/namespaces/{ns}/entryFilters", rest(topic, "/entryFilters"):
            status, found = s.http("POST", path, {"entryFilterNames": names}, quietly=True)
            s.note(names, [status, found["reason"]])


@scenario
def types_of_topics_in_other_letters(s):
    """A type is accepted in any letters, but has its effect in small letters alone."""
    ns = namespace(s)
    path = f"/admin/v2/namespaces/{ns}/autoTopicCreation"
    for policy in (
        {},
        {"topicType": None},
        {"topicType": " partitioned"},
        {"topicType": "Non-Partitioned", "defaultNumPartitions": 3},
        {"topicType": "PARTITIONED", "defaultNumPartitions": 0},
        {"topicType": "PARTITIONED", "defaultNumPartitions": 3},
    ):
        status, found = s.http("POST", path, {"allowAutoTopicCreation": True, **policy}, quietly=True)
        s.note(str(policy.get("topicType")), [status, found["reason"] if status >= 400 else ""])
        calls(s, ("GET", path))
    topic = s.topic("new", namespace=ns)
    calls(s, ("GET", rest(topic, "/partitions?checkAllowAutoCreation=true")), ("GET", rest(topic, "/partitions")))


@scenario
def bookie_affinity_of_nothing(s):
    path = f"/admin/v2/namespaces/{namespace(s)}/persistence/bookieAffinity"
    calls(s, ("POST", path), ("GET", path))
    s.call("POST", path, raw=b"null")
    calls(s, ("GET", path), ("POST", path, {"bookkeeperAffinityGroupPrimary": "g"}), ("GET", path))
    calls(s, ("POST", path), ("GET", path))


@scenario
def topics_of_both_kinds_listed_together(s):
    ns = namespace(s)
    for name in (
        "non-persistent/{}/a",
        "persistent/{}/b",
        "persistent/{}/a",
    ):  # the list of the first kind has no order
        s.call("PUT", "/admin/v2/" + name.format(ns))
    s.call("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2)
    for mode in ("ALL", "PERSISTENT", "NON_PERSISTENT"):
        s.call("GET", f"/admin/v2/namespaces/{ns}/topics?mode={mode}", keep=True)


@scenario
def policies_of_missing_namespaces_with_bad_values(s):
    path = f"/admin/v2/namespaces/{s.namespace('none')}"
    for clusters in ([], ["nowhere"], ["standalone"]):
        calls(s, ("POST", path + "/replication", clusters), ("POST", path + "/allowedClusters", clusters))
    calls(s, ("POST", path + "/antiAffinity"), ("POST", path + "/retention", {"retentionTimeInMinutes": -5}))
    bookies = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
    calls(s, ("POST", path + "/persistence"), ("POST", path + "/persistence", bookies), ("POST", path + "/retention"))
    calls(
        s,
        ("POST", path + "/messageTTL", -1),
        ("POST", path + "/inactiveTopicPolicies", 5),
        ("POST", path + "/delayedDelivery", {"tickTime": -1, "active": True}),
    )
    calls(
        s, ("POST", path + "/backlogQuota", {}), ("POST", path + "/autoTopicCreation", {"allowAutoTopicCreation": True})
    )
    ns = f"/admin/v2/namespaces/{namespace(s)}"
    for clusters in ([], ["nowhere"], ["standalone"]):
        calls(s, ("POST", ns + "/allowedClusters", clusters), ("GET", ns + "/allowedClusters"))


@scenario
def partitions_of_a_non_persistent_topic_used_by_name(s):
    path = rest(s.topic(domain="non-persistent"))
    calls(
        s,
        ("PUT", path + "/partitions", 4),
        ("GET", path + "-partition-0/subscriptions"),
        ("PUT", path + "-partition-0"),
    )
    calls(
        s,
        ("PUT", path + "-partition-1/unload"),
        ("PUT", path + "-partition-9/unload"),
        ("GET", path + "-partition-9/subscriptions"),
    )
    calls(
        s,
        ("GET", path + "-partition-2/subscription/s/properties"),
        ("PUT", path + "-partition-3/subscription/s/properties", {}),
    )
    calls(s, ("DELETE", path + "-partition-2/subscription/s"), ("GET", path + "-partition-1/permissions"))
    calls(
        s, ("POST", path + "-partition-3/permissions/r", ["produce"]), ("DELETE", path + "-partition-3/permissions/r")
    )
    calls(
        s,
        ("POST", path + "-partition-3/subscription/s/expireMessages/1"),
        ("POST", path + "-partition-2/all_subscription/expireMessages/1"),
    )
