"""Calls with more than one fault: which fault Apache Pulsar answers."""

from harness.steps import plain_and_partitioned
from transcript import scenario

QUOTA = {"limitSize": 1000000, "policy": "producer_exception"}


@scenario
def quotas_of_namespaces_that_are_not_there(s):
    for name in (f"public/{s.tag}-none", f"{s.tag}-none/x"):
        base = f"/admin/v2/namespaces/{name}"
        for body in (QUOTA, {"policy": "other"}, [], None):
            s.call("POST", base + "/backlogQuota", body)
        s.call("POST", base + "/backlogQuota?backlogQuotaType=other", QUOTA)
        s.call("DELETE", base + "/backlogQuota")
        s.call("DELETE", base + "/backlogQuota?backlogQuotaType=other")
        s.call("GET", base + "/backlogQuotaMap")


@scenario
def quotas_of_a_kind_that_is_none(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "none", "p-partition-0", "p-partition-5"):
        for query in ("", "?backlogQuotaType=other", "?backlogQuotaType="):
            s.call("POST", f"{base}/{name}/backlogQuota{query}", QUOTA)
            s.call("DELETE", f"{base}/{name}/backlogQuota{query}")
        s.call("POST", f"{base}/{name}/backlogQuota", {"policy": "other"})


@scenario
def grants_in_namespaces_that_are_not_there(s):
    for name in (f"public/{s.tag}-none", f"{s.tag}-none/x"):
        base = f"/admin/v2/namespaces/{name}/permissions"
        s.call("GET", base)
        s.call("GET", base + "/subscription")
        s.call("POST", base + "/r", ["produce"])
        s.call("POST", base + "/r", "x")
        s.call("DELETE", base + "/r")
        s.call("POST", base + "/subscription/s", ["r"])
        s.call("POST", base + "/subscription/s", "x")
        s.call("DELETE", base + "/s/r")


@scenario
def bad_bodies_for_namespaces_that_are_not_there(s):
    base = f"/admin/v2/namespaces/public/{s.tag}-none"
    for path, body in (
        ("replication", {}), ("allowedClusters", {}), ("persistence/bookieAffinity", []), ("retention", []), ("persistence", []),
        ("messageTTL", "x"), ("deduplication", "x"), ("offloadPolicies", []), ("subscriptionAuthMode", "x"),
        ("publishRate", []), ("dispatchRate", []), ("autoTopicCreation", []), ("inactiveTopicPolicies", []), ("delayedDelivery", []),
        ("maxProducersPerTopic", "x"), ("encryptionRequired", "x"), ("properties", []),
    ):  # fmt: skip
        s.call("PUT" if path == "properties" else "POST", f"{base}/{path}", body)
    for path in ("compactionThreshold", "schemaCompatibilityStrategy", "offloadThreshold", "offloadDeletionLagMs"):
        s.call("PUT", f"{base}/{path}", "x")


@scenario
def subscriptions_of_non_persistent_topics_that_are_not_there(s):
    base = plain_and_partitioned(s, "non-persistent")
    for name in ("none", "t", "p", "p-partition-0", "p-partition-5"):
        at = f"{base}/{name}/subscription/s"
        position = {"ledgerId": 0, "entryId": 0}
        for method, more, body in (
            ("POST", "/expireMessages/0", None), ("POST", "/expireMessages", position), ("POST", "/resetcursor/0", None),
            ("POST", "/resetcursor", position), ("POST", "/skip/1", None), ("POST", "/skip_all", None), ("POST", "/analyzeBacklog", None),
            ("GET", "/properties", None), ("PUT", "/properties", {"a": "b"}), ("GET", "/replicatedSubscriptionStatus", None),
            ("POST", "/replicatedSubscriptionStatus", True), ("DELETE", "", None),
        ):  # fmt: skip
            s.call(method, at + more, body)


@scenario
def subscriptions_of_non_persistent_topics_in_use(s):
    base = plain_and_partitioned(s, "non-persistent")
    c = s.connect()
    for i, name in enumerate(("t", "p-partition-0", "p-partition-1")):
        topic = base.replace("/admin/v2/non-persistent/", "non-persistent://") + "/" + name
        s.lookup(topic)
        c.subscribe(topic, "s", i, subType="Shared", subscription_properties=[{"key": "k", "value": "v"}])
    for name in ("t", "p", "p-partition-0"):
        at = f"{base}/{name}/subscription/s"
        for method, more, body in (
            ("POST", "/expireMessages/0", None), ("POST", "/analyzeBacklog", None), ("GET", "/properties", None),
            ("PUT", "/properties", {"a": "b"}), ("GET", "/properties", None), ("POST", "/skip/1", None), ("POST", "/skip_all", None),
            ("POST", "/resetcursor/0", None), ("DELETE", "", None),
        ):  # fmt: skip
            s.call(method, at + more, body, keep=True)


@scenario
def properties_of_non_persistent_subscriptions(s):
    topic = s.topic(domain="non-persistent")
    t = topic.replace("://", "/")
    c = s.connect()
    c.subscribe(topic, "s", 1, subType="Shared", subscription_properties=[{"key": "k", "value": "v"}])
    c.subscribe(topic, "s", 2, subType="Shared", subscription_properties=[{"key": "x", "value": "y"}])
    shown = lambda r: {k: v["subscriptionProperties"] for k, v in r["subscriptions"].items()}  # noqa: E731
    s.call("GET", f"/admin/v2/{t}/stats", keep=shown)
    s.call("PUT", f"/admin/v2/{t}/subscription/s/properties", {"a": "b"})
    s.call("GET", f"/admin/v2/{t}/stats", keep=shown)
    s.call("PUT", f"/admin/v2/{t}/subscription/s/properties", {})
    s.call("GET", f"/admin/v2/{t}/subscription/s/properties", keep=True)
    s.call("PUT", f"/admin/v2/{t}/subscription/made", {"properties": {"p": "q"}})
    s.call("GET", f"/admin/v2/{t}/subscription/made/properties", keep=True)


@scenario
def policies_of_partitions_and_of_nothing(s):
    base = plain_and_partitioned(s)
    for name in ("p-partition-0", "p-partition-5", "none", "t-partition-0"):
        for path, body in (
            ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}),
            ("maxProducers", "x"),
            ("maxProducers", -1),
            ("publishRate", {}),
        ):
            s.call("POST", f"{base}/{name}/{path}", body)
            s.call("GET", f"{base}/{name}/{path}")
            s.call("DELETE", f"{base}/{name}/{path}")


@scenario
def properties_among_statistics_of_partitions(s):
    base = plain_and_partitioned(s)
    kept = lambda r: r["metadata"]  # noqa: E731
    for body in (None, {"a": "1"}, {"b": "2"}):
        if body:
            s.call("PUT", base + "/p/properties", body)
        s.call("GET", base + "/p/partitions", keep=True)
        s.call("GET", base + "/p/partitioned-stats", keep=kept)
        s.call("GET", base + "/p/partitioned-internalStats", keep=kept)
    s.call("DELETE", base + "/p/properties?key=a")
    s.call("GET", base + "/p/partitioned-stats", keep=kept)


@scenario
def an_invalid_index_is_judged_before_the_topic(s):
    for domain in ("persistent", "non-persistent"):
        base = plain_and_partitioned(s, domain)
        for name in ("t", "p", "p-partition-0", "none"):
            for query in ("?index=-1", "?index=x", "?index=", ""):
                status, answer = s.http("GET", f"{base}/{name}/getMessageIdByIndex{query}", quietly=True)
                reason = answer.get("reason", "") if isinstance(answer, dict) else ""
                s.note(f"{domain} {name} {query}", [status, reason.replace(s.tag, "$")])


@scenario
def numbers_in_the_query_are_judged_before_the_topic(s):
    for domain in ("persistent", "non-persistent"):
        base = plain_and_partitioned(s, domain)
        for name in ("t", "p", "p-partition-0", "none"):
            for policy in ("messageTTL", "subscriptionExpirationTime"):
                for value in ("x", "99999999999"):
                    s.call("POST", f"{base}/{name}/{policy}?{policy}={value}")
