"""Requests about bundles, topics and partitions that are missing: statuses and texts."""

from harness.steps import backlog, namespace, published, rest
from transcript import scenario

HIGH, WHOLE = "0x00000000_0x40000000", "0x00000000_0xffffffff"
QUOTA = {"msgRateIn": 1, "msgRateOut": 1, "bandwidthIn": 1, "bandwidthOut": 1, "memory": 1, "dynamic": True}


def told(s, method, path, body=None):
    """A call, logged with the text of its refusal; Apache Pulsar answers 500 with a stack trace in place of a text."""
    status, answer = s.http(method, path, body, quietly=True)
    reason = answer.get("reason") if isinstance(answer, dict) else None
    reason = None if status >= 500 else reason
    s.log("http", ">", method, {"path": path} | ({} if body is None else {"body": body}))
    s.log("http", "<", "done" if status in (200, 204) and answer is None else str(status), {"reason": reason})


def bundles_with_topics(s, ns):
    """The number of the namespace's bundles that the broker owns, without the topics of policies."""
    path = "/admin/v2/brokers/standalone/" + s.http_base.removeprefix("http://") + "/ownedNamespaces"
    return sorted(k.rpartition("/")[2] for k in s.http("GET", path, quietly=True)[1] if k.startswith(ns + "/"))


@scenario
def hash_positions_of_bundles_without_an_owner(s):
    ns = namespace(s)
    path = f"/admin/v2/namespaces/{ns}/"
    for bundle in (HIGH, WHOLE, "x"):
        told(s, "GET", f"{path}{bundle}/topicHashPositions")
    for place in (f"public/{s.tag}-none", f"{s.tag}-none/n"):
        for bundle in (HIGH, WHOLE):
            told(s, "GET", f"/admin/v2/namespaces/{place}/{bundle}/topicHashPositions")


@scenario
def owned_bundles_after_the_first_topic(s):
    ns = namespace(s, "ns")
    s.note("owned", bundles_with_topics(s, ns))
    one = s.namespace("one")
    s.http("PUT", f"/admin/v2/namespaces/{one}", {"bundles": {"numBundles": 1}}, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{one}/t", quietly=True)
    s.note("owned", bundles_with_topics(s, one))


@scenario
def quotas_of_bundles_that_are_missing(s):
    places = [(namespace(s), HIGH), (s.namespace(), WHOLE), (s.namespace(), "x"), (s.namespace(), "0x5_0x4")]
    places += [(f"public/{s.tag}-none", WHOLE), (f"{s.tag}-none/n", WHOLE), (f"{s.tag}-none/n", HIGH)]
    for ns, bundle in places:
        path = f"/admin/v2/resource-quotas/{ns}/{bundle}"
        for method, body in (("GET", None), ("POST", QUOTA), ("POST", []), ("DELETE", None)):
            if body != []:
                told(s, method, path, body)
            else:
                s.call(method, path, body)


@scenario
def topics_of_missing_namespaces_and_tenants(s):
    for place in (f"public/{s.tag}-none", f"{s.tag}-none/n"):
        path = f"/admin/v2/persistent/{place}/t"
        for method, more, body in (
            ("GET", "/properties", None), ("PUT", "/properties", {"a": "b"}), ("DELETE", "/properties?key=a", None),
            ("GET", "/compaction", None), ("GET", "/lastMessageId", None), ("POST", "/trim", None),
            ("GET", "/offload", None), ("PUT", "/offload", {"ledgerId": 1, "entryId": 1}), ("GET", "/permissions", None),
            ("POST", "/permissions/r", ["produce"]), ("DELETE", "/permissions/r", None), ("DELETE", "/partitions", None),
            ("GET", "/stats", None), ("GET", "/subscriptions", None), ("POST", "/terminate", None),
        ):  # fmt: skip
            told(s, method, path + more, body)


@scenario
def properties_of_missing_topics(s):
    s.http("PUT", rest(s.topic("p")) + "/partitions", 2, quietly=True)
    for name in ("none", "none-partition-0", "p-partition-5"):
        path = rest(s.topic("x")).removesuffix("x") + name
        for method, body, query in (("GET", None, ""), ("PUT", {"a": "b"}, ""), ("PUT", {}, ""), ("DELETE", None, "?key=a")):  # fmt: skip
            told(s, method, f"{path}/properties{query}", body)


@scenario
def expiry_at_positions_that_are_invalid(s):
    topic = s.topic()
    ledger = published(s, topic, 3)[0]["ledgerId"]
    s.call("PUT", rest(topic) + "/subscription/s", "earliest")
    for more, entry in ((1, 0), (0, 99), (0, 1)):
        body = {"ledgerId": ledger + more, "entryId": entry, "partitionIndex": -1}
        status, answer = s.http("POST", rest(topic) + "/subscription/s/expireMessages", body, quietly=True)
        s.note(f"{more}:{entry}", [status, answer and answer["reason"]])
    s.eventually("expired", lambda: backlog(s, topic) == {"s": 1})


@scenario
def expiry_of_topics_that_store_nothing(s):
    ns = namespace(s)
    for name in ("t", "p"):
        path = f"/admin/v2/non-persistent/{ns}/{name}"
        s.http("PUT", path + ("/partitions" if name == "p" else ""), 2 if name == "p" else None, quietly=True)
        for of in ("all_subscription", "subscription/s"):
            told(s, "POST", f"{path}/{of}/expireMessages/1")


@scenario
def partitioned_topics_whose_partitions_were_deleted(s):
    path = rest(s.topic("p"))
    s.http("PUT", path + "/partitions", 2, quietly=True)
    for i in range(2):
        told(s, "DELETE", f"{path}-partition-{i}")
    for method, more in (
        ("POST", "/terminate/partitions"), ("GET", "/subscriptions"), ("PUT", "/unload"), ("PUT", "/compaction"),
        ("POST", "/trim"), ("DELETE", "/truncate"), ("POST", "/all_subscription/expireMessages/1"),
        ("POST", "/subscription/s/skip_all"), ("DELETE", "/subscription/s"),
    ):  # fmt: skip
        told(s, method, path + more)
    s.call("GET", path + "/partitions", keep=True)


@scenario
def topics_terminated_with_a_partition_missing(s):
    path = rest(s.topic("p"))
    s.http("PUT", path + "/partitions", 2, quietly=True)
    told(s, "DELETE", f"{path}-partition-1")
    s.call("POST", path + "/terminate/partitions")


@scenario
def web_socket_consumers_without_a_subscription(s):
    topic = s.topic()
    for query in ({}, {"subscriptionType": "x"}, {"subscriptionMode": "NonDurable"}, {"receiverQueueSize": "0"}):
        s.web_socket("consumer", topic, "%20", **query)


@scenario
def bundles_deleted_with_and_without_an_owner(s):
    ns = s.namespace()
    s.http("PUT", f"/admin/v2/namespaces/{ns}", {"bundles": {"numBundles": 1}}, quietly=True)
    bundle = f"/admin/v2/namespaces/{ns}/{WHOLE}"
    told(s, "DELETE", bundle)
    told(s, "DELETE", bundle + "?force=true")
    told(s, "DELETE", f"/admin/v2/namespaces/{ns}/{HIGH}")
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic), quietly=True)
    told(s, "DELETE", bundle)
    told(s, "DELETE", bundle + "?force=true")
    told(s, "DELETE", bundle + "?force=true")


@scenario
def statistics_of_a_topic_without_its_partitions(s):
    """The sum, and the topic itself in the place of its partitions; the stored lists are refused as soon as a partition
    is missing.
    """
    ns = namespace(s)
    base = f"/admin/v2/persistent/{ns}/p"
    s.http("PUT", base + "/partitions", 2, quietly=True)
    for index in range(2):  # each is in a bundle of its own
        s.lookup(f"persistent://{ns}/p-partition-{index}")
        s.http("GET", f"{base}-partition-{index}/stats", quietly=True)
    for missing in range(2):
        s.http("DELETE", f"{base}-partition-{missing}?force=true", quietly=True)
        status = s.http("GET", base + "/internal-info", quietly=True)[0]
        s.note(f"stored lists without partition {missing}", status)
    for more in ("", "?perPartition=false"):
        status, found = s.http("GET", base + "/partitioned-stats" + more, quietly=True)
        s.note("statistics" + more, [status, found | {"partitions": list(found["partitions"].values())}])
