"""Statistics of subscriptions that were deleted, read by compaction or added up over partitions, and waiting reads."""

import time

from harness.steps import EARLIEST, ack, compact, drained, namespace, published, read, rest, stats
from transcript import scenario

NAMED = (
    "address",
    "clientVersion",
    "connectedSince",
    "metadata",
    "consumerName",
    "keySharedMode",
    "activeConsumerName",
)
COUNTED = ("msgOutCounter", "bytesOutCounter", "bytesOutInternalCounter", "msgInCounter")
OF_SUBSCRIPTIONS = (
    *("msgBacklog", "msgOutCounter", "type", "lastConsumedTimestamp", "lastConsumedFlowTimestamp", "isDurable"),
    *("subscriptionProperties", "unackedMessages", "allowOutOfOrderDelivery"),
)
OF_CONSUMERS = (
    *("availablePermits", "unackedMessages", "msgOutCounter", "avgMessagesPerEntry", "lastConsumedTimestamp"),
    *("lastConsumedFlowTimestamp", "lastConsumedTime", "lastAckedTime", "chunkedMessageRate", "drainingHashes"),
)


def shown(row, keys):
    return {k: row.get(k, "absent") for k in keys} | {k: k in row for k in NAMED}


def counted(s, topic, what):
    found = stats(s, topic)
    each = {name: [row["msgOutCounter"], row["bytesOutCounter"]] for name, row in found["subscriptions"].items()}
    s.note(what, [{k: found[k] for k in COUNTED}, each])


@scenario
def subscriptions_added_up_over_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    types = (("Shared", 1), ("Failover", 2), ("Key_Shared", 3))
    c = s.connect()
    for i in range(3):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        for kind, consumer_id in types:
            properties = [dict(key="k", value="v")]
            number = 10 * i + consumer_id
            c.subscribe(
                part,
                kind,
                number,
                5,
                quietly=True,
                subType=kind,
                metadata=properties,
                subscription_properties=properties,
            )
        published(s, part, i + 1)
    drained(c, 1.5)
    path = rest(topic, "/partitioned-stats?perPartition=false&getEarliestTimeInBacklog=true")
    found = s.http("GET", path, quietly=True)[1]
    for name, row in sorted(found["subscriptions"].items()):
        earliest = row["earliestMsgPublishTimeInBacklog"]
        s.note(name, shown(row, OF_SUBSCRIPTIONS) | {"earliest": 0 < earliest < 2_000_000_000_000})
        s.note("consumers", [shown(each, OF_CONSUMERS) for each in row["consumers"]])


@scenario
def subscription_that_one_partition_has_added_up(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    s.lookup(topic + "-partition-1")
    c = s.connect()
    c.subscribe(topic + "-partition-0", "both", 1, quietly=True, subType="Shared")
    s.http("PUT", rest(topic, "-partition-1/subscription/both"), "earliest", quietly=True)
    c.subscribe(topic + "-partition-1", "one", 2, quietly=True, subType="Failover")
    found = s.http("GET", rest(topic, "/partitioned-stats?perPartition=false"), quietly=True)[1]
    s.note("types", {name: row["type"] for name, row in sorted(found["subscriptions"].items())})


@scenario
def times_added_up_over_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    parts = [f"{topic}-partition-{i}" for i in range(3)]
    path = rest(topic, "/partitioned-stats?perPartition=true&getEarliestTimeInBacklog=true")

    def noted(what):
        found = s.http("GET", path, quietly=True)[1]
        each = [found["partitions"][part]["subscriptions"]["sub"] for part in parts]
        total, times = (found["subscriptions"]["sub"], *each), "earliestMsgPublishTimeInBacklog"
        s.note(what, [row[times] if row[times] <= 0 else "time" for row in total])
        s.note("topic", found["earliestMsgPublishTimeInBacklogs"] > 0)
        created = [found["partitions"][part]["topicCreationTimeStamp"] for part in parts]
        s.note("created first", found["topicCreationTimeStamp"] == min(created))

    for part in parts:
        s.lookup(part)
        s.http("PUT", rest(part, "/subscription/sub"), "earliest", quietly=True)
        time.sleep(0.02)
    noted("without messages")
    published(s, parts[2], 1)
    noted("the last")
    published(s, parts[0], 1)
    noted("the first too")
    published(s, parts[1], 1)
    noted("all")


@scenario
def subscription_of_the_oldest_message(s):
    topic, key = s.topic(), "oldestBacklogMessageSubscriptionName"
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    part = topic + "-partition-0"
    for name in "ab":
        s.http("PUT", rest(topic, f"/subscription/{name}"), "earliest", quietly=True)
    published(s, part, 3)
    s.note("in the open ledger", stats(s, part).get(key))
    s.http("PUT", rest(part, "/unload"), quietly=True)
    published(s, part, 1, first=3)
    s.http("POST", rest(part, "/subscription/b/skip/1"), quietly=True)
    s.eventually("a is the slowest", lambda: stats(s, part).get(key) == "a")
    total = rest(topic, "/partitioned-stats?perPartition=false")
    s.eventually("in the sum, too", lambda: s.http("GET", total, quietly=True)[1].get(key) == "a")
    s.http("POST", rest(part, "/subscription/a/skip_all"), quietly=True)
    s.eventually("b is the slowest", lambda: stats(s, part).get(key) == "b")
    s.http("POST", rest(part, "/subscription/b/skip_all"), quietly=True)
    s.eventually("none", lambda: key not in stats(s, part))


@scenario
def draining_hashes_by_mode(s):
    topic, c = s.topic(), s.connect()
    ranges = [dict(start=0, end=65535)]
    modes = {
        "automatic": dict(keySharedMode="AUTO_SPLIT"),
        "free": dict(keySharedMode="AUTO_SPLIT", allowOutOfOrderDelivery=True),
        "sticky": dict(keySharedMode="STICKY", hashRanges=ranges),
    }
    for number, (name, meta) in enumerate(modes.items()):
        c.subscribe(topic, name, number, quietly=True, subType="Key_Shared", keySharedMeta=meta)
    for name, row in sorted(stats(s, topic)["subscriptions"].items()):
        s.note(name, [each.get("drainingHashes", "absent") for each in row["consumers"]])


@scenario
def reads_that_wait_for_entries(s):
    topic, c = s.topic(), s.connect()

    def noted(what):
        found = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]
        each = {n: [x["waitingReadOp"], x["subscriptionHavePendingRead"]] for n, x in sorted(found["cursors"].items())}
        s.note(what, each)

    for number, kind in enumerate(("Exclusive", "Shared", "Key_Shared")):
        c.subscribe(topic, kind, number, quietly=True, subType=kind)
    c.subscribe(topic, "reader", 9, quietly=True, durable=False, start_message_id=EARLIEST)
    noted("without permits")
    for consumer_id in (0, 1, 2, 9):
        c.send("FLOW", quietly=True, consumer_id=consumer_id, messagePermits=2)
    s.eventually("asked", lambda: all(each["consumers"] for each in stats(s, topic)["subscriptions"].values()))
    noted("with permits")
    published(s, topic, 2)
    drained(c)
    noted("permits used")
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=0)
    noted("one asked again")


@scenario
def messages_that_compaction_reads_are_counted(s):
    topic = s.topic()
    for i in range(6):
        published(s, topic, [b"v%d" % i], first=i, partition_key=f"k{i % 2}")
    counted(s, topic, "before")
    compact(s, topic)
    counted(s, topic, "once")
    size = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["compactedLedger"]
    s.note("compacted", [size["entries"], 126 < size["size"] < 150])  # the size grows with the id of the ledger
    published(s, topic, [b""], first=9, partition_key="k1")
    compact(s, topic)
    counted(s, topic, "twice")


@scenario
def counters_of_subscriptions_that_are_gone(s):
    topic, c = s.topic(), s.connect()
    published(s, topic, 3)
    c.subscribe(topic, "reader", 1, 2, quietly=True, durable=False, start_message_id=EARLIEST)
    c.subscribe(topic, "durable", 2, 9, quietly=True, initialPosition="Earliest")
    drained(c)
    counted(s, topic, "both")
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    counted(s, topic, "without the reader")
    c.ask("UNSUBSCRIBE", quietly=True, consumer_id=2)
    counted(s, topic, "without both")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    counted(s, topic, "loaded again")


@scenario
def counters_of_non_persistent_subscriptions_that_are_gone(s):
    topic, c = s.topic(domain="non-persistent"), s.connect()
    c.subscribe(topic, "s", 1, 9, quietly=True)
    published(s, topic, 2)
    drained(c)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    counted(s, topic, "gone")


@scenario
def messages_expired_of_a_period(s):
    topic, c = s.topic(), s.connect()
    c.subscribe(topic, "s", 1, quietly=True)
    published(s, topic, 3, publish_time=1_600_000_000_000)
    c.none(1.2)
    s.call("POST", rest(topic, "/subscription/s/expireMessages/1"))
    s.eventually("expired", lambda: stats(s, topic)["subscriptions"]["s"]["totalMsgExpired"] == 3)
    s.note("in the last full period", stats(s, topic)["subscriptions"]["s"]["msgExpired"])


@scenario
def insides_of_a_terminated_topic(s):
    for messages in (0, 2):
        topic, c = s.topic(f"t{messages}"), s.connect()
        c.subscribe(topic, "s", 1, quietly=True)
        published(s, topic, messages)
        s.call("POST", rest(topic, "/terminate"), keep=("entryId",))
        for what in ("terminated", "loaded again"):
            found = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]
            ledgers = [[each["entries"], each["size"]] for each in found["ledgers"]]
            keys = ("currentLedgerEntries", "currentLedgerSize", "numberOfEntries", "totalSize", "state")
            s.note(what, [{k: found[k] for k in keys}, ledgers if messages else "of no entry"])
            if what == "terminated":
                mark_delete = found["cursors"]["s"]["markDeletePosition"].split(":")
                s.note("cursor", [int(mark_delete[0]) >= 0, mark_delete[1]])
            s.http("PUT", rest(topic, "/unload"), quietly=True)
            s.lookup(topic)


def instants(figures, *keys):
    """Whether each time is set."""
    return {key: figures[key] > 0 for key in keys}


@scenario
def time_of_creation_of_partitions_that_nothing_has_used(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for number in range(2):
        s.note("partition", instants(stats(s, f"{topic}-partition-{number}"), "topicCreationTimeStamp"))
    s.note("all", instants(s.http("GET", rest(topic, "/partitioned-stats"), quietly=True)[1], "topicCreationTimeStamp"))


@scenario
def times_of_a_non_persistent_topic_are_unknown(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.producer(topic, quietly=True)
    c.publish(1, 0)
    c.recv_quietly()
    s.note("times", instants(stats(s, topic), "topicCreationTimeStamp", "lastPublishTimeStamp"))


def earliest(s, topic, what):
    """Whether the topic, and each subscription, has a time of its oldest entry."""
    path = rest(topic, "/stats?getPreciseBacklog=true&getEarliestTimeInBacklog=true")
    figures = s.http("GET", path, quietly=True)[1]
    each = {name: row["earliestMsgPublishTimeInBacklog"] > 0 for name, row in figures["subscriptions"].items()}
    s.note(what, [figures["earliestMsgPublishTimeInBacklogs"] > 0, each])


@scenario
def oldest_entry_that_deduplication_has_not_passed(s):
    ns = namespace(s, deduplication=True)
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    published(s, topic, 3)
    earliest(s, topic, "published")
    c = s.connect()
    c.subscribe(topic, "late", quietly=True)
    earliest(s, topic, "late subscription")
    c.subscribe(topic, "reader", 2, quietly=True, durable=False, start_message_id=EARLIEST)
    earliest(s, topic, "reader")


def ends(s, topic, what):
    """Reads that wait for entries, and the sizes of the backlogs."""
    cursors = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]
    figures = s.http("GET", rest(topic, "/stats?subscriptionBacklogSize=true&getPreciseBacklog=true"), quietly=True)[1]
    shown = {
        name: [row["subscriptionHavePendingRead"], row["waitingReadOp"], row["state"]] for name, row in cursors.items()
    }
    sizes = {name: [row["backlogSize"], row["msgBacklog"]] for name, row in figures["subscriptions"].items()}
    s.note(what, [shown, sizes, figures["backlogSize"], figures["storageSize"]])


@scenario
def consumers_and_sizes_at_the_end_of_a_terminated_topic(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "all", 1, 10, quietly=True)
    c.subscribe(topic, "one", 2, quietly=True, subType="Shared")
    ids = published(s, topic, 2)
    read(c, 2)
    ack(c, ids[1], kind="Cumulative")
    ack(c, ids[0], consumer_id=2)
    s.eventually("waits", lambda: _waits(s, topic, "all"))
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    ends(s, topic, "terminated")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    ends(s, topic, "loaded")
    c = s.connect()
    c.subscribe(topic, "all", 1, 10, quietly=True)
    s.eventually("waits", lambda: _waits(s, topic, "all"))
    ends(s, topic, "consumer")


def _waits(s, topic, name):
    return s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"][name]["waitingReadOp"]


def moved(s, topic, what):
    """Whether a subscription has a time of expiry, and a time of the last advance of its cursor; its backlog."""
    rows = stats(s, topic)["subscriptions"]
    times = ("lastExpireTimestamp", "lastMarkDeleteAdvancedTimestamp")
    s.note(what, {name: [*(row[key] > 0 for key in times), row["msgBacklog"]] for name, row in rows.items()})


def moved_by(name, *steps, wait=0.0):
    """A scenario of one namespace and topic with eight messages, of which two come after the wait."""

    def run(s):
        ns = namespace(s)
        topic = f"persistent://{ns}/t"
        s.lookup(topic)
        s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
        published(s, topic, 6)
        time.sleep(wait)
        published(s, topic, 2, first=6)
        moved(s, topic, "before")
        for method, place, path, *body in steps:
            base = rest(topic) if place == "topic" else f"/admin/v2/namespaces/{ns}"
            s.call(method, base + path, body[0] if body else None)
            time.sleep(0.4)
            moved(s, topic, "after")

    run.__name__ = f"cursor_times_after_{name}"
    scenario(run)


moved_by("skips", ("POST", "topic", "/subscription/s/skip/2"), ("POST", "topic", "/subscription/s/skip/100"))
moved_by(
    "a_clear_and_a_reset",
    ("POST", "topic", "/subscription/s/skip_all"),
    ("POST", "topic", "/subscription/s/resetcursor/0"),
)
moved_by("a_clear_of_the_namespace", ("POST", "namespace", "/clearBacklog"))
moved_by("a_truncation", ("DELETE", "topic", "/truncate"))
moved_by("an_expiry", ("POST", "topic", "/subscription/s/expireMessages/1"), wait=1.2)
moved_by("an_expiry_of_nothing", ("POST", "topic", "/subscription/s/expireMessages/1000"))
moved_by("a_ttl_of_the_namespace", ("POST", "namespace", "/messageTTL", 1), wait=1.2)
moved_by("a_ttl_of_the_topic", ("POST", "topic", "/messageTTL?messageTTL=1"), wait=1.2)


@scenario
def time_of_a_flow_of_compaction(s):
    topic = s.topic()
    published(s, topic, 2, partition_key="k")
    compact(s, topic)
    [row] = stats(s, topic)["subscriptions"].values()
    s.note("times", instants(row, "lastConsumedFlowTimestamp", "lastConsumedTimestamp", "lastAckedTimestamp"))


@scenario
def hole_behind_a_skip_advances_no_cursor(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "s", quietly=True, subType="Shared")
    ids = published(s, topic, 6)
    s.http("POST", rest(topic, "/subscription/s/skip/2"), quietly=True)
    ack(c, ids[4])
    moved(s, topic, "hole")
    ack(c, ids[2])
    moved(s, topic, "next")


@scenario
def publishes_that_a_rate_held(s):
    ns = namespace(s, publishRate={"publishThrottlingRateInMsg": 2, "publishThrottlingRateInByte": -1})
    topic = f"persistent://{ns}/t"
    s.lookup(topic)
    published(s, topic, 1)
    s.note("held", stats(s, topic)["publishRateLimitedTimes"] > 0)
    published(s, topic, 5, first=1)
    s.note("held", stats(s, topic)["publishRateLimitedTimes"] > 0)


@scenario
def sizes_of_a_topic_that_ends_after_a_load(s):
    """Before and after the end, without new messages."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, 10, quietly=True)
    ids = published(s, topic, 6)
    read(c, 6)
    ack(c, ids[3], kind="Cumulative")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    for what in ("loaded", "terminated"):
        figures = stats(s, topic)
        s.note(what, [figures["backlogSize"], figures["storageSize"], figures["subscriptions"]["sub"]["backlogSize"]])
        s.http("POST", rest(topic, "/terminate"), quietly=True)


@scenario
def deletion_of_the_subscription_of_compaction(s):
    topic = s.topic()
    published(s, topic, 5, partition_key="k")
    compact(s, topic)
    counted(s, topic, "compacted")
    s.http("DELETE", rest(topic, "/subscription/__compaction"))
    counted(s, topic, "deleted")
    c = s.connect()
    c.subscribe(topic, "s", 1, permits=10, initialPosition="Earliest", quietly=True)
    read(c, 5)
    counted(s, topic, "read")


@scenario
def properties_of_a_subscription_of_several_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    for i, properties in enumerate(({"c": "0"}, {"a": "1", "b": "1"}, {"a": "2"})):
        s.lookup(f"{topic}-partition-{i}")
        body = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "properties": properties}
        s.http("PUT", rest(f"{topic}-partition-{i}", "/subscription/s"), body, quietly=True)
    found = s.http("GET", rest(topic, "/partitioned-stats?perPartition=true"), quietly=True)[1]
    s.note("all", found["subscriptions"]["s"]["subscriptionProperties"])
    each = [found["partitions"][name]["subscriptions"]["s"] for name in sorted(found["partitions"])]
    s.note("each", [row["subscriptionProperties"] for row in each])
