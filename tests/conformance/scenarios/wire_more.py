"""Second looks: seeks with batches and types, statistics after redelivery, REST steps between reads."""

import time

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    drained,
    namespace,
    now_ms,
    published,
    published_batches,
    read,
    rest,
    stats,
    texts,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def redeliver(c, *ids):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids))


@scenario
def seek_inside_a_batch_on_shared(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    read(c, 2)
    c.ask("SEEK", consumer_id=1, message_id=ids[0] | dict(ack_set=[0b100], batch_index=2, batch_size=3))
    c.subscribe(topic, permits=100, **SHARED)
    c.recv()
    c.recv()
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def seek_forgets_partial_acks(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b", b"c"])
    read(c, 1)
    ack(c, ids[0] | dict(ack_set=[0b110], batch_size=3))
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.subscribe(topic, permits=100, **SHARED)
    c.recv()


@scenario
def seek_by_time_between_batches(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published_batches(s, topic, [b"a", b"b"])
    time.sleep(0.1)
    middle = now_ms()
    time.sleep(0.1)
    published_batches(s, topic, [b"c", b"d"])
    read(c, 2)
    keep, s.lines = s.lines, []
    c.ask("SEEK", quietly=True, consumer_id=1, message_publish_time=middle)
    s.lines = keep
    c.subscribe(topic, permits=100, quietly=True)
    s.note("entries", [f.command.message_id.entryId for f in drained(c)])


@scenario
def seek_of_key_shared(s):
    topic = s.topic()
    a, b = s.connect("left"), s.connect("right")
    for c in (a, b):
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=c.name, quietly=True)
    ids = [published(s, topic, [b"key-%d" % i], i, partition_key=f"key-{i}")[0] for i in range(6)]
    drained(a), drained(b)
    a.ask("SEEK", consumer_id=1, message_id=ids[2])
    b.recv()
    for c in (a, b):
        c.subscribe(topic, permits=0, subType="Key_Shared", consumer_name=c.name, quietly=True)
    for c in (a, b):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=100)
    for c in (a, b):
        s.note(c.name, told(drained(c)))


@scenario
def statistics_after_redelivery(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 4)
    read(c, 4)
    c.ask("CONSUMER_STATS", consumer_id=1)
    redeliver(c, ids[0], ids[1])
    read(c, 2)
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0])
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def expiry_up_to_a_position(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    ids = published(s, topic, 4)
    body = ids[1] | dict(partitionIndex=-1, batchIndex=-1)
    s.http("POST", rest(topic, "/subscription/sub/expireMessages"), body, quietly=True)
    s.eventually("expired", lambda: backlog(s, topic)["sub"] == 2)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c)))


@scenario
def skip_over_holes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=6, **SHARED)
    ids = published(s, topic, 6)
    read(c, 6)
    ack(c, ids[1], ids[2])
    s.http("POST", rest(topic, "/subscription/sub/skip/2"), quietly=True)
    s.note("backlog", backlog(s, topic))
    redeliver(c)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", told(drained(c)))


@scenario
def clear_backlog_of_a_namespace(s):
    ns = namespace(s)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "a", 1, quietly=True)
    c.subscribe(topic, "b", 2, quietly=True)
    published(s, topic, 3)
    s.http("POST", f"/admin/v2/namespaces/{ns}/clearBacklog")
    s.note("backlog", backlog(s, topic))
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.none()


@scenario
def peeking_takes_nothing_away(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 2)
    s.http("GET", rest(topic, "/subscription/sub/position/1"))
    s.note("backlog", backlog(s, topic))
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", told(drained(c)))


@scenario
def priority_levels_of_key_shared(s):
    """They do not matter: the key decides."""
    topic = s.topic()
    for i, name in enumerate(("left", "right")):
        c = s.connect(name)
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=name, priority_level=i, quietly=True)
    for i in range(12):
        published(s, topic, [b"key-%d" % i], i, partition_key=f"key-{i}")
    for c in s.connections:
        if c.name in {"left", "right"}:
            s.note(c.name, sorted(texts(drained(c))))


@scenario
def priority_levels_with_equal_ones(s):
    """Two of the best level share, the third waits."""
    topic = s.topic()
    a, b, c = s.connect(), s.connect(), s.connect()
    for x, level in ((a, 0), (b, 0), (c, 1)):
        x.subscribe(topic, permits=2, priority_level=level, **SHARED)
    for i in range(6):
        published(s, topic, 1, i)
        time.sleep(0.05)
    s.note("each", [len(drained(x, 0.3)) for x in (a, b, c)])


@scenario
def negative_and_large_priority_levels(s):
    topic = s.topic()
    a, b, c = s.connect(), s.connect(), s.connect()
    for x, level in ((a, 2**31 - 1), (b, -5), (c, 0)):
        x.subscribe(topic, permits=100, priority_level=level, **SHARED)
    for i in range(6):
        published(s, topic, 1, i)
        time.sleep(0.05)
    counts = [len(drained(x, 0.3)) for x in (a, b, c)]
    s.note("below zero is zero: the two share", [counts[0], sum(counts), min(counts[1:]) > 0])


@scenario
def last_message_id_of_several_subscriptions(s):
    topic = s.topic()
    c = s.connect()
    for i, kind in enumerate(("Exclusive", "Shared", "Key_Shared")):
        c.subscribe(topic, kind, i, subType=kind, permits=10, quietly=True)
    ids = published(s, topic, 3)
    drained(c)
    for i in range(3):
        ack(c, ids[i], consumer_id=i)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=i)


@scenario
def mark_delete_jumps_over_holes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 5)
    read(c, 5)
    for i in (1, 2, 4, 0, 3):
        ack(c, ids[i])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def latest_subscription_between_publishes(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    published(s, topic, 2, 2)
    s.note("came", texts(drained(c)))
    d = s.connect()
    d.subscribe(topic, "reader", durable=False, start_message_id=LATEST, permits=10, quietly=True)
    published(s, topic, 1, 4)
    s.note("reader", texts(drained(d)))


@scenario
def subscription_without_consumers_keeps_its_backlog(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    published(s, topic, 3)
    s.note("backlog", backlog(s, topic))
    s.note("type", stats(s, topic)["subscriptions"]["sub"].get("type"))
    c.subscribe(topic, permits=10, **SHARED)
    s.note("came", texts(drained(c)))


@scenario
def redelivery_after_a_cumulative_ack_in_the_middle(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published(s, topic, 5)
    read(c, 5)
    ack(c, ids[3])
    ack(c, ids[1], kind="Cumulative")
    redeliver(c)
    s.note("came", told(drained(c)))
    ack(c, ids[4], kind="Cumulative")
    redeliver(c)
    c.none()


@scenario
def individual_acks_on_failover(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, subType="Failover", consumer_name="n", quietly=True)
    c.recv_quietly()
    ids = published(s, topic, 4)
    read(c, 4)
    ack(c, ids[2], ids[0])
    redeliver(c)
    s.note("came", told(drained(c)))
