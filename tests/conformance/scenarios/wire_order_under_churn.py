"""The order of messages while consumers of Shared, Key_Shared and Failover subscriptions come and go."""

import time

from harness.steps import backlog, drained, published, read, texts
from transcript import encode, encode_send, scenario

SHARED = dict(subType="Shared", quietly=True)


def acked(c, id_, consumer_id=1):
    c.send("ACK", quietly=True, consumer_id=consumer_id, ack_type="Individual", message_id=[id_])


@scenario
def shared_consumers_come_and_go_under_load(s):
    """Every message reaches a consumer, and an acked message does not return."""
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
