"""Compaction by keys: null keys, null values, empty keys, batches, chunks, encryption, compression; readers of it."""

import zlib

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    batch,
    compact,
    drained,
    now_ms,
    published,
    published_batches,
    rest,
    stats,
    texts,
)
from transcript import scenario


def reader(s, topic, name="r", compacted=True, start=EARLIEST, permits=100, **more):
    c = s.connect(name)
    c.subscribe(
        topic,
        name,
        durable=False,
        read_compacted=compacted,
        start_message_id=start,
        permits=permits,
        quietly=True,
        **more,
    )
    return c


def entries(frames):
    out = []
    for f in frames:
        m = f.metadata
        out.append(
            [
                f.command.message_id.entryId,
                m.partition_key if m.HasField("partition_key") else None,
                m.num_messages_in_batch if m.HasField("num_messages_in_batch") else None,
                m.compression,
                f.payload.hex()[:160],
                m.null_value,
                f.crc,
                f.entry_metadata is not None and f.entry_metadata.index,
            ]
        )
    return out


KINDS = [
    {"partition_key": "a"},
    {"partition_key": ""},
    {},
    {"null_partition_key": True},
    {"partition_key": "a", "null_partition_key": True},
    {"partition_key": "b", "null_value": True},
    {"partition_key": "a", "ordering_key": b"o"},
    {"ordering_key": b"o"},
    {"partition_key": "YQ==", "partition_key_b64_encoded": True},
    {"partition_key": "YQ=="},
    {"partition_key": "c"},
]


@scenario
def compaction_of_every_kind_of_key(s):
    topic = s.topic()
    for i, kind in enumerate(KINDS):
        published(s, topic, [b"%d" % i], i, **kind)
    compact(s, topic)
    s.note("compacted", entries(drained(reader(s, topic))))
    for i, kind in enumerate(KINDS):
        published(s, topic, [b"" if i % 2 else b"n%d" % i], 100 + i, **kind)
    compact(s, topic)
    s.note("compacted again", entries(drained(reader(s, topic, "r2"))))
    s.note("plain", len(drained(reader(s, topic, "r3", compacted=False))))


@scenario
def compaction_of_batches_of_every_kind_of_key(s):
    topic = s.topic()
    c = s.connect("setup")
    c.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    sets = (
        {"partition_key": ["a", "b", "a"]},
        {"partition_key": ["", "", "c"]},
        {"null_partition_key": [True, False, True]},
        {"partition_key": ["a", "b", "d"], "null_value": [True, False, True]},
        {"partition_key": ["x", "x", "x"], "compacted_out": [False, True, False]},
        {"partition_key": ["a", "e", "f"], "partition_key_b64_encoded": [True, False, False]},
    )
    for n, each in enumerate(sets):
        payloads = [b"%d%d" % (n, i) for i in range(3)]
        c.publish(
            1, n * 3, batch(*payloads, **each), command={"num_messages": 3}, num_messages_in_batch=3, partition_key="k"
        )
        c.recv_quietly()
    c.publish(1, 30, batch(b"", b"", partition_key=["b", "e"]), command={"num_messages": 2}, num_messages_in_batch=2)
    c.recv_quietly()
    s.lines = keep
    compact(s, topic)
    s.note("compacted", entries(drained(reader(s, topic))))
    r = reader(s, topic, "last", permits=0)
    r.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def compaction_of_messages_that_are_encrypted_or_damaged(s):
    topic = s.topic()
    keys = [{"key": "k", "value": b"v"}]
    published(s, topic, [b"one"], 0, partition_key="a", encryption_keys=keys)
    published(s, topic, [b"two"], 1, partition_key="a", encryption_keys=keys)
    published_batches(s, topic, [b"x", b"y"], encryption_keys=keys, partition_key="z")
    published(s, topic, [b"three"], 6, partition_key="b", compression="LZ4", uncompressed_size=99)
    published(s, topic, [b"four"], 7, partition_key="b")
    compact(s, topic)
    s.note("compacted", entries(drained(reader(s, topic))))


@scenario
def compacted_readers_from_every_place(s):
    topic = s.topic()
    ids = []
    for i, key in enumerate("abcabd"):
        ids += published(s, topic, [b"%d" % i], i, partition_key=key)
    compact(s, topic)
    ids += published(s, topic, [b"6"], 6, partition_key="a")
    for i, start in enumerate((EARLIEST, LATEST, *ids)):
        s.note(f"{i}", texts(drained(reader(s, topic, f"r{i}", start=start), 0.25)))


@scenario
def compacted_reader_that_seeks(s):
    topic = s.topic()
    ids = []
    for i, key in enumerate("abcabd"):
        ids += published(s, topic, [b"%d" % i], i, partition_key=key)
    compact(s, topic)
    places = (
        {"message_id": ids[0]},
        {"message_id": ids[3]},
        {"message_id": ids[5]},
        {"message_publish_time": 1},
        {"message_publish_time": now_ms() + 5000},
        {"message_id": EARLIEST},
        {"message_id": LATEST},
    )
    for i, place in enumerate(places):
        for start in (EARLIEST, ids[4]):
            c = s.connect(f"{i}{start is EARLIEST}")
            more = {"durable": False, "read_compacted": True, "quietly": True}
            c.subscribe(topic, c.name, start_message_id=start, permits=20, **more)
            s.note("first", texts(drained(c, 0.3)))
            f = c.ask("SEEK", quietly=True, consumer_id=1, **place)
            s.note("seek", f.type)
            while c.recv_quietly(0.15):
                pass
            c.subscribe(topic, c.name, start_message_id=start, permits=50, **more)
            s.note("came", texts(drained(c, 0.3)))


@scenario
def compacted_subscription_durable_that_seeks(s):
    topic = s.topic()
    ids = []
    for i, key in enumerate("abcabd"):
        ids += published(s, topic, [b"%d" % i], i, partition_key=key)
    compact(s, topic)
    c = s.connect()
    for kind in ("Exclusive", "Failover"):
        for place in (
            {"message_id": ids[0]},
            {"message_id": ids[4]},
            {"message_publish_time": 1},
            {"message_id": LATEST},
        ):
            c.subscribe(
                topic,
                "s" + kind,
                subType=kind,
                read_compacted=True,
                quietly=True,
                initialPosition="Earliest",
                permits=50,
            )
            s.note("first", texts(drained(c, 1.3 if kind == "Failover" else 0.3)))
            c.ask("SEEK", quietly=True, consumer_id=1, **place)
            while c.recv_quietly(0.1):
                pass
            c.subscribe(topic, "s" + kind, subType=kind, read_compacted=True, quietly=True, permits=50)
            s.note("came", texts(drained(c, 1.3 if kind == "Failover" else 0.3)))
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def compacted_everything_away(s):
    topic = s.topic()
    for i, key in enumerate("ab"):
        published(s, topic, [b"%d" % i], i, partition_key=key)
        published(s, topic, [b""], 10 + i, partition_key=key)
    compact(s, topic)
    c = reader(s, topic)
    s.note("came", entries(drained(c)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    d = reader(s, topic, "plain", compacted=False, permits=0)
    d.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published(s, topic, [b"new"], 20, partition_key="a")
    s.note("came", entries(drained(c)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def compaction_over_an_unload(s):
    topic = s.topic()
    for i, key in enumerate("abab"):
        published(s, topic, [b"%d" % i], i, partition_key=key)
    compact(s, topic)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    c = reader(s, topic)
    s.note("compacted", entries(drained(c)))
    published(s, topic, [b"4"], 4, partition_key="a")
    s.note("compacted", entries(drained(c)))
    st = stats(s, topic)["compaction"]
    s.note(
        "stats",
        [
            st["lastCompactionRemovedEventCount"],
            st["lastCompactionSucceedTimestamp"] > 0,
            st["lastCompactionFailedTimestamp"],
            st["lastCompactionDurationTimeInMills"] >= 0,
        ],
    )
    s.call("GET", rest(topic, "/compaction"), keep=True)


@scenario
def compaction_asked_for_in_every_state(s):
    topic = s.topic()
    s.call("GET", rest(topic, "/compaction"), keep=True)
    s.call("PUT", rest(topic, "/compaction"))
    s.call("PUT", rest(topic))
    s.call("GET", rest(topic, "/compaction"), keep=True)
    compact(s, topic)
    s.call("GET", rest(topic, "/compaction"), keep=True)
    s.call("GET", rest(topic, "/internalStats"), keep=lambda b: [b["compactedLedger"]["entries"], sorted(b["cursors"])])
    published(s, topic, 3)
    compact(s, topic)
    s.call("GET", rest(topic, "/internalStats"), keep=lambda b: [b["compactedLedger"]["entries"], sorted(b["cursors"])])
    st = stats(s, topic)["compaction"]
    s.note("stats", [st["lastCompactionRemovedEventCount"], st["lastCompactionSucceedTimestamp"] > 0])
    s.note("came", entries(drained(reader(s, topic))))
    s.call("POST", rest(topic, "/terminate"))
    s.call("PUT", rest(topic, "/compaction"))
    r = reader(s, topic, "end")
    drained(r, 0.3)
    s.call("PUT", rest(topic + "-none", "/compaction"))
    s.call("GET", rest(topic + "-none", "/compaction"))


@scenario
def compacted_reads_by_subscription_type(s):
    topic = s.topic()
    for i, key in enumerate("abab"):
        published(s, topic, [b"%d" % i], i, partition_key=key)
    compact(s, topic)
    for i, kind in enumerate(("Exclusive", "Failover", "Shared", "Key_Shared")):
        for durable in (True, False):
            c = s.connect(f"{kind}{durable}")
            extra = {} if durable else {"start_message_id": EARLIEST}
            c.subscribe(
                topic,
                f"s{i}{durable}",
                1,
                subType=kind,
                durable=durable,
                read_compacted=True,
                initialPosition="Earliest",
                permits=9,
                **extra,
            )
            s.note("came", texts(drained(c, 1.3 if kind == "Failover" else 0.3)))
    n = topic.replace("persistent", "non-persistent", 1)
    s.lookup(n)
    c = s.connect("np")
    c.subscribe(n, "s", 1, read_compacted=True)


@scenario
def compacted_batches_acked_in_part(s):
    topic = s.topic()
    c = s.connect("setup")
    c.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    c.publish(
        1,
        0,
        batch(b"0", b"1", b"2", partition_key=["a", "b", "a"]),
        command={"num_messages": 3},
        num_messages_in_batch=3,
    )
    c.recv_quietly()
    s.lines = keep
    d = s.connect()
    d.subscribe(topic, "s", read_compacted=True, initialPosition="Earliest", quietly=True)
    compact(s, topic)
    d.send("FLOW", quietly=True, consumer_id=1, messagePermits=2)
    [f] = drained(d)
    s.note("entry", entries([f]))
    i = {"ledgerId": f.command.message_id.ledgerId, "entryId": f.command.message_id.entryId}
    ack(d, i | {"ack_set": [0b110]}, quietly=False)
    s.note("backlog", backlog(s, topic))
    st = stats(s, topic)["subscriptions"]["s"]["consumers"][0]
    s.note("consumer", [st["availablePermits"], st["unackedMessages"], st["msgOutCounter"], st["messageAckRate"] >= 0])
    d.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    d.send("FLOW", quietly=True, consumer_id=1, messagePermits=5)
    s.note("again", [[f.command.redelivery_count, list(f.command.ack_set)] for f in drained(d)])


@scenario
def compacted_batches_that_survive_whole(s):
    topic = s.topic()
    p = s.connect("p")
    p.producer(topic, 1, quietly=True, producer_name="p")

    def send(sequence_id, payload, count, **metadata):
        counts = dict(num_messages=count)
        p.publish(1, sequence_id, payload, command=counts, num_messages_in_batch=count, **metadata)
        p.recv()

    deflater = zlib.compressobj()
    text = batch(b"e0", b"f0", partition_key=["e", "f"])
    send(0, batch(b"a0", partition_key=["a"]), 1)
    send(1, batch(b"b0", b"c0", partition_key=["b", "c"]), 2, partition_key="k", event_time=9)
    send(3, zlib.compress(text), 2, compression="ZLIB", uncompressed_size=len(text))
    text = batch(b"g0", b"h0", partition_key=["g", ""])
    flushed = deflater.compress(text) + deflater.flush(zlib.Z_SYNC_FLUSH)
    send(5, flushed, 2, compression="ZLIB", uncompressed_size=len(text))
    send(7, batch(b"i0", b"j0", partition_key=["i", "j"]) + b"behind", 2)
    for i in range(2):
        compact(s, topic)
        c = reader(s, topic, f"r{i}")
        for _ in range(5 + i):
            c.recv()
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        published(s, topic, [b"b1"], 9, producer="q", partition_key="b")
