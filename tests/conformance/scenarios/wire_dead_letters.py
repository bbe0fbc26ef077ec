"""Dead letters and retries with plain commands: redelivery counts over consumers, unloads and seeks; letter topics."""

from harness.steps import EARLIEST, ack, backlog, drained, now_ms, published, published_batches, read, rest, told
from transcript import scenario

AUTO = {"keySharedMode": "AUTO_SPLIT"}


def shared(s, topic, kind="Shared", name=None, permits=100, **more):
    c = s.connect(name)
    more = ({"keySharedMeta": AUTO} if kind == "Key_Shared" else {}) | {"initialPosition": "Earliest"} | more
    c.subscribe(topic, permits=permits, quietly=True, subType=kind, **more)
    return c


def redeliver(c, *ids, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids), **more)


@scenario
def redelivery_counts_go_from_consumer_to_consumer(s):
    for kind in ("Shared", "Key_Shared"):
        topic = s.topic(kind)
        ids = published(s, topic, 3)
        c = shared(s, topic, kind, consumer_name="a")
        s.note("first", told(read(c, 3)))
        redeliver(c, *ids)
        s.note("nack", told(drained(c, 0.4)))
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        d = shared(s, topic, kind, consumer_name="b")
        s.note("next consumer", told(drained(d, 0.4)))
        redeliver(d, ids[1])
        s.note("one", told(drained(d, 0.4)))
        d.close()
        e = shared(s, topic, kind, consumer_name="c")
        s.note("after a lost connection", told(drained(e, 0.5)))
        redeliver(e)
        s.note("all", told(drained(e, 0.4)))


@scenario
def redelivery_counts_after_an_unload(s):
    for kind in ("Shared", "Key_Shared", "Exclusive", "Failover"):
        topic = s.topic(kind)
        ids = published(s, topic, 3)
        c = shared(s, topic, kind, consumer_name="a")
        drained(c, 1.3 if kind == "Failover" else 0.4)
        redeliver(c, *ids) if "hared" in kind else redeliver(c)
        s.note("nack", told(drained(c, 0.4)))
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        s.lookup(topic)
        d = shared(s, topic, kind, consumer_name="a")
        s.note("after the unload", told(drained(d, 1.3 if kind == "Failover" else 0.5)))


@scenario
def redelivery_counts_after_a_seek(s):
    for kind in ("Shared", "Key_Shared"):
        topic = s.topic(kind)
        ids = published(s, topic, 3)
        c = shared(s, topic, kind, consumer_name="a")
        read(c, 3)
        redeliver(c, *ids)
        read(c, 3)
        c.ask("SEEK", consumer_id=1, message_id=ids[0])
        drained(c, 0.3)
        d = shared(s, topic, kind, consumer_name="a")
        s.note("after the seek", told(drained(d, 0.5)))
        redeliver(d, *ids)
        s.note("nack", told(drained(d, 0.4)))


@scenario
def redelivery_counts_of_parts_of_a_batch(s):
    topic = s.topic()
    [b] = published_batches(s, topic, [b"a", b"b", b"c", b"d"])
    c = shared(s, topic, consumer_name="a")
    read(c, 1)
    for words in ([0b1110], [0b1100], [0b1000]):
        ack(c, b | {"ack_set": words})
        redeliver(c, b)
        f = c.recv_quietly(2)
        s.note("again", f and [f.command.redelivery_count, list(f.command.ack_set)])
    ack(c, b | {"ack_set": [0]})
    redeliver(c, b)
    c.none()


@scenario
def dead_letter_of_a_java_client(s):
    """After three redeliveries: a producer of the letter topic with a first subscription, its message, then the ack."""
    topic = s.topic()
    dlq = s.topic("sub-DLQ")
    [m] = published(s, topic, 1, partition_key="k", properties=[{"key": "a", "value": "1"}])
    c = shared(s, topic)
    for _ in range(4):
        frames = read(c, 1)
        s.note("count", [f.command.redelivery_count for f in frames])
        redeliver(c, m)
    read(c, 1)
    c.ask("PARTITIONED_METADATA", topic=dlq)
    c.producer(
        dlq,
        7,
        producer_name="sub-DLQ",
        initial_subscription_name="letters",
        txn_enabled=False,
        user_provided_producer_name=True,
    )
    props = {"REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": "1:0:-1", "REAL_SUBSCRIPTION": "sub"}
    c.publish(7, 0, b"m0", partition_key="k", properties=[{"key": k, "value": v} for k, v in props.items()])
    c.recv()
    ack(c, m, quietly=False)
    s.note("backlogs", [backlog(s, topic), backlog(s, dlq)])
    d = s.connect("letters")
    d.subscribe(dlq, "letters", permits=10, quietly=True, subType="Shared")
    d.recv()


@scenario
def retry_topic_with_delays(s):
    topic, retry = s.topic(), s.topic("sub-RETRY")
    [m] = published(s, topic, 1)
    c = shared(s, topic)
    c.subscribe(retry, "sub", 2, permits=10, quietly=True, subType="Shared", initialPosition="Earliest")
    read(c, 1)
    c.producer(retry, 3, producer_name="r")
    keep, s.lines = s.lines, []
    c.publish(
        3,
        0,
        b"m0",
        deliver_at_time=now_ms(900),
        properties=[{"key": "RECONSUMETIMES", "value": "1"}, {"key": "DELAY_TIME", "value": "900"}],
    )
    r = c.recv_quietly()
    s.lines = keep
    s.note("receipt", r.type)
    ack(c, m, quietly=False)
    s.note("at once", told(drained(c, 0.3)))
    f = c.recv_quietly(3)
    s.note("later", f and [f.command.consumer_id, f.command.redelivery_count, f.payload.decode()])
    s.note("backlog", [backlog(s, topic), backlog(s, retry)])


@scenario
def redelivery_counts_when_a_consumer_never_had_permits(s):
    topic = s.topic()
    ids = published(s, topic, 4)
    c = shared(s, topic, permits=2, consumer_name="a")
    s.note("a", told(read(c, 2)))
    d = shared(s, topic, permits=0, consumer_name="b")
    c.close()
    d.none(0.4)
    d.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
    s.note("b", told(drained(d, 0.5)))
    ack(d, ids[0])
    redeliver(d, *ids)
    s.note("again", told(drained(d, 0.5)))


@scenario
def redelivery_count_of_readers_and_exclusive(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    for kind in ("Exclusive", "Shared", "Failover", "Key_Shared"):
        c = s.connect(kind)
        extra = {"keySharedMeta": AUTO} if kind == "Key_Shared" else {}
        c.subscribe(
            topic, "r" + kind, permits=50, quietly=True, durable=False, start_message_id=EARLIEST, subType=kind, **extra
        )
        s.note(kind, told(drained(c, 1.3 if kind == "Failover" else 0.4)))
        redeliver(c, *ids)
        s.note("some", told(drained(c, 0.4)))
        redeliver(c)
        s.note("all", told(drained(c, 0.4)))


@scenario
def counts_with_cumulative_ack_between(s):
    for kind in ("Exclusive", "Failover"):
        topic = s.topic(kind)
        ids = published(s, topic, 4)
        c = shared(s, topic, kind, consumer_name="a")
        drained(c, 1.3 if kind == "Failover" else 0.4)
        redeliver(c)
        s.note("again", told(drained(c, 0.4)))
        ack(c, ids[1], kind="Cumulative")
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        c.subscribe(topic, permits=50, quietly=True, subType="Shared")
        s.note("as shared", told(drained(c, 0.5)))
        redeliver(c, ids[2])
        s.note("as shared", told(drained(c, 0.5)))
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        c.subscribe(topic, permits=50, quietly=True, subType=kind)
        s.note("back", told(drained(c, 1.3)))
