"""Shared subscriptions: how batches and messages are divided, and the effect of consumers that come, go or stall."""

import time

from harness.steps import (
    ack,
    backlog,
    batch,
    drained,
    namespace,
    published,
    published_batches,
    read,
    setup_connection,
    stats,
    texts,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def join(s, topic, name, permits=100, **more):
    c = s.connect(name)
    c.subscribe(topic, permits=permits, **(SHARED | more))
    return c


def redeliver(c, *ids, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids), **more)


def entries(c, seconds=0.5):
    return [f.command.message_id.entryId for f in drained(c, seconds)]


@scenario
def shared_permits_and_batches_of_ten(s):
    """The messages that follow each FLOW when all entries are batches of ten."""
    topic = s.topic()
    c = join(s, topic, "c", permits=0)
    published_batches(s, topic, *[[b"x"] * 10] * 10)
    counts = []
    for permits in (10, 15, 5, 1, 9, 50):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=permits)
        counts.append(len(entries(c, 0.4)))
    s.note("entries for each FLOW", counts)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def key_shared_permits_and_batches_of_ten(s):
    topic = s.topic()
    c = join(s, topic, "c", permits=0, subType="Key_Shared")
    published_batches(s, topic, *[[b"x"] * 10] * 10, partition_key="k")
    counts = []
    for permits in (10, 15, 5, 1, 9, 50):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=permits)
        counts.append(len(entries(c, 0.4)))
    s.note("entries for each FLOW", counts)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def failover_permits_and_batches_of_ten(s):
    topic = s.topic()
    c = join(s, topic, "c", permits=0, subType="Failover")
    c.recv_quietly(3)
    published_batches(s, topic, *[[b"x"] * 10] * 10)
    counts = []
    for permits in (1, 1, 8, 10, 2, 200):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=permits)
        counts.append(len(entries(c, 0.4)))
    s.note("entries for each FLOW", counts)


@scenario
def exclusive_permits_and_mixed_entries(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published_batches(s, topic, [b"a"], [b"b"] * 5, [b"c"], [b"d"] * 3, [b"e"], [b"f"])
    counts = []
    for permits in (1, 2, 3, 1, 1, 1, 5):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=permits)
        counts.append(entries(c, 0.4))
    s.note("entries for each FLOW", counts)


@scenario
def single_messages_go_round(s):
    """Published one after another they go to the consumers in turn."""
    topic = s.topic()
    connections = [join(s, topic, f"c{i}") for i in range(3)]
    for i in range(9):
        published(s, topic, 1, i)
        time.sleep(0.05)
    got = [entries(c) for c in connections]
    s.note("each has three", sorted(len(x) for x in got))
    s.note("all", sorted(got[0] + got[1] + got[2]) == list(range(9)))


@scenario
def backlog_is_dealt_in_rounds_of_twenty(s):
    """A read of a backlog is divided by at most 20 entries for each consumer in turn."""
    topic = s.topic()
    a = join(s, topic, "a", permits=0)
    published(s, topic, 100)
    b = join(s, topic, "b", permits=0)
    a.send("FLOW", quietly=True, consumer_id=1, messagePermits=30)
    s.note("a", len(entries(a)))
    b.send("FLOW", quietly=True, consumer_id=1, messagePermits=30)
    s.note("b", len(entries(b)))
    s.note("a", len(entries(a, 0.2)))


@scenario
def shared_consumer_with_few_permits_and_one_with_many(s):
    topic = s.topic()
    a, b = join(s, topic, "few", permits=2), join(s, topic, "many", permits=100)
    published(s, topic, 20)
    few, many = entries(a), entries(b)
    s.note("few", len(few))
    s.note("many", len(many))
    s.note("once", sorted(few + many) == list(range(20)))


@scenario
def shared_order_for_one_consumer(s):
    topic = s.topic()
    c = join(s, topic, "c", permits=7)
    published(s, topic, 30)
    for _ in range(5):
        s.note("entries", entries(c, 0.4))
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=7)


@scenario
def redelivered_come_before_new_ones(s):
    topic = s.topic()
    c = join(s, topic, "c", permits=3)
    ids = published(s, topic, 6)
    read(c, 3)
    redeliver(c, ids[2], ids[0])
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=4)
    s.note("came", told(drained(c)))


@scenario
def redelivered_twice_before_it_can_be_sent(s):
    topic = s.topic()
    c = join(s, topic, "c", permits=1)
    ids = published(s, topic, 1)
    read(c, 1)
    redeliver(c, ids[0])
    redeliver(c, ids[0])
    c.send("FLOW", consumer_id=1, messagePermits=5)
    s.note("came", told(drained(c)))


@scenario
def ack_of_what_waits_for_redelivery(s):
    topic = s.topic()
    c = join(s, topic, "c", permits=2)
    ids = published(s, topic, 2)
    read(c, 2)
    redeliver(c)
    ack(c, ids[0])
    c.send("FLOW", consumer_id=1, messagePermits=5)
    s.note("came", told(drained(c)))
    s.note("backlog", backlog(s, topic))


@scenario
def consumer_that_stalls_keeps_what_it_has(s):
    topic = s.topic()
    a, b = join(s, topic, "stalled", permits=3), join(s, topic, "quick", permits=0)
    published(s, topic, 3)
    s.note("stalled", entries(a))
    b.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
    published(s, topic, 3, 3)
    s.note("quick", entries(b))
    a.close()
    s.note("quick", told(drained(b)))


@scenario
def unacked_of_a_lost_connection_come_in_order(s):
    topic = s.topic()
    a = join(s, topic, "a")
    ids = published(s, topic, 6)
    read(a, 6)
    ack(a, ids[1], ids[4])
    b = join(s, topic, "b", permits=0)
    a.close()
    time.sleep(0.3)
    b.send("FLOW", quietly=True, consumer_id=1, messagePermits=3)
    s.note("first", told(drained(b, 0.4)))
    b.send("FLOW", quietly=True, consumer_id=1, messagePermits=3)
    s.note("then", told(drained(b, 0.4)))


@scenario
def consumers_of_one_connection_share(s):
    topic = s.topic()
    c = s.connect()
    for consumer_id in (1, 2):
        c.subscribe(topic, "sub", consumer_id, permits=10, **SHARED)
    for i in range(6):
        published(s, topic, 1, i)
        time.sleep(0.05)
    got = [f.command.consumer_id for f in drained(c)]
    s.note("each", [got.count(1), got.count(2)])
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    s.note("handed over", [[f.command.consumer_id, f.command.redelivery_count] for f in drained(c)])


@scenario
def unacked_limit_counts_messages_of_batches(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=10))
    c = join(s, topic, "c")
    ids = published_batches(s, topic, *[[b"x"] * 4] * 5)
    s.note("entries", entries(c))
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0])
    s.note("after one", entries(c))
    ack(c, ids[1])
    s.note("after two", entries(c))


@scenario
def blocked_consumer_and_redelivery(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=3))
    c = join(s, topic, "c")
    published(s, topic, 6)
    s.note("first", told(drained(c)))
    redeliver(c)
    s.note("again", told(drained(c)))
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def blocked_consumer_beside_a_free_one(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=3))
    a, b = join(s, topic, "a"), join(s, topic, "b", permits=0)
    published(s, topic, 10)
    s.note("a", entries(a))
    b.send("FLOW", quietly=True, consumer_id=1, messagePermits=2)
    s.note("b", entries(b))
    b.ask("CONSUMER_STATS", consumer_id=1)
    a.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def partly_acked_batches_count_less(s):
    topic = s.topic()
    c = join(s, topic, "c")
    ids = published_batches(s, topic, [b"a"] * 4, [b"b"] * 4)
    read(c, 2)
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0] | dict(ack_set=[0b0011], batch_size=4))
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0] | dict(ack_set=[0b0001], batch_size=4))
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0])
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def chunks_on_a_shared_subscription(s):
    topic = s.topic()
    c = join(s, topic, "c")
    p = setup_connection(s)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    for i in range(3):
        more = dict(uuid="p-0", chunk_id=i, num_chunks_from_msg=3, total_chunk_msg_size=3)
        p.publish(1, 0, b"%d" % i, command=dict(is_chunk=True), **more)
        p.recv()
    s.lines = keep
    frames = drained(c)
    s.note("chunks", [[f.metadata.chunk_id, f.metadata.uuid, f.payload.decode()] for f in frames])
    ack(c, *[f.message_id for f in frames])
    s.note("backlog", backlog(s, topic))


@scenario
def frames_for_a_consumer_the_broker_closed(s):
    """FLOW, ACK and redelivery for it are ignored, a request is answered by an error."""
    topic = s.topic()
    c = join(s, topic, "c")
    ids = published(s, topic, 2)
    read(c, 2)
    s.http("PUT", "/admin/v2/" + topic.replace("://", "/") + "/unload", quietly=True)
    c.recv()
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]], request_id=7)
    redeliver(c)
    c.none()
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def subscription_stats_of_shared_consumers(s):
    topic = s.topic()
    a, b = join(s, topic, "a", permits=5), join(s, topic, "b", permits=0)
    published(s, topic, 8)
    ids = [f.message_id for f in read(a, 5)]
    ack(a, ids[0], ids[1])
    sub = stats(s, topic)["subscriptions"]["sub"]
    s.note("subscription", {k: sub[k] for k in ("msgBacklog", "unackedMessages", "msgOutCounter", "type")})
    told_of = [[x["availablePermits"], x["unackedMessages"], x["msgOutCounter"]] for x in sub["consumers"]]
    s.note("consumers", sorted(told_of))
    s.note("b", texts(drained(b, 0.2)))


@scenario
def batch_in_a_shared_subscription_goes_to_one(s):
    topic = s.topic()
    a, b = join(s, topic, "a"), join(s, topic, "b")
    p = setup_connection(s)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    p.publish(1, 0, batch(*[b"x"] * 30), command=dict(num_messages=30), num_messages_in_batch=30)
    p.recv()
    s.lines = keep
    s.note("entries", sorted([len(entries(a)), len(entries(b))]))
