"""Requests about topics in the order in which Apache Pulsar finds fault: body, name, partition, existence."""

from harness.steps import namespace, plain_and_partitioned, published, published_batches, rest
from transcript import scenario

ODD_PARTS = ("p-partition-5", "u-partition-0")
NON_PERSISTENT_READS = (
    "compaction", "examinemessage", "getMessageIdByIndex", "internalStats", "lastMessageId", "ledger/1/entry/1",
    "ledger/x/entry/x", "messageid/1", "offload", "stats", "subscription/s/position/1", "subscription/s/properties",
    "subscriptions", "partitioned-stats", "partitioned-internalStats", "properties",
)  # fmt: skip


def _non_persistent_reads(part):
    def run(s):
        base = plain_and_partitioned(s, "non-persistent")
        for path in NON_PERSISTENT_READS:
            s.call("GET", f"{base}/{part}/{path}")

    run.__name__ = run.__qualname__ = "non_persistent_reads_of_" + part.replace("-", "_")
    scenario(run)


@scenario
def partitions_put_without_a_body_or_a_fitting_name(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u", "p-partition-0", *ODD_PARTS):
        s.call("PUT", f"{base}/{name}/partitions")
    s.call("PUT", base + "/p-partition-0/partitions", 0)
    s.call("PUT", base + "/p-partition-0/partitions", "x")
    s.call("POST", base + "/p/partitions")
    s.call("GET", base + "/partitioned", keep=True)


@scenario
def partitions_put_for_this_cluster_alone(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u"):
        s.call("PUT", f"{base}/{name}/partitions?createLocalTopicOnly=true", 2)
    s.call("GET", base, keep=sorted)


@scenario
def other_numbers_of_partitions_put_for_this_cluster_alone(s):
    base = plain_and_partitioned(s)
    for count in (1, 2, 4):
        s.call("PUT", f"{base}/p/partitions?createLocalTopicOnly=true", count)
        s.call("GET", base, keep=sorted)
        s.call("GET", base + "/p/partitions")
    s.call("PUT", base + "/p/partitions", 2)


@scenario
def missed_partitions_of_partitions(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u", "p-partition-0", *ODD_PARTS):
        s.call("POST", f"{base}/{name}/createMissedPartitions")


@scenario
def internal_statistics_of_partitions_and_unknown_topics(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u", "p-partition-0", *ODD_PARTS):
        s.call("GET", f"{base}/{name}/partitioned-internalStats")
        s.call("GET", f"{base}/{name}/internal-info")
        s.call("GET", f"{base}/{name}/internalStats")


@scenario
def backlog_size_of_odd_bodies(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u"):
        for body in ([], "earliest", {"ledgerId": "a"}, {}):
            s.call("PUT", f"{base}/{name}/backlogSize", body, keep=True)


@scenario
def backlog_size_behind_a_ledger_to_come(s):
    topic = s.topic()
    published(s, topic, 3)
    size = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["storageSize"]
    body = {"ledgerId": 1 << 60, "entryId": 0, "partitionIndex": -1}
    s.call("PUT", rest(topic, "/backlogSize"), body, keep=lambda bytes_: bytes_ == size)


@scenario
def properties_of_topics_put_and_taken_oddly(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u", *ODD_PARTS):
        for body in ({}, [], {"a": {"b": 1}}):
            s.call("PUT", f"{base}/{name}/properties", body)
    s.call("PUT", base + "/u/properties")
    s.call("DELETE", base + "/p/properties")
    s.call("DELETE", base + "/t/properties?key=")
    s.call("DELETE", base + "/t/properties?key=x")


@scenario
def index_among_properties_after_a_removal(s):
    topic = s.topic()
    published(s, topic, 4)
    s.call("GET", rest(topic, "/properties"), keep=True)
    s.call("DELETE", rest(topic, "/properties?key=x"))
    s.call("GET", rest(topic, "/properties"), keep=True)


@scenario
def grants_on_a_topic_of_nothing(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u"):
        s.call("POST", f"{base}/{name}/permissions/r")
    s.call("GET", base + "/t/permissions", keep=True)


@scenario
def subscription_on_partitions_that_are_not_there(s):
    base = plain_and_partitioned(s)
    for name in ODD_PARTS:
        s.call("PUT", f"{base}/{name}/subscription/s", "earliest")
    s.call("GET", base, keep=sorted)


@scenario
def cursor_reset_with_odd_bodies(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u", "u-partition-0"):
        for body in (None, [], "x"):
            s.call("POST", f"{base}/{name}/subscription/s/resetcursor", body)


@scenario
def messages_expired_up_to_odd_positions(s):
    base = plain_and_partitioned(s)
    s.http("PUT", base + "/t/subscription/s", "earliest", quietly=True)
    for name in ("t", "p", "u", *ODD_PARTS):
        for body in (None, [], {"ledgerId": 0, "entryId": 0}):
            s.call("POST", f"{base}/{name}/subscription/s/expireMessages", body)


@scenario
def backlog_analyzed_with_odd_bodies(s):
    base = plain_and_partitioned(s)
    for name in ("t", "p", "u"):
        for body in ([], "x"):
            s.call("POST", f"{base}/{name}/subscription/s/analyzeBacklog", body)


@scenario
def backlog_analyzed_tells_first_and_last(s):
    topic = s.topic()
    published(s, topic, 2)
    published_batches(s, topic, [b"a", b"b"])
    s.http("PUT", rest(topic, "/subscription/s"), "earliest", quietly=True)

    def shape(found):
        return [
            found["entries"],
            found["messages"],
            *(found[k].split(":")[1:] for k in ("firstMessageId", "lastMessageId")),
        ]

    s.call("POST", rest(topic, "/subscription/s/analyzeBacklog"), keep=shape)


@scenario
def subscription_marked_replicated_without_a_body(s):
    base = plain_and_partitioned(s)
    s.http("PUT", base + "/t/subscription/s", "earliest", quietly=True)
    for name in ("t", "p", "u"):
        s.call("POST", f"{base}/{name}/subscription/s/replicatedSubscriptionStatus")
    s.call("POST", base + "/t/subscription/s/replicatedSubscriptionStatus", True)
    s.call("GET", base + "/t/subscription/s/replicatedSubscriptionStatus", keep=lambda r: sorted(r.values()))


@scenario
def offload_status_before_any(s):
    base = plain_and_partitioned(s)
    s.call("GET", base + "/t/offload", keep=["status", "lastError"])
    s.call("GET", base + "/t/offload", keep=lambda r: r["firstUnoffloadedMessage"])


@scenario
def rates_of_a_subscription_that_nobody_reads(s):
    """Whole numbers and fractions differ."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/s"), "earliest", quietly=True)
    rates = ["messageAckRate", "chunkedMessageRate", "msgBacklog", "msgOutCounter"]
    s.call("GET", rest(topic, "/stats"), keep=lambda r: {k: r["subscriptions"]["s"][k] for k in rates})


@scenario
def rate_of_one_subscription_that_limits_nothing(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    rate = rest(topic, "/s/dispatchRate")
    for body in ({"dispatchThrottlingRateInMsg": 10}, {}, {"dispatchThrottlingRateInMsg": 0}):
        s.call("POST", rate, body)
        s.call("GET", rate, keep=True)
    s.call("POST", rate)
    s.call("GET", rate, keep=True)
    s.call("DELETE", rate)
    s.call("GET", rate, keep=True)


@scenario
def lookup_of_partitions_that_are_not_there(s):
    base = plain_and_partitioned(s).replace("/admin/v2/", "/lookup/v2/topic/")
    for name in ("p-partition-0", *ODD_PARTS, "t%2Fx"):
        s.call("GET", f"{base}/{name}")
        s.call("GET", f"{base}/{name}/bundle")


@scenario
def schemas_of_namespaces_that_are_not_there(s):
    for place in (f"public/{s.tag}/t", f"{s.tag}/n/t"):
        for path in ("schema/x", "schemas", "metadata"):
            s.call("GET", f"/admin/v2/schemas/{place}/{path}", keep=True)


def reason(s, method, path, body=None):
    """Note the status and the text of a refusal."""
    status, found = s.http(method, path, body, quietly=True)
    s.note(method, [status, found["reason"]] if status >= 400 else "done")


@scenario
def deletions_of_topics_in_use(s):
    """The numbers of connected clients in the refusals, by domain; of a partitioned topic those of one partition."""
    for domain in "persistent", "non-persistent":
        topic, c = s.topic(domain=domain), s.connect(domain)
        s.lookup(topic)
        for consumer_id, name in enumerate(("a", "a", "b"), 1):
            c.subscribe(topic, name, consumer_id, quietly=True, subType="Shared")
            reason(s, "DELETE", rest(topic))
        for producer_id in 4, 5:
            c.producer(topic, producer_id, quietly=True)
            reason(s, "DELETE", rest(topic))
        s.call("DELETE", rest(topic, "?force=true"))
        parts = s.topic("p", domain=domain)
        s.http("PUT", rest(parts, "/partitions"), 2, quietly=True)
        for number in range(2):
            s.lookup(f"{parts}-partition-{number}")
            c.subscribe(f"{parts}-partition-{number}", "s", 6 + number, quietly=True)
        reason(s, "DELETE", rest(parts, "/partitions"))
        s.call("DELETE", rest(parts, "/partitions?force=true"))


@scenario
def grants_without_a_body_or_a_namespace(s):
    for place in namespace(s), f"public/{s.tag}-none", f"{s.tag}-none/n":
        path = f"/admin/v2/namespaces/{place}/permissions"
        for body in None, []:
            reason(s, "POST", path + "/r", body)
        reason(s, "POST", path + "/subscription/s")


@scenario
def compactions_of_non_persistent_topics(s):
    """Refused also where no partition is loaded; none is recorded."""
    plain, parts = s.topic(domain="non-persistent"), s.topic("p", domain="non-persistent")
    s.http("PUT", rest(parts, "/partitions"), 2, quietly=True)
    s.lookup(plain)
    for topic in (plain, parts, parts + "-partition-0", s.topic("none", domain="non-persistent")):
        s.call("PUT", rest(topic, "/compaction"))
    s.call("GET", rest(parts, "/compaction"))


for _part in ("t", "p-partition-0", *ODD_PARTS):
    _non_persistent_reads(_part)
