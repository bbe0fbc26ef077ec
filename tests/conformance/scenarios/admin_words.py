"""The words of refusals about topics, partitions and subscriptions: tools and applications search for them."""

from harness.steps import plain_and_partitioned, rest
from transcript import scenario

READS = (
    "ledger/1/entry/1", "getMessageIdByIndex?index=0", "subscription/s/position/1", "messageid/2020", "examinemessage",
    "subscription/s/replicatedSubscriptionStatus", "subscription/s/properties", "stats", "internalStats",
    "partitioned-stats", "partitioned-internalStats", "properties",
)  # fmt: skip
UNSTEADY = {("t", "messageid/2020"), ("p", "subscription/s/replicatedSubscriptionStatus")}
"""The answer shows the id of a ledger, or depends on the broker's other work."""
CHANGES = (
    ("POST", "subscription/s/analyzeBacklog", None), ("POST", "subscription/s/skip/1", None),
    ("POST", "subscription/s/skip_all", None), ("POST", "subscription/s/expireMessages/1", None),
    ("POST", "subscription/s/expireMessages", {"ledgerId": 1, "entryId": 1, "partitionIndex": -1}),
    ("POST", "subscription/s/replicatedSubscriptionStatus", True), ("DELETE", "subscription/s", None),
    ("PUT", "backlogSize", {"ledgerId": 1, "entryId": 1}), ("POST", "terminate", None), ("POST", "terminate/partitions", None),
    ("POST", "partitions", 1), ("POST", "createMissedPartitions", None), ("DELETE", "partitions", None),
)  # fmt: skip


def words(s, method, path, body=None):
    """Make the call; log the status and, below 500, the reason of a refusal. Other reasons are traces of Java's calls."""
    status, answer = s.http(method, path, body, quietly=True)
    reason = answer.get("reason", "") if isinstance(answer, dict) and 300 <= status < 500 else ""
    s.note(f"{method} {s.neutral(path)}", [status if status != 200 else 204, s.neutral(reason)])


def _words_about(domain, part):
    def run(s):
        base = plain_and_partitioned(s, domain)
        for path in READS:
            if (part, path) not in UNSTEADY:
                words(s, "GET", f"{base}/{part}/{path}")
        for method, path, body in CHANGES:
            words(s, method, f"{base}/{part}/{path}", body)

    kind = "" if domain == "persistent" else "of_non_persistent_topics_"
    run.__name__ = run.__qualname__ = f"words_{kind}about_{part.replace('-', '_')}"
    scenario(run)


for domain in ("persistent", "non-persistent"):
    for part in ("p", "t", "p-partition-5"):
        _words_about(domain, part)


@scenario
def words_about_nothing_to_expire(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p"):
        s.http("PUT", f"{base}/{name}/subscription/s", quietly=True)
        words(s, "POST", f"{base}/{name}/subscription/s/expireMessages/1")
        words(s, "POST", f"{base}/{name}/all_subscription/expireMessages/1")


@scenario
def words_about_a_partition_that_was_deleted(s):
    """The other partitions change, and the answer names the missing partition."""
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
    words(s, "DELETE", rest(topic + "-partition-1"))
    for method, path in (
        ("POST", "all_subscription/expireMessages/1"), ("POST", "subscription/s/skip_all"),
        ("POST", "subscription/s/resetcursor/1"), ("GET", "subscriptions"), ("PUT", "unload"), ("POST", "trim"),
        ("PUT", "compaction"), ("DELETE", "truncate"), ("GET", "subscription/s/properties"),
        ("GET", "subscription/s/replicatedSubscriptionStatus"), ("DELETE", "subscription/s"),
    ):  # fmt: skip
        words(s, method, rest(topic, "/" + path))


@scenario
def words_about_a_partitioned_topic_without_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for number in range(2):
        words(s, "DELETE", rest(topic + f"-partition-{number}"))
    for method, path in (
        ("POST", "all_subscription/expireMessages/1"), ("POST", "subscription/s/expireMessages/1"),
        ("POST", "subscription/s/skip_all"), ("POST", "subscription/s/resetcursor/1"), ("GET", "subscriptions"),
        ("PUT", "unload"), ("POST", "trim"), ("PUT", "compaction"), ("DELETE", "truncate"), ("DELETE", "subscription/s"),
    ):  # fmt: skip
        words(s, method, rest(topic, "/" + path))


@scenario
def status_of_an_offload_without_a_driver(s):
    base = plain_and_partitioned(s)
    s.call("PUT", f"{base}/t/offload", {"ledgerId": 1, "entryId": 1})
    s.call("GET", f"{base}/t/offload", keep=True)


@scenario
def words_about_clusters_and_tenants(s):
    cluster, tenant, group = (f"/admin/v2/{kind}/{s.tag}" for kind in ("clusters", "tenants", "resourcegroups"))
    address = {"serviceUrl": "http://h:1", "brokerServiceUrl": "pulsar://h:2"}
    words(s, "PUT", cluster, address)
    words(s, "PUT", cluster, address)
    words(s, "POST", cluster + "/peers", [s.tag])
    words(s, "POST", cluster + "/peers", ["none"])
    for clusters in (None, [], [""], ["standalone", " "], ["none"], ["standalone"], ["standalone"]):
        words(s, "PUT", tenant, {"allowedClusters": clusters})
    words(s, "POST", tenant, {"allowedClusters": []})
    words(s, "DELETE", group)
    words(s, "DELETE", tenant)
    words(s, "DELETE", cluster)


@scenario
def words_about_a_missing_namespace(s):
    base = f"/admin/v2/namespaces/public/{s.tag}-none"
    rate = {"dispatchThrottlingRateInMsg": 1}
    for path, body in (
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
        ("delayedDelivery", {"active": True, "tickTime": 5}),
        ("inactiveTopicPolicies", {"inactiveTopicDeleteMode": "delete_when_no_subscriptions"}),
        ("deduplicationSnapshotInterval", 5),
        ("maxSubscriptionsPerTopic", 5),
        ("maxTopicsPerNamespace", 5),
        ("maxProducersPerTopic", 5),
        ("dispatchRate", rate),
        ("messageTTL", 5),
        ("persistence/bookieAffinity", {"bookkeeperAffinityGroupPrimary": "g"}),
        ("offloadPolicies", {"managedLedgerOffloadDriver": "filesystem"}),
    ):
        for method in ("GET", "POST", "DELETE"):
            words(s, method, f"{base}/{path}", body if method == "POST" else None)
    for path in ("clearBacklog", "clearBacklog/s", "unsubscribe/s"):
        words(s, "POST", f"{base}/{path}")
    words(s, "DELETE", f"/admin/v2/persistent/public/{s.tag}-none/t")
    words(s, "DELETE", f"/admin/v2/persistent/public/{s.tag}-none/t-partition-0")


@scenario
def words_about_a_missing_tenant(s):
    base = f"/admin/v2/namespaces/{s.tag}-none/n"
    words(s, "GET", base + "/properties")
    words(s, "PUT", base + "/properties", {"a": "b"})
    words(s, "DELETE", base + "/properties")
    words(s, "GET", base + "/property/k")
    words(s, "PUT", base + "/property/k/v")
    words(s, "DELETE", base + "/property/k")
    words(s, "DELETE", f"/admin/v2/persistent/{s.tag}-none/n/t")
