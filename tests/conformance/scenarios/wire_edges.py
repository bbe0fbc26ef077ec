"""Leftovers: watcher updates, key hash ranges, readers with inclusive starts, last ids, errors of questions."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    backlog,
    drained,
    namespace,
    now_ms,
    published,
    published_batches,
    rest,
    stats,
    texts,
)
from transcript import scenario


@scenario
def seek_by_time_at_the_edges(s):
    topic = s.topic()
    c = s.connect("setup")
    c.producer(topic, 1, quietly=True, producer_name="p")
    times = []
    for i in range(4):
        times.append(now_ms())
        c.publish_all(1, [b"%d" % i], i)
        time.sleep(0.05)
    d = s.connect()
    for what in (0, 1, times[0] - 100000, times[1], times[2], now_ms(1000), now_ms(10**9), 2**63 - 1, 2**64 - 1):
        d.subscribe(topic, "s", quietly=True)
        f = d.ask("SEEK", quietly=True, consumer_id=1, message_publish_time=what)
        while d.recv_quietly(0.15):
            pass
        d.subscribe(topic, "s", quietly=True, permits=9)
        s.note("came", [f.type, texts(drained(d, 0.3))])
        d.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def last_ids_in_every_state(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "s", quietly=True)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published_batches(s, topic, [b"a", b"b", b"c"])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv_quietly()
    s.lookup(topic)
    c.subscribe(topic, "s", quietly=True)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published(s, topic, 1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    n = topic.replace("persistent", "non-persistent", 1)
    s.lookup(n)
    c.subscribe(n, "s", 2, quietly=True)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=2)


@scenario
def sticky_ranges_of_every_form(s):
    topic = s.topic()
    for i, ranges in enumerate(
        (
            [],
            [(0, 65535)],
            [(0, 65536)],
            [(-1, 5)],
            [(5, 1)],
            [(0, 10), (5, 20)],
            [(0, 10), (10, 20)],
            [(0, 10), (11, 20)],
            [(0, 0)],
            [(65535, 65535)],
            [(0, 10), (0, 10)],
            [(20, 30), (0, 10)],
        )
    ):
        c = s.connect(f"c{i}")
        c.subscribe(
            topic,
            f"s{i}",
            1,
            subType="Key_Shared",
            keySharedMeta={"keySharedMode": "STICKY", "hashRanges": [{"start": a, "end": b} for a, b in ranges]},
        )
        c.subscribe(
            topic,
            f"s{i}",
            2,
            subType="Key_Shared",
            keySharedMeta={"keySharedMode": "STICKY", "hashRanges": [{"start": 100, "end": 200}]},
        )
        c.subscribe(topic, f"s{i}", 3, subType="Key_Shared", keySharedMeta={"keySharedMode": "AUTO_SPLIT"})


@scenario
def readers_inside_batches(s):
    topic = s.topic()
    [a, b] = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    for i, start in enumerate(
        (
            a,
            a | {"batch_index": 0},
            a | {"batch_index": 1},
            a | {"batch_index": 2},
            a | {"batch_index": 3},
            a | {"batch_index": -1},
            b | {"batch_index": 1},
            b | {"batch_index": 1, "batch_size": 2},
            a | {"batch_index": 1, "ack_set": [0b100]},
        )
    ):
        for durable in (False, True):
            c = s.connect(f"{i}{durable}")
            c.subscribe(topic, f"r{i}{durable}", durable=durable, start_message_id=start, permits=20, quietly=True)
            s.note(f"{i} {durable}", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c, 0.2)])
            c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def replicated_flag_in_every_order(s):
    topic = s.topic()
    c = s.connect()
    for i, flag in enumerate((True, False, None)):
        for j, again in enumerate((True, False, None)):
            name = f"s{i}{j}"
            one = {} if flag is None else {"replicate_subscription_state": flag}
            two = {} if again is None else {"replicate_subscription_state": again}
            c.subscribe(topic, name, 10, quietly=True, **one)
            first = stats(s, topic)["subscriptions"][name]["isReplicated"]
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=10)
            c.subscribe(topic, name, 10, quietly=True, **two)
            s.note(name, [first, stats(s, topic)["subscriptions"][name]["isReplicated"]])
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=10)
            s.call("POST", rest(topic, f"/subscription/{name}/replicatedSubscriptionStatus"), False)
            s.call(
                "GET",
                rest(topic, f"/subscription/{name}/replicatedSubscriptionStatus"),
                keep=lambda b: list(b.values()),
            )


def shape(x):
    if isinstance(x, dict):
        return {k: shape(v) for k, v in x.items()}
    if isinstance(x, list):
        return [shape(v) for v in x[:2]]
    return x if isinstance(x, bool) else type(x).__name__


@scenario
def internal_stats_with_everything(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "s", quietly=True, subType="Shared", permits=20)
    c.subscribe(topic, "r", 2, quietly=True, durable=False, start_message_id=EARLIEST)
    ids = published(s, topic, 6)
    ack(c, ids[2], ids[4])
    for path in ("/internalStats", "/internal-info"):
        s.note(path, shape(s.http("GET", rest(topic, path), quietly=True)[1]))
    s.call(
        "GET",
        rest(topic, "/internalStats"),
        keep=[
            "entriesAddedCounter",
            "numberOfEntries",
            "totalSize",
            "currentLedgerEntries",
            "waitingCursorsCount",
            "pendingAddEntriesCount",
            "state",
            "schemaLedgers",
        ],
    )
    s.call(
        "GET",
        rest(topic, "/internalStats"),
        keep=lambda b: {
            k: [
                v["pendingReadOps"],
                v["waitingReadOp"],
                v["messagesConsumedCounter"],
                v["totalNonContiguousDeletedMessagesRange"],
                v["individuallyDeletedMessages"].count(".."),
                v["subscriptionHavePendingRead"],
                v["subscriptionHavePendingReplayRead"],
                v["numberOfEntriesSinceFirstNotAckedMessage"],
            ]
            for k, v in b["cursors"].items()
            if k == "s"
        },
    )


@scenario
def backlogs_analyzed_with_everything(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "s", quietly=True, subType="Shared", permits=20)
    ids = published(s, topic, 4)
    published(s, topic, [b"x"], 10, marker_type=10)
    [b] = published_batches(s, topic, [b"a", b"b", b"c"])
    ids += published(s, topic, 1, 20, deliver_at_time=now_ms(100000))
    ack(c, ids[1])
    ack(c, b | {"ack_set": [0b110]})

    def keep(x):
        return {k: v for k, v in x.items() if k == "entries" or "essages" in k}

    s.call("POST", rest(topic, "/subscription/s/analyzeBacklog"), keep=keep)
    for start in (ids[0], ids[3], ids[-1], {"ledgerId": -1, "entryId": -1}):
        st, x = s.http(
            "POST", rest(topic, "/subscription/s/analyzeBacklog"), start | {"partitionIndex": -1}, quietly=True
        )
        s.note("from", [st, keep(x)])


@scenario
def skips_and_expiries_over_holes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "s", quietly=True, subType="Shared", permits=20)
    ids = published(s, topic, 10)
    [b] = published_batches(s, topic, [b"a", b"b", b"c"])
    ack(c, ids[1], ids[4], ids[5])
    for n in (1, 2, 3, 100):
        s.call("POST", rest(topic, f"/subscription/s/skip/{n}"))
        s.note("backlog", backlog(s, topic))
    for n in ("0", "-1", "x", "99999999999"):
        s.call("POST", rest(topic, f"/subscription/s/skip/{n}"))
    for n in ("0", "-1", "x", "1"):
        s.call("POST", rest(topic, f"/subscription/s/expireMessages/{n}"))
        s.call("POST", rest(topic, f"/all_subscription/expireMessages/{n}"))
    s.call("POST", rest(topic, "/subscription/none/expireMessages/1"))
    s.call("POST", rest(topic, "/subscription/none/skip/1"))
    s.call("POST", rest(topic, "/subscription/none/skip_all"))


@scenario
def watchers_and_hashes_over_reconnects(s):
    ns = namespace(s)
    for n in ("a", "b", "c"):
        s.http("PUT", f"/admin/v2/persistent/{ns}/{n}", quietly=True)
    c = s.connect()
    f = c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=1, namespace=ns, topics_pattern=".*/[ab]")
    s.note("first", [f.type, len(f.command.topic)])
    s.http("PUT", f"/admin/v2/persistent/{ns}/d/partitions", 2, quietly=True)
    s.http("DELETE", f"/admin/v2/persistent/{ns}/a", quietly=True)
    g = c.recv_quietly(3)
    s.note(
        "update",
        g
        and [
            g.type,
            len(g.command.new_topics),
            len(g.command.deleted_topics),
            g.command.topics_hash != f.command.topics_hash,
        ],
    )
    d = s.connect()
    h = d.ask(
        "WATCH_TOPIC_LIST",
        quietly=True,
        watcher_id=1,
        namespace=ns,
        topics_pattern=".*/[ab]",
        topics_hash=g.command.topics_hash,
    )
    s.note("known", [h.type, len(h.command.topic), h.command.topics_hash == g.command.topics_hash])
    d.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    d.ask("WATCH_TOPIC_LIST_CLOSE", watcher_id=1)
    s.http("PUT", f"/admin/v2/persistent/{ns}/a", quietly=True)
    d.none(0.5)


@scenario
def permits_beyond_an_int32(s):
    """The sum of the permits turns negative."""
    for kind in ("Shared", "Key_Shared"):
        topic = s.topic(kind)
        published(s, topic, 2)
        c = s.connect(kind)
        c.subscribe(topic, subType=kind, initialPosition="Latest")
        for _ in range(2):
            c.send("FLOW", consumer_id=1, messagePermits=2**31 - 1)
        c.ask("CONSUMER_STATS", consumer_id=1)
        published(s, topic, 1, 2)
        c.none()
        c.send("FLOW", consumer_id=1, messagePermits=3)
        c.recv(2)
        c.ask("CONSUMER_STATS", consumer_id=1)
