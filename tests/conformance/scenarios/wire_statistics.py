"""Statistics right after each step that moves them, by consumer type."""

import time

from harness.joining import TYPES, join
from harness.steps import EARLIEST, ack, drained, namespace, published, published_batches, read, rest, stats
from transcript import scenario

SUB = (
    "msgBacklog",
    "msgBacklogNoDelayed",
    "unackedMessages",
    "msgOutCounter",
    "type",
    "activeConsumerName",
    "msgInReplay",
    "msgDelayed",
    "filterProcessedMsgCount",
    "filterAcceptedMsgCount",
    "filterRejectedMsgCount",
    "filterRescheduledMsgCount",
    "blockedSubscriptionOnUnackedMsgs",
    "lastAckedTimestamp",
    "lastConsumedTimestamp",
    "lastConsumedFlowTimestamp",
    "lastExpireTimestamp",
    "msgExpired",
    "totalMsgExpired",
    "chunkedMessageRate",
    "earliestMsgPublishTimeInBacklog",
    "backlogSize",
    "isDurable",
    "isReplicated",
    "allowOutOfOrderDelivery",
    "keySharedMode",
    "consumersAfterMarkDeletePosition",
    "drainingHashesCount",
    "drainingHashesClearedTotal",
    "drainingHashesUnackedMessages",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
    "subscriptionProperties",
    "dispatchThrottledMsgEventsBySubscriptionLimit",
    "dispatchThrottledBytesEventsByTopicLimit",
    "bytesOutCounter",
    "replicatedSubscriptionSnapshotCache",
)
CON = (
    "availablePermits",
    "unackedMessages",
    "msgOutCounter",
    "bytesOutCounter",
    "avgMessagesPerEntry",
    "blockedConsumerOnUnackedMsgs",
    "consumerName",
    "lastAckedTimestamp",
    "lastConsumedTimestamp",
    "lastConsumedFlowTimestamp",
    "firstMessagesSentTimestamp",
    "firstConsumedFlowTimestamp",
    "keyHashRanges",
    "metadata",
    "drainingHashesCount",
    "drainingHashesClearedTotal",
    "drainingHashesUnackedMessages",
    "readPositionWhenJoining",
    "appId",
    "clientVersion",
    "keyHashRangeArrays",
    "drainingHashes",
)
TOP = (
    "msgInCounter",
    "bytesInCounter",
    "msgOutCounter",
    "bytesOutCounter",
    "storageSize",
    "backlogSize",
    "waitingPublishers",
    "publishRateLimitedTimes",
    "earliestMsgPublishTimeInBacklogs",
    "offloadedStorageSize",
    "lastOffloadLedgerId",
    "nonContiguousDeletedMessagesRanges",
    "delayedMessageIndexSizeInBytes",
    "ongoingTxnCount",
    "abortedTxnCount",
    "committedTxnCount",
    "deduplicationStatus",
    "msgChunkPublished",
)


def some(value):
    """Times and rates only as zero or not."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return "T" if value and (isinstance(value, float) or value > 10**9) else value


def show(s, topic, query=""):
    b = s.http("GET", rest(topic, "/stats" + query), quietly=True)[1]
    s.note("topic", {k: some(b[k]) for k in TOP if k in b})
    for name, sub in sorted(b["subscriptions"].items()):
        s.note(name, {k: some(sub[k]) for k in SUB if k in sub})
        for c in sorted(sub["consumers"], key=lambda c: c["consumerName"]):
            s.note("consumer", {k: some(c[k]) for k in CON if k in c})


def stats_by_kind(s, kind):
    topic = s.topic()
    c = s.connect()
    published(s, topic, 2)
    c.subscribe(topic, permits=0, quietly=True, subType=kind, consumer_name="c", initialPosition="Earliest")
    if kind == "Failover":
        c.recv()
    show(s, topic, "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true")
    c.send("FLOW", consumer_id=1, messagePermits=10)
    ids = [f.message_id for f in drained(c, 0.4)]
    show(s, topic, "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true")
    ack(c, *ids[1:])
    show(s, topic, "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true")
    published_batches(s, topic, [b"a", b"b", b"c"])
    more = [f.message_id for f in drained(c, 0.4)]
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    drained(c, 0.4)
    show(s, topic)
    ack(c, more[0] | {"ack_set": [6], "batch_size": 3})
    show(s, topic)
    ack(c, more[0], kind="Individual" if "hared" in kind else "Cumulative")
    show(s, topic, "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true")
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    show(s, topic)


@scenario
def stats_along_an_exclusive_consumer(s):
    stats_by_kind(s, "Exclusive")


@scenario
def stats_along_a_shared_consumer(s):
    stats_by_kind(s, "Shared")


@scenario
def stats_along_a_failover_consumer(s):
    stats_by_kind(s, "Failover")


@scenario
def stats_along_a_reader(s):
    topic = s.topic()
    published(s, topic, 3)
    c = s.connect()
    c.subscribe(topic, "r", quietly=True, durable=False, start_message_id=EARLIEST, consumer_name="c", permits=2)
    ids = [f.message_id for f in drained(c, 0.4)]
    show(s, topic)
    ack(c, ids[0])
    show(s, topic)
    ack(c, ids[1], kind="Cumulative")
    show(s, topic, "?getPreciseBacklog=true&subscriptionBacklogSize=true&getEarliestTimeInBacklog=true")


@scenario
def stats_along_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, quietly=True, subType="Shared", consumer_name="c", permits=2)
    for i in range(4):
        c.publish(1, i)
        c.recv_quietly()
    drained(c, 0.4)
    show(s, topic)
    b = stats(s, topic)
    s.note(
        "drops",
        [
            b.get("msgDropRate"),
            [x.get("msgDropRate") for x in b["publishers"]],
            b["subscriptions"]["sub"].get("msgDropRate"),
            sorted(b),
            sorted(b["subscriptions"]["sub"]),
            sorted(b["publishers"][0]),
        ],
    )


def kinds(value):
    """The type of each number and text: whole numbers and others look different in JSON."""
    if isinstance(value, dict):
        return {k: kinds(v) for k, v in value.items() if k != "consumers"}
    return [kinds(v) for v in value] if isinstance(value, list) else type(value).__name__


@scenario
def kinds_of_numbers_in_stats(s):
    for domain in ("persistent", "non-persistent"):
        topic, c = s.topic("t", domain=domain), s.connect()
        s.http("PUT", rest(topic), quietly=True)
        s.note("nobody", kinds(stats(s, topic)))
        c.subscribe(topic, quietly=True, subType="Shared", consumer_name="c")
        c.producer(topic, 1, quietly=True, producer_name="p")
        s.note("both", kinds(stats(s, topic)))
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        s.note("left", kinds(stats(s, topic)))
        part = s.topic("p", domain=domain)
        s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
        s.note("partitions", kinds(s.http("GET", rest(part, "/partitioned-stats?perPartition=false"), quietly=True)[1]))
        s.lookup(part + "-partition-0")
        c.subscribe(part + "-partition-0", "sub", 2, quietly=True, subType="Shared", consumer_name="c")
        c.producer(part + "-partition-0", 2, quietly=True, producer_name="p")
        s.note(
            "partitions in use",
            kinds(s.http("GET", rest(part, "/partitioned-stats?perPartition=false"), quietly=True)[1]),
        )
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=2)
        s.note(
            "partitions left",
            kinds(s.http("GET", rest(part, "/partitioned-stats?perPartition=false"), quietly=True)[1]),
        )


@scenario
def producer_and_consumer_in_the_stats(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 7, producer_name="me", metadata=[dict(key="k", value="v")])
    c.subscribe(topic, "sub", 8, consumer_name="you", metadata=[dict(key="a", value="b")])
    told_of = stats(s, topic)
    publisher, consumer = told_of["publishers"][0], told_of["subscriptions"]["sub"]["consumers"][0]
    s.note("publisher", {k: publisher.get(k) for k in ("producerName", "producerId", "metadata", "accessMode")})
    s.note("consumer", {k: consumer.get(k) for k in ("consumerName", "metadata")})


@scenario
def stats_count_what_consumers_see(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published(s, topic, 3)
    published_batches(s, topic, [b"a", b"b"])
    frames = read(c, 4)
    ack(c, frames[1].message_id, kind="Cumulative")
    told_of = stats(s, topic)
    s.note("topic", {k: told_of[k] for k in ("msgInCounter", "msgOutCounter")})
    sub = told_of["subscriptions"]["sub"]
    s.note("subscription", {k: sub[k] for k in ("msgBacklog", "msgOutCounter", "type", "unackedMessages")})


@scenario
def sticky_and_automatic_split_in_the_stats(s):
    for domain in ("persistent", "non-persistent"):
        for i, meta in enumerate(
            (
                {"keySharedMode": "STICKY", "hashRanges": [{"start": 0, "end": 65535}]},
                {"keySharedMode": "AUTO_SPLIT"},
                None,
            )
        ):
            topic, c = s.topic(f"{domain}{i}", domain=domain), s.connect()
            more = {"keySharedMeta": meta} if meta else {}
            c.subscribe(topic, subType="Key_Shared", consumer_name="c", **more)
            keys = ("keySharedMode", "allowOutOfOrderDelivery", "type")
            body = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]
            s.note(
                "subscription",
                {k: body.get(k) for k in keys}
                | {"consumer": {k: body["consumers"][0].get(k) for k in ("keyHashRangeArrays", "keyHashRanges")}},
            )


@scenario
def questions_about_a_consumer_by_type(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        ids = published(s, topic, 3)
        c = join(s, topic, sub_type, permits=10)
        read(c, 3)
        c.ask("CONSUMER_STATS", consumer_id=1)
        ack(c, ids[0])
        c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def refused_messages_in_the_stats(s):
    """A SEND counts among the publishes of its topic unless its checksum, key or id is refused."""
    one = dict(txnid_least_bits=1, txnid_most_bits=2)
    refused = dict(
        checksum=(dict(bad_crc=True), b"x"),
        transaction=(dict(command=one), b"x"),
        transaction_of_four=(dict(command=one | dict(num_messages=4)), b"x"),
        id_of_its_own=(dict(command=dict(message_id=dict(ledgerId=3, entryId=4))), b"x"),
        large=(dict(command=dict(num_messages=4), num_messages_in_batch=4), b"x" * 200),
        plain=({}, b"x"),
    )
    for name, (fields, payload) in refused.items():
        topic = f"persistent://{namespace(s, name.replace('_', '-'))}/t"
        s.lookup(topic)
        s.http("PUT", rest(topic), quietly=True)
        if name == "large":
            s.http("POST", rest(topic, "/maxMessageSize"), 60, quietly=True)
            time.sleep(0.7)
        c = s.connect(name)
        c.producer(topic, 1, quietly=True, producer_name="p", encrypted=True)
        if name == "plain":
            path = topic.removeprefix("persistent://").removesuffix("/t")
            s.http("POST", f"/admin/v2/namespaces/{path}/encryptionRequired", True, quietly=True)
            time.sleep(0.7)
        c.publish(1, 0, payload, **fields)
        c.recv()
        found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]
        s.note(name, [found[key] for key in ("msgInCounter", "bytesInCounter")])


@scenario
def redelivery_is_a_flow_of_the_subscription(s):
    """A request for redelivery sets the time of the last flow of the subscription, and not of the consumer."""
    for domain in ("persistent", "non-persistent"):
        for kind in ("Exclusive", "Shared", "Key_Shared"):
            for which in ("all", "ids"):
                topic, c = s.topic(f"{kind}-{which}", domain=domain), s.connect(f"{domain} {kind} {which}")
                c.subscribe(topic, subType=kind, quietly=True)
                ids = dict(message_ids=[dict(ledgerId=1, entryId=1)]) if which == "ids" else {}
                c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, quietly=True, **ids)
                c.ask("CONSUMER_STATS", quietly=True, consumer_id=1)
                found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]
                flows = [found["lastConsumedFlowTimestamp"], found["consumers"][0]["lastConsumedFlowTimestamp"]]
                s.note(c.name, [flow > 0 for flow in flows])


def oldest(s, topic):
    found = s.http("GET", rest(topic), quietly=True)[1]
    return [found["oldestBacklogMessageAgeSeconds"] > 0, found.get("oldestBacklogMessageSubscriptionName")]


def in_a_closed_ledger(s, topic, messages):
    """Put the messages into a ledger that an unload closes, and a message behind them."""
    published(s, topic, messages)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    published(s, topic, 1, messages)


@scenario
def subscription_of_the_oldest_message_in_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    parts = [f"{topic}-partition-{i}" for i in range(2)]
    for part, name in zip(parts, "ab", strict=True):
        s.lookup(part)
        s.http("PUT", rest(part, f"/subscription/{name}"), quietly=True)
    for part in parts[::-1]:
        in_a_closed_ledger(s, part, 1)
        time.sleep(1.5)
    for part, name in zip(parts, "ab", strict=True):
        s.eventually(name, lambda part=part, name=name: oldest(s, part + "/stats") == [True, name])
    s.note("together", oldest(s, topic + "/partitioned-stats"))


@scenario
def waits_for_dispatch_rates(s):
    """Counted by the level of the rate and the kind of tokens."""
    for kind in ("Shared", "Exclusive"):
        for path, rate in (
            ("subscriptionDispatchRate", {"dispatchThrottlingRateInMsg": 2}),
            ("subscriptionDispatchRate", {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 10}),
            ("dispatchRate", {"dispatchThrottlingRateInMsg": 2}),
        ):
            topic = s.topic(f"{path}{len(rate)}{kind}")
            s.http("PUT", rest(topic), quietly=True)
            s.http("POST", rest(topic, "/" + path), rate | {"ratePeriodInSecond": 60}, quietly=True)
            time.sleep(0.3)
            c = s.connect()
            c.subscribe(topic, "sub", 1, 100, quietly=True, subType=kind)
            published(s, topic, 10)
            drained(c, 0.5)
            row = stats(s, topic)["subscriptions"]["sub"]
            s.note(kind, {key: value > 0 for key, value in row.items() if key.startswith("dispatchThrottled")})
