"""Terminated topics beside batches, chunks, compaction, deduplication, partitions and access modes."""

from harness.consumers import by_type, by_types
from harness.figures import figures
from harness.joining import join as served
from harness.steps import EARLIEST, ack, compact, drained, namespace, published, published_batches, rest, told
from transcript import scenario

WITHOUT = (
    "msgDelayed",
    "lastConsumedTimestamp",
    "earliestMsgPublishTimeInBacklog",
    "earliestMsgPublishTimeInBacklogs",
    "lastConsumedFlowTimestamp",
    "lastAckedTimestamp",
    "readPositionWhenJoining",
)


def terminate(s, topic):
    s.call("POST", rest(topic, "/terminate"), keep=True)


@by_type
def end_behind_a_batch_acknowledged_in_part(s, kind):
    topic = s.topic()
    c = served(s, topic, kind)
    (i,) = published_batches(s, topic, [b"a", b"b", b"c"])
    i = {k: v for k, v in i.items() if k in ("ledgerId", "entryId")}
    drained(c, 0.4)
    ack(c, i | {"ack_set": [0b101]})
    terminate(s, topic)
    c.recv(1)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    for _ in range(2):
        c.recv(1)
    ack(c, i | {"ack_set": [0]})
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    figures(s, topic, "end", WITHOUT)


@scenario
def end_in_the_middle_of_a_chunked_message(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, subType="Shared")
    c.producer(topic, 1, producer_name="p")
    more = dict(uuid="u", num_chunks_from_msg=3, total_chunk_msg_size=3)
    for n in range(2):
        c.publish(1, 0, b"x", chunk_id=n, **more)
        c.recv_sorted(2)
    terminate(s, topic)
    c.recv_sorted(2, 2)
    c.publish(1, 0, b"x", chunk_id=2, **more)
    c.recv(1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    r = s.connect("reader")
    r.subscribe(topic, "r", 5, 10, durable=False, start_message_id=EARLIEST)
    while r.recv(1):
        pass


@scenario
def end_of_a_compacted_topic(s):
    topic = s.topic()
    published(s, topic, [b"1", b"2", b"3"], partition_key="k")
    published(s, topic, [b""], first=5, partition_key="k2", null_value=True)
    compact(s, topic)
    terminate(s, topic)
    s.call("PUT", rest(topic, "/compaction"))
    s.eventually("compacted", lambda: s.http("GET", rest(topic, "/compaction"), quietly=True)[1]["status"] == "SUCCESS")
    r = s.connect("reader")
    r.subscribe(topic, "r", 5, 10, durable=False, start_message_id=EARLIEST, read_compacted=True)
    while r.recv(1):
        pass
    r.ask("GET_LAST_MESSAGE_ID", consumer_id=5)
    s.call("PUT", rest(topic, "/unload"))
    r.recv(1)
    s.lookup(topic)
    r.subscribe(topic, "r", 6, 10, durable=False, start_message_id=EARLIEST, read_compacted=True)
    while r.recv(1):
        pass
    r.ask("GET_LAST_MESSAGE_ID", consumer_id=6)


@scenario
def end_and_deduplicated_repetitions(s):
    topic = s.topic()
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    for n in (0, 1, 0):
        c.publish(1, n)
        c.recv()
    terminate(s, topic)
    for n in (0, 1, 2):
        c.publish(1, n)
        c.recv(1)
    c.producer(topic, 2, producer_name="p2")
    c.producer(topic, 3, producer_name="p")


@scenario
def end_of_each_partition(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    c = s.connect()
    for n in range(3):
        s.lookup(f"{topic}-partition-{n}")
        c.subscribe(f"{topic}-partition-{n}", "sub", n, 5)
    c.producer(f"{topic}-partition-1", 1, producer_name="p")
    c.publish(1, 0)
    c.recv_sorted(2)
    s.call("POST", rest(topic, "/terminate"), keep=True)
    s.call("POST", rest(topic, "/terminate/partitions"), keep=True)
    c.recv_sorted(4, 2)
    s.call("POST", rest(topic, "/partitions"), 4)
    s.lookup(f"{topic}-partition-3")
    c.producer(f"{topic}-partition-3", 3, producer_name="p")
    c.producer(f"{topic}-partition-0", 4, producer_name="p")
    s.call("POST", rest(topic, "/terminate/partitions"), keep=True)
    s.call(
        "GET",
        rest(topic, "/partitioned-stats"),
        keep=lambda b: [b["msgInCounter"], len(b["publishers"]), b["metadata"]],
    )


@scenario
def end_and_truncation_and_new_subscriptions(s):
    topic = s.topic()
    published(s, topic, 3)
    terminate(s, topic)
    for start in ("Earliest", "Latest"):
        c = s.connect()
        c.subscribe(topic, start, 1, 10, initialPosition=start)
        while c.recv(1):
            pass
    s.call("DELETE", rest(topic, "/truncate"))
    figures(s, topic, "truncated", WITHOUT)
    c = s.connect()
    c.subscribe(topic, "after", 1, 10, initialPosition="Earliest")
    while c.recv(1):
        pass
    s.call("GET", rest(topic, "/lastMessageId"), keep=True)
    s.call("GET", rest(topic, "/examinemessage?initialPosition=earliest&messagePosition=1"))


@scenario
def end_and_exclusive_producers_that_wait(s):
    topic = s.topic()
    a, b, d = s.connect("a"), s.connect("b"), s.connect("d")
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    b.send(
        "PRODUCER",
        topic=topic,
        producer_id=1,
        request_id=71,
        producer_name="b",
        producer_access_mode="WaitForExclusive",
    )
    b.recv(1)
    terminate(s, topic)
    a.none(0.5)
    b.none(0.5)
    a.publish(1, 0)
    a.recv(1)
    a.ask("CLOSE_PRODUCER", producer_id=1)
    b.recv(1)
    b.publish(1, 0)
    b.recv(1)
    d.producer(topic, 1, producer_name="d", producer_access_mode="ExclusiveWithFencing")


@by_type
def end_and_consumers_that_come_and_go(s, kind):
    topic = s.topic()
    published(s, topic, 2)
    a = served(s, topic, kind, "a")
    frames = drained(a, 0.4)
    ack(a, frames[0].message_id)
    terminate(s, topic)
    a.recv(0.5)
    a.close()
    b = served(s, topic, kind, "b")
    s.note("left", told(drained(b, 0.5)))
    ack(b, frames[1].message_id)
    s.note("end", [f.type for f in iter(lambda: b.recv_quietly(1), None)])
    b.ask("UNSUBSCRIBE", consumer_id=1)
    figures(s, topic, "end", WITHOUT)
    c = s.connect()
    c.subscribe(topic, "sub", 1, 10, subType=kind, initialPosition="Earliest")
    while c.recv(3):
        pass


@by_types("Shared", "Key_Shared")
def end_and_moves_of_the_cursor(s, kind):
    topic = s.topic()
    published(s, topic, 4)
    s.http("PUT", rest(topic, "/subscription/sub"), EARLIEST, quietly=True)
    terminate(s, topic)
    c = served(s, topic, kind)
    kinds(s, c)
    s.call("POST", rest(topic, "/subscription/sub/skip/2"))
    kinds(s, c)
    s.call("POST", rest(topic, "/subscription/sub/skip_all"))
    kinds(s, c)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    kinds(s, c)
    figures(s, topic, "skipped", WITHOUT)
    s.call("POST", rest(topic, "/subscription/sub/resetcursor"), {"ledgerId": -1, "entryId": -1})
    while c.recv(1):
        pass


def kinds(s, c, seconds=0.6):
    s.note("frames", [f.type for f in iter(lambda: c.recv_quietly(seconds), None) if f])
