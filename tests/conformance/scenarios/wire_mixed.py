"""Combinations that single areas leave out: unknown places, access modes with epochs, limits by type, batch acks."""

import time

from harness.steps import (
    ack,
    backlog,
    drained,
    namespace,
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


def redeliver(c, *ids, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids), **more)


@scenario
def clients_of_unknown_places(s):
    c = s.connect()
    for i, place in enumerate((f"public/{s.tag}", f"{s.tag}/default")):
        for domain in "persistent", "non-persistent":
            topic = f"{domain}://{place}/t"
            c.ask("LOOKUP", topic=topic)
            c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=i == 0)
            c.ask("GET_SCHEMA", topic=topic)
            if domain == "persistent":
                c.producer(topic, 1)
                c.subscribe(topic, "sub", 1)


@scenario
def fencing_with_an_old_epoch(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive", topic_epoch=7)
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", topic_epoch=6)
    b.producer(topic, 1, producer_name="b", producer_access_mode="ExclusiveWithFencing", topic_epoch=9)
    b.publish(1, 0)
    b.recv()


@scenario
def waiting_with_an_epoch(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="WaitForExclusive", topic_epoch=3)
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive", topic_epoch=2)
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.recv(3)
    b.none()


@scenario
def waiting_when_the_holder_is_fenced(s):
    a, b, c, topic = s.connect(), s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c.producer(topic, 1, producer_name="f", producer_access_mode="ExclusiveWithFencing")
    b.producer(topic, 1, producer_name="w", producer_access_mode="WaitForExclusive")
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.none()
    c.close()
    b.recv()


@scenario
def shared_producers_after_an_exclusive_one_left(s):
    a, b, topic = s.connect(), s.connect(), s.topic()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    a.close()
    time.sleep(0.3)
    b.producer(topic, 1, producer_name="b")
    b.producer(topic, 2, producer_name="c")
    b.producer(topic, 3, producer_name="d", producer_access_mode="Exclusive")


@scenario
def unacked_limits_leave_exclusive_alone(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=2, maxUnackedMessagesPerSubscription=3))
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published(s, topic, 6)
    s.note("came", texts(drained(c)))


@scenario
def unacked_limit_and_key_shared(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=3))
    c = s.connect()
    c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name="n", quietly=True)
    ids = published(s, topic, 6)
    s.note("came", texts(drained(c)))
    ack(c, *ids[:2])
    s.note("then", texts(drained(c)))


@scenario
def unacked_limit_switched_off(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=0, maxUnackedMessagesPerSubscription=0))
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    published(s, topic, 20)
    s.note("came", len(drained(c)))


@scenario
def batch_acks_on_exclusive(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d"])
    read(c, 2)
    ack(c, ids[0] | dict(ack_set=[0b010], batch_size=3))
    redeliver(c)
    c.recv()
    c.recv()
    ack(c, ids[0] | dict(ack_set=[0], batch_size=3))
    redeliver(c)
    c.recv()
    c.none()
    s.note("backlog", backlog(s, topic))


@scenario
def permits_of_partly_acked_batches_on_exclusive(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=3, quietly=True)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    read(c, 1)
    ack(c, ids[0] | dict(ack_set=[0b100], batch_size=3))
    redeliver(c)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=1)
    s.note("came", [f.command.message_id.entryId for f in drained(c)])
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def redelivery_epoch_of_failover(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, subType="Failover", consumer_name="n", consumer_epoch=1, quietly=True)
    c.recv()
    published(s, topic, 2)
    c.recv()
    c.recv()
    redeliver(c, consumer_epoch=2)
    c.recv()
    c.recv()


@scenario
def consumer_without_an_epoch_gets_one_by_redelivery(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published(s, topic, 1)
    c.recv()
    redeliver(c, consumer_epoch=1)
    c.recv()
    redeliver(c)
    c.recv()


@scenario
def redelivery_between_new_messages(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=3, quietly=True)
    published(s, topic, 5)
    s.note("first", texts(read(c, 3)))
    redeliver(c)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("then", told(drained(c)))


@scenario
def consumer_with_key_ranges_on_failover(s):
    topic = s.topic()
    c = s.connect()
    ranges = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=30000)])
    c.subscribe(topic, permits=10, subType="Failover", consumer_name="n", keySharedMeta=ranges, quietly=True)
    c.recv()
    for i, key in enumerate(("k1", "k2", "key1", "key01")):
        published(s, topic, [key.encode()], i, partition_key=key)
    s.note("came", texts(drained(c)))


@scenario
def sticky_range_is_free_when_its_owner_leaves(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    ranges = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=65535)])
    sticky = dict(subType="Key_Shared", keySharedMeta=ranges)
    a.subscribe(topic, permits=10, **sticky)
    published(s, topic, 3, partition_key="k")
    read(a, 3)
    b.subscribe(topic, **sticky)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b.subscribe(topic, permits=10, **sticky)
    s.note("came", told(drained(b)))


@scenario
def key_shared_mode_changes_when_nobody_is_connected(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, subType="Key_Shared", keySharedMeta=dict(keySharedMode="AUTO_SPLIT"))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    ranges = dict(keySharedMode="STICKY", hashRanges=[dict(start=0, end=65535)])
    c.subscribe(topic, "sub", 1, subType="Key_Shared", keySharedMeta=ranges)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "sub", 1, subType="Shared")


@scenario
def key_shared_rejoining_under_the_same_name(s):
    """It gets the same keys again."""
    topic = s.topic()
    keys = [f"key-{i}" for i in range(12)]
    connections = {}
    for name in ("left", "right"):
        connections[name] = c = s.connect(name)
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=name, quietly=True)
    for turn in range(2):
        for i, key in enumerate(keys):
            published(s, topic, [key.encode()], turn * 100 + i, partition_key=key)
        for name, c in connections.items():
            frames = drained(c, 0.4)
            s.note(name, sorted(texts(frames)))
            ack(c, *[f.message_id for f in frames])
        if turn == 0:
            connections["right"].ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
            more = dict(subType="Key_Shared", consumer_name="right", quietly=True)
            connections["right"].subscribe(topic, permits=100, **more)


@scenario
def key_shared_newcomer_of_three(s):
    topic = s.topic()
    keys = [f"key-{i}" for i in range(20)]
    connections = []
    for name in ("a", "b", "c", "d"):
        c = s.connect(name)
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=name, quietly=True)
        connections.append(c)
        for i, key in enumerate(keys):
            published(s, topic, [key.encode()], len(connections) * 100 + i, partition_key=key)
        for x in connections:
            frames = drained(x, 0.4)
            s.note(f"{x.name} of {len(connections)}", sorted(texts(frames)))
            ack(x, *[f.message_id for f in frames])


@scenario
def names_of_consumers_decide_on_a_partition(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    a, b = s.connect("a"), s.connect("b")
    for c in (a, b):
        for i in range(2):
            more = dict(subType="Failover", consumer_name=c.name, permits=10, quietly=True)
            c.subscribe(f"{topic}-partition-{i}", "sub", i, **more)
    time.sleep(2.5)
    for i in range(2):
        published(s, f"{topic}-partition-{i}", [b"%d" % i])
    for c in (a, b):
        s.note(c.name, texts(drained(c)))


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
def closing_from_both_sides_at_once(s):
    """The client closes while the broker does: an answer comes, the order is free."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    c.subscribe(topic, "sub", 1, quietly=True)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.send("CLOSE_PRODUCER", producer_id=1, request_id=1)
    c.send("CLOSE_CONSUMER", consumer_id=1, request_id=2)
    c.recv_sorted(4)
    c.none()


@scenario
def partitions_have_subscriptions_of_their_own(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    c.subscribe(topic + "-partition-0", "a", 1)
    c.subscribe(topic + "-partition-1", "b", 2)
    for i in range(2):
        s.http("GET", rest(f"{topic}-partition-{i}", "/subscriptions"), keep=True)
    status, names = s.http("GET", rest(topic, "/subscriptions"), quietly=True)
    s.note("of the topic", sorted(names))
