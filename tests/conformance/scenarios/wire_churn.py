"""Clients that come back: reconnection, resending, unload and deletion under use, deduplication policies."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    avro,
    backlog,
    drained,
    namespace,
    published,
    published_batches,
    read,
    rest,
    texts,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


@scenario
def producer_comes_back_on_a_new_connection(s):
    """After the loss of the old connection: same name, higher epoch, no waiting."""
    topic = s.topic()
    a = s.connect()
    a.producer(topic, 1, producer_name="p", epoch=0)
    a.publish_all(1, [b"0", b"1"])
    a.close()
    b = s.connect()
    b.producer(topic, 1, producer_name="p", epoch=1, user_provided_producer_name=True)
    b.publish(1, 1, b"1 again")
    b.recv()
    b.publish(1, 2)
    b.recv()


@scenario
def producer_resends_after_an_unload_without_deduplication(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [b"0"])
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p", epoch=1)
    c.publish(1, 0, b"0")
    c.recv()
    c.subscribe(topic, permits=10, initialPosition="Earliest", quietly=True)
    s.note("twice", texts(drained(c)))


@scenario
def exclusive_producer_keeps_its_place_over_a_reconnection(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    epoch = a.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive").command.topic_epoch
    a.close()
    time.sleep(0.3)
    b.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive", topic_epoch=epoch, epoch=1)
    c = s.connect()
    c.producer(topic, 1, producer_name="y", producer_access_mode="Exclusive")


@scenario
def exclusive_producer_finds_another_in_its_place(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    epoch = a.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive").command.topic_epoch
    b.producer(topic, 1, producer_name="y", producer_access_mode="WaitForExclusive")
    a.close()
    b.recv()
    c = s.connect()
    more = dict(topic_epoch=epoch, epoch=1)
    c.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive", **more)
    c.producer(topic, 2, producer_name="x", producer_access_mode="WaitForExclusive", **more)


@scenario
def waiting_producer_and_an_unload(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="x", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="y", producer_access_mode="WaitForExclusive")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    a.recv()
    b.recv(2)


@scenario
def consumers_come_back_after_an_unload(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    for c in (a, b):
        c.subscribe(topic, permits=10, **SHARED)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    a.recv()
    b.recv()
    s.lookup(topic)
    for c in (a, b):
        c.subscribe(topic, permits=10, **SHARED)
    for i in range(4):
        published(s, topic, 1, i)
        time.sleep(0.05)
    s.note("each", [len(drained(a, 0.4)), len(drained(b, 0.4))])


@scenario
def cursor_survives_an_unload_exactly(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published(s, topic, 5)
    read(c, 5)
    ack(c, ids[1], kind="Cumulative")
    time.sleep(1.2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, permits=100, quietly=True)
    s.note("came", told(drained(c)))
    s.note("backlog", backlog(s, topic))


@scenario
def messages_of_several_ledgers_are_one_log(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    for i in range(3):
        published(s, topic, 2, 2 * i)
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        if i == 0:
            c.recv_quietly()
        s.lookup(topic)
    c.subscribe(topic, permits=100, quietly=True)
    frames = drained(c)
    s.note("came", texts(frames))
    s.note("entries", [f.command.message_id.entryId for f in frames])
    s.note("ledgers", len({f.command.message_id.ledgerId for f in frames}))
    s.note(
        "ascending",
        [f.command.message_id.ledgerId for f in frames] == sorted(f.command.message_id.ledgerId for f in frames),
    )
    s.note("index", [f.entry_metadata.index for f in frames])


@scenario
def deleted_topic_and_its_subscriptions(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "a", 1, quietly=True)
    published(s, topic, 2)
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    c.recv()
    c.subscribe(topic, "a", 1, permits=10)
    c.none()
    c.ask("GET_LAST_MESSAGE_ID", quietly=True, consumer_id=1)
    published(s, topic, 1)
    c.recv()


@scenario
def deleted_topic_forgets_schema_and_epoch(s):
    topic = s.topic()
    c = s.connect()
    schema = dict(name="s", type="Avro", schema_data=avro(("a", "int")))
    c.producer(topic, 1, producer_name="p", producer_access_mode="Exclusive", schema=schema)
    s.http("DELETE", rest(topic, "?force=true&deleteSchema=true"), quietly=True)
    c.recv()
    c.ask("GET_SCHEMA", topic=topic)
    c.producer(topic, 1, producer_name="p", producer_access_mode="Exclusive")


@scenario
def deduplication_of_a_topic_policy(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)

    def enabled():
        return s.http("GET", rest(topic, "/stats"), quietly=True)[1]["deduplicationStatus"] == "Enabled"

    s.eventually("enabled", enabled)
    for sequence in (0, 0, 1):
        c.publish(1, sequence)
        c.recv()


@scenario
def deduplication_switched_off_again(s):
    ns = namespace(s, deduplication=True)
    topic = s.topic("t", ns)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"0", b"1"])
    s.http("POST", f"/admin/v2/namespaces/{ns}/deduplication", False, quietly=True)

    def disabled():
        return s.http("GET", rest(topic, "/stats"), quietly=True)[1]["deduplicationStatus"] == "Disabled"

    s.eventually("disabled", disabled)
    c.publish(1, 0)
    c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def deduplication_and_no_messages_of_subscriptions(s):
    """The cursor of deduplication is no visible subscription."""
    topic = s.topic("t", namespace(s, deduplication=True))
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"0"])
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def sequence_ids_of_an_initial_producer_with_deduplication(s):
    topic = s.topic("t", namespace(s, deduplication=True))
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    for sequence in (10, 5, 11, 2**40, 2**40 - 1):
        c.publish(1, sequence)
        c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def bad_checksum_with_deduplication_may_be_sent_again(s):
    topic = s.topic("t", namespace(s, deduplication=True))
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish(1, 0, bad_crc=True)
    c.recv()
    c.publish(1, 0)
    c.recv()


@scenario
def reader_follows_a_topic_from_the_start(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "r", durable=False, start_message_id=EARLIEST, permits=2, quietly=True)
    s.note("first", texts(read(c, 2)))
    published(s, topic, 2, 2)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=2)
    s.note("then", texts(read(c, 2)))


@scenario
def non_persistent_partitions(s):
    topic = s.topic(domain="non-persistent")
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.subscribe(topic + "-partition-1", permits=10)
    c.producer(topic + "-partition-1", 1, producer_name="p")
    c.publish(1, 0)
    c.recv_sorted(2)
    c.producer(topic, 2, producer_name="p")
    c.producer(topic + "-partition-5", 3, producer_name="p")


@scenario
def partial_acks_of_a_batch_and_an_unload(s):
    """Holes of whole entries survive; parts of a batch may come whole again."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b"], [b"c"], [b"d"])
    read(c, 3)
    ack(c, ids[1])
    time.sleep(1.2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, permits=100, **SHARED)
    s.note("entries", [f.command.message_id.entryId for f in drained(c)])


@scenario
def subscriptions_are_independent(s):
    topic = s.topic()
    c = s.connect()
    for i, kind in enumerate(("Exclusive", "Shared", "Key_Shared")):
        c.subscribe(topic, kind, i, subType=kind, permits=10, quietly=True)
    ids = published(s, topic, 2)
    drained(c)
    ack(c, ids[0], consumer_id=0)
    ack(c, ids[1], consumer_id=1)
    s.note("backlog", backlog(s, topic))
    for i in range(3):
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=i)
        s.note("again", told(drained(c)))
