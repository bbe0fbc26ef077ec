"""Terminated topics in detail, and order kept while consumers come and go."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    backlog,
    batch,
    drained,
    namespace,
    published,
    read,
    rest,
    setup_connection,
    texts,
    told,
)
from transcript import encode, encode_send, scenario

SHARED = dict(subType="Shared", quietly=True)


def terminate(s, topic):
    s.http("POST", rest(topic, "/terminate"), quietly=True)


def heard(s, c, what, seconds=1.0):
    """Types of all frames until nothing comes, messages by their payload."""
    frames = list(iter(lambda: c.recv_quietly(seconds), None))
    s.note(what, [f.payload.decode() if f.type == "MESSAGE" else f.type for f in frames])


def acked(c, id_, consumer_id=1):
    c.send("ACK", quietly=True, consumer_id=consumer_id, ack_type="Individual", message_id=[id_])


@scenario
def end_of_topic_by_type(s):
    """When each type hears of it: nothing read, all read, all acked."""
    for kind in "Exclusive", "Shared", "Key_Shared", "Failover":
        topic = s.topic(kind)
        c = s.connect(kind)
        c.subscribe(topic, subType=kind, consumer_name="n", quietly=True)
        if kind == "Failover":
            c.recv_quietly()
        ids = published(s, topic, 2)
        terminate(s, topic)
        heard(s, c, f"{kind} terminated", 0.4)
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
        heard(s, c, f"{kind} read", 0.4)
        acked(c, ids[0])
        heard(s, c, f"{kind} one acked", 0.4)
        acked(c, ids[1])
        heard(s, c, f"{kind} all acked", 0.4)
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
        heard(s, c, f"{kind} another FLOW", 0.4)


@scenario
def end_of_an_empty_topic(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "idle", 1, quietly=True)
    c.subscribe(topic, "waiting", 2, permits=10, quietly=True)
    c.subscribe(topic, "shared", 3, permits=10, **SHARED)
    terminate(s, topic)
    s.note("told", sorted({f.command.consumer_id for f in iter(lambda: c.recv_quietly(1), None)}))


@scenario
def seek_on_a_terminated_topic(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    ids = published(s, topic, 2)
    read(c, 2)
    acked(c, ids[0]), acked(c, ids[1])
    terminate(s, topic)
    s.note("terminated", {f.type for f in iter(lambda: c.recv_quietly(0.5), None)} == {"REACHED_END_OF_TOPIC"})
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.subscribe(topic, permits=10, quietly=True)
    heard(s, c, "after the seek", 0.5)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def terminated_topic_after_an_unload(s):
    topic = s.topic()
    published(s, topic, 2)
    terminate(s, topic)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, permits=10, initialPosition="Earliest", quietly=True)
    heard(s, c, "came", 0.5)


@scenario
def reader_of_a_terminated_topic(s):
    topic = s.topic()
    published(s, topic, 2)
    terminate(s, topic)
    c = s.connect()
    c.subscribe(topic, "r", durable=False, permits=1, start_message_id=EARLIEST, quietly=True)
    heard(s, c, "first", 0.4)
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=5)
    heard(s, c, "rest", 0.4)


@scenario
def termination_with_waiting_producers(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.producer(topic, 1, producer_name="b", producer_access_mode="WaitForExclusive")
    terminate(s, topic)
    a.recv(2)
    b.recv(2)


@scenario
def termination_of_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    s.http("POST", rest(topic, "/terminate"))
    c.none()


@scenario
def shared_consumers_come_and_go_under_load(s):
    """Every message is delivered to somebody, and what was acked once does not come again."""
    topic = s.topic()
    p = s.connect("producer")
    p.producer(topic, 1, quietly=True, producer_name="p")
    s.connect("first").subscribe(topic, permits=1000, **SHARED)
    seen = []
    for turn in range(4):
        p._write(b"".join(encode_send(1, turn * 100 + i, b"%d" % (turn * 100 + i)) for i in range(100)))
        c = s.connect(f"c{turn}")
        c.subscribe(topic, permits=1000, **SHARED)
        for x in s.connections:
            if x.name.startswith(("c", "first")) and x.answer_ping:
                frames = drained(x, 0.15)
                for f in frames[: len(frames) // 2]:
                    acked(x, f.message_id)
                    seen.append(f.payload)
        if turn:
            gone = next(x for x in s.connections if x.name == f"c{turn - 1}")
            gone.answer_ping = False
            gone.close()
    for x in s.connections:
        if x.name.startswith(("c", "first")) and x.answer_ping:
            x.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", quietly=True, consumer_id=1)
    time.sleep(0.5)
    for _ in range(2):
        for x in s.connections:
            if x.name.startswith(("c", "first")) and x.answer_ping:
                for f in drained(x, 0.3):
                    acked(x, f.message_id)
                    seen.append(f.payload)
    s.note("all came", {int(x) for x in seen} == set(range(400)))
    s.eventually("backlog is gone", lambda: backlog(s, topic)["sub"] == 0)


@scenario
def key_order_is_kept_under_churn(s):
    topic = s.topic()
    p = s.connect("producer")
    p.producer(topic, 1, quietly=True, producer_name="p")
    keys = [f"key-{i}" for i in range(10)]
    consumers, log = [], {key: [] for key in keys}

    def pump(x, seconds=0.15):
        for f in drained(x, seconds):
            log[f.metadata.partition_key].append(int(f.payload))
            acked(x, f.message_id)

    sequence = 0
    for turn in range(4):
        c = s.connect(f"c{turn}")
        c.subscribe(topic, permits=1000, subType="Key_Shared", consumer_name=c.name, quietly=True)
        consumers.append(c)
        for n in range(5):
            frames = [encode_send(1, sequence + i, b"%d" % (turn * 5 + n), partition_key=k) for i, k in enumerate(keys)]
            p._write(b"".join(frames))
            sequence += len(keys)
        for x in consumers:
            pump(x)
        if turn == 2:
            consumers.pop(0).ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    for _ in range(3):
        for x in consumers:
            pump(x, 0.3)
    s.note("each key complete and in order", [k for k in keys if log[k] != list(range(20))])


@scenario
def failover_keeps_the_order_over_a_hand_over(s):
    topic = s.topic()
    a, b = s.connect("a"), s.connect("b")
    for i, c in enumerate((a, b)):
        c.subscribe(topic, permits=1000, subType="Failover", consumer_name=c.name, priority_level=i, quietly=True)
    a.recv_quietly()
    ids = published(s, topic, 20)
    first = read(a, 20)
    for id_ in ids[:10]:
        acked(a, id_)
    time.sleep(0.2)
    a.close()
    published(s, topic, 10, 20)
    second = drained(b, 2)
    s.note("first", texts(first) == [f"m{i}" for i in range(20)])
    s.note("second", texts(second) == [f"m{i}" for i in range(10, 30)])


@scenario
def redelivered_again_and_again(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published(s, topic, 1)
    counts = []
    for _ in range(6):
        (frame,) = read(c, 1)
        counts.append(frame.command.redelivery_count)
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", quietly=True, consumer_id=1, message_ids=ids)
    s.note("counts", counts)


@scenario
def consumers_of_many_topics_on_one_connection(s):
    topics = [s.topic(f"t{i}") for i in range(20)]
    c = s.connect()
    for i, topic in enumerate(topics):
        c.subscribe(topic, "sub", i, permits=10, quietly=True)
        c.producer(topic, i, quietly=True)
    c._write(b"".join(encode_send(i, 0, b"%d" % i) for i in range(20)))
    frames = [c.recv_quietly() for _ in range(40)]
    s.note("own messages", all(f.payload == b"%d" % f.command.consumer_id for f in frames if f.type == "MESSAGE"))
    s.note("kinds", sorted({f.type: 0 for f in frames}))
    c._write(b"".join(encode("CLOSE_CONSUMER", consumer_id=i, request_id=i) for i in range(20)))
    s.note("closed", sorted(c.recv_quietly().command.request_id for _ in range(20)) == list(range(20)))


@scenario
def largest_message(s):
    """Just under five mebibytes with its metadata."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, bytes(5_242_000))
    c.recv_sorted(2)


@scenario
def non_persistent_topics_where_none_may_be_created(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", dict(allowAutoTopicCreation=False), quietly=True)
    topic = s.topic("t", ns, "non-persistent")
    c = s.connect()
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)


@scenario
def send_with_a_message_id_of_its_own(s):
    """Only a shadow topic looks at it."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    c.publish(1, 0, command=dict(message_id=dict(ledgerId=77, entryId=88)))
    c.recv()


@scenario
def batch_and_single_messages_in_one_write(s):
    topic = s.topic()
    c, p = s.connect(), setup_connection(s)
    c.subscribe(topic, permits=100, quietly=True)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    for i, n in enumerate((1, 3, 1, 2)):
        more = dict(num_messages_in_batch=n) if n > 1 else {}
        p.publish(1, 10 * i, batch(*[b"x"] * n) if n > 1 else b"x", command=dict(num_messages=n), **more)
    s.lines = keep
    s.note("receipts", [p.recv_quietly().command.sequence_id for _ in range(4)])
    s.note("index", [f.entry_metadata.index for f in read(c, 4)])


@scenario
def partitioned_topic_made_again_with_more_partitions(s):
    topic = s.topic()
    c = s.connect()
    s.http("PUT", rest(topic, "/partitions"), 1, quietly=True)
    c.subscribe(topic + "-partition-0", permits=10, quietly=True)
    published(s, topic + "-partition-0", 1)
    read(c, 1)
    s.http("DELETE", rest(topic, "/partitions?force=true"), quietly=True)
    c.recv()
    s.http("PUT", rest(topic, "/partitions"), 3)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.subscribe(topic + "-partition-0", permits=10, initialPosition="Earliest")
    s.note("nothing of before", told(drained(c)))


@scenario
def cumulative_acks_on_failover(s):
    topic = s.topic()
    a, b = s.connect("a"), s.connect("b")
    for i, c in enumerate((a, b)):
        c.subscribe(topic, permits=100, subType="Failover", consumer_name=c.name, priority_level=i, quietly=True)
    a.recv_quietly()
    ids = published(s, topic, 4)
    read(a, 4)
    ack(a, ids[1], kind="Cumulative")
    s.note("by the active one", backlog(s, topic))
    b.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[2]])
    s.note("by the standby", backlog(s, topic))
