"""Evictions by backlog quotas: from several subscriptions, under consumers, with parts of batches, by size and by age."""

import time

from harness.consumers import by_types, join
from harness.figures import figures
from harness.quotas import CHECK_SECONDS, EVICT, WITHOUT, limit, limit_namespace, plain_topic, tried
from harness.steps import (
    EARLIEST,
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

SHARING = by_types("Shared", "Key_Shared")
QUEUES = by_types("Exclusive", "Failover", "Shared", "Key_Shared")


@scenario
def eviction_takes_the_slowest_first(s):
    topic = plain_topic(s)
    c = join(s, topic, "Shared", subscription="slow", consumer_name="n", permits=0)
    d = join(s, topic, "Exclusive", subscription="middle", consumer_name="m", permits=0)
    e = join(s, topic, "Exclusive", subscription="fast", consumer_name="o", permits=0)
    ids = published(s, topic, [bytes(80)] * 20)
    ack(d, ids[7], kind="Cumulative")
    ack(e, ids[18], kind="Cumulative")
    ack(c, *ids[2:5])
    limit_namespace(s, topic, EVICT, 1000)
    s.until(lambda: backlog(s, topic)["slow"] < 17, 6)
    time.sleep(3 * CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    for each in (c, d, e):
        each.send("FLOW", consumer_id=1, messagePermits=100)
        s.note("came", len(drained(each)))
    figures(s, topic, "end", WITHOUT)


@QUEUES
def eviction_under_a_consumer_with_messages(s, kind):
    """Evicted messages that a consumer still holds: its acks, its redelivery requests and its figures."""
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = join(s, topic, kind, permits=6, consumer_name="n")
    ids = published(s, topic, [b"%02d" % i * 20 for i in range(10)], partition_key="k")
    s.note("came", len(read(c, 6)))
    figures(s, topic, "before", WITHOUT)
    limit(s, ns, EVICT, 300)
    s.until(lambda: backlog(s, topic)["sub"] < 10, 6)
    time.sleep(CHECK_SECONDS)
    figures(s, topic, "evicted", WITHOUT)
    ack(c, ids[0])
    ack(c, ids[5])
    figures(s, topic, "acknowledged", WITHOUT)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came again", [[t[0][:2], t[1]] for t in told(drained(c))])
    figures(s, topic, "end", WITHOUT)


@SHARING
def eviction_with_holes_and_parts_of_batches(s, kind):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = join(s, topic, kind, consumer_name="n", permits=1000)
    ids = published_batches(s, topic, *[[b"%d" % i * 10] * 4 for i in range(10)])
    read(c, 10)
    for at in (1, 3, 4):
        ack(c, ids[at])
    for at in (0, 5, 8):
        ack(c, ids[at] | {"ack_set": [0b0101]})
    figures(s, topic, "before", WITHOUT)
    limit(s, ns, EVICT, 500)
    s.until(lambda: backlog(s, topic)["sub"] < 7, 6)
    time.sleep(CHECK_SECONDS)
    figures(s, topic, "evicted", WITHOUT)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=100)
    s.note("came", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c)])
    figures(s, topic, "end", WITHOUT)


@scenario
def eviction_of_a_single_large_entry(s):
    """The part to skip is rounded down, so a single entry stays."""
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    limit_namespace(s, topic, EVICT, 100)
    published(s, topic, [bytes(500)])
    time.sleep(2 * CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    published(s, topic, [bytes(500)], 1)
    time.sleep(2 * CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    tried(s.connect(), topic)


@scenario
def eviction_of_a_reader_and_a_subscription(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    ids = published(s, topic, [b"%02d" % i * 25 for i in range(10)])
    c, d = s.connect(), s.connect()
    c.subscribe(topic, "reader", durable=False, start_message_id=EARLIEST, permits=2, quietly=True)
    d.subscribe(topic, "sub", quietly=True, initialPosition="Earliest")
    ack(d, ids[3], kind="Cumulative")
    read(c, 2)
    s.note("before", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    limit(s, ns, EVICT, 350)
    s.until(lambda: stats(s, topic)["backlogSize"] <= 350, 6)
    time.sleep(CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    for each in (c, d):
        each.send("FLOW", consumer_id=1, messagePermits=100)
        s.note("came", [t[:2] for t in texts(drained(each))])


@scenario
def eviction_and_delayed_messages(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = join(s, topic, "Shared", consumer_name="n")
    ids = published(s, topic, [bytes(50)] * 4, deliver_at_time=now_ms(60000))
    published(s, topic, [b"now" * 20] * 4, 10)
    s.note("came", len(read(c, 4)))
    limit(s, ns, EVICT, 400)
    s.until(lambda: backlog(s, topic)["sub"] < 8, 6)
    time.sleep(CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    ack(c, *ids)
    s.note("acknowledged", [backlog(s, topic), stats(s, topic)["backlogSize"]])


@scenario
def eviction_of_a_terminated_topic(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = join(s, topic, "Exclusive", consumer_name="n", permits=0)
    published(s, topic, [bytes(50)] * 10)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    limit(s, ns, EVICT, 400)
    s.until(lambda: backlog(s, topic)["sub"] < 10, 6)
    time.sleep(CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    tried(s.connect(), topic)
    c.send("FLOW", consumer_id=1, messagePermits=100)
    s.note("came", len(drained(c)))


@scenario
def eviction_over_an_unload(s):
    ns = namespace(s)
    limit(s, ns, EVICT, 400)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    s.http("PUT", rest(topic, "/subscription/b"), quietly=True)
    for first in (0, 10, 20):
        published(s, topic, [bytes(50)] * 6, first)
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        s.lookup(topic)
    published(s, topic, [bytes(50)] * 2, 30)
    s.until(lambda: stats(s, topic)["backlogSize"] < 400, 6)
    time.sleep(CHECK_SECONDS)
    s.note("size", stats(s, topic)["backlogSize"] <= 400)
    c = s.connect()
    for at, name in enumerate(("a", "b")):
        c.subscribe(topic, name, at, permits=100, quietly=True, subType="Shared")
        s.note("same number", len(drained(c)) == backlog(s, topic)[name])


@scenario
def eviction_by_age_of_several_subscriptions(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = join(s, topic, "Shared", subscription="a", permits=0, consumer_name="n")
    d = join(s, topic, "Key_Shared", subscription="b", permits=4, consumer_name="m")
    first = published(s, topic, 5)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c, d = s.connect(), s.connect()
    c.subscribe(topic, "a", quietly=True, subType="Shared", consumer_name="n")
    d.subscribe(topic, "b", permits=4, quietly=True, subType="Key_Shared", consumer_name="m")
    published(s, topic, 3, 10)
    s.note("came", len(read(d, 4)))
    ack(c, *first[1:3])
    time.sleep(1.2)
    limit(s, ns, EVICT, seconds=1)
    s.eventually("evicted", lambda: backlog(s, topic) == {"a": 3, "b": 3}, 8)
    figures(s, topic, "evicted", (*WITHOUT, "backlogSize", "storageSize", "unackedMessages"))
    ack(d, first[0], first[4])
    for each in (c, d):
        each.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        each.send("FLOW", consumer_id=1, messagePermits=100)
        s.note("came", told(drained(each)))


@scenario
def eviction_beside_the_cursor_of_deduplication(s):
    ns = namespace(s, deduplication=True)
    limit(s, ns, EVICT, 300)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 8)
    s.until(lambda: backlog(s, topic)["a"] < 8, 6)
    time.sleep(CHECK_SECONDS)
    s.note("left", [backlog(s, topic), stats(s, topic)["backlogSize"] <= 300])
    published(s, topic, [bytes(50)] * 2)
    s.note("repeated", [backlog(s, topic)])
