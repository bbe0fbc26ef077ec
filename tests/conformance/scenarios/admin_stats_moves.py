"""Statistics of subscriptions that were deleted, read by compaction or added up over partitions, and waiting reads."""

from harness.steps import EARLIEST, compact, drained, published, rest, stats
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
