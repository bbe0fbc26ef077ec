"""Chunked messages beside other requests: seeks, reads over REST, skips, compaction, loads, deduplication."""

from harness.consumers import by_types, join, resume
from harness.figures import figures
from harness.steps import EARLIEST, ack, compact, drained, published, rest, stats
from transcript import scenario


def chunked(s, topic, uuid, parts=3, first=0, **more):
    """The chunks of a message; their ids."""
    ids, size = [], 4 * parts
    for i in range(parts):
        fields = dict(uuid=uuid, num_chunks_from_msg=parts, total_chunk_msg_size=size, chunk_id=i) | more
        ids += published(s, topic, [b"%s-%d" % (uuid[-2:].encode(), i)], first, **fields)
    return ids


def came(s, c, what="came", seconds=0.5):
    frames = [f for f in drained(c, seconds) if f.type == "MESSAGE"]
    s.note(
        what, [[f.command.message_id.entryId, f.payload.decode("latin-1"), f.command.redelivery_count] for f in frames]
    )


@by_types("Exclusive", "Failover", "Key_Shared")
def chunks_redelivered_skipped_and_sought(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = chunked(s, topic, "p-0") + published(s, topic, 1, first=5) + chunked(s, topic, "p-1", 2, first=6)
    came(s, c)
    ack(c, ids[0], ids[1])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    came(s, c, "again")
    figures(s, topic, "again")
    answer = c.ask("SEEK", True, consumer_id=1, message_id=ids[2] | dict(first_chunk_message_id=ids[0]))
    s.note("sought", answer.type)
    drained(c, 0.3)
    resume(c, topic, kind, consumer_name="n")
    came(s, c, "sought", 1.2)
    s.http("POST", rest(topic, "/subscription/sub/skip/2"))
    figures(s, topic, "skipped")


@scenario
def chunks_read_over_rest(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), EARLIEST, quietly=True)
    chunked(s, topic, "p-0", 2)
    names = (
        "X-Pulsar-PROPERTY-TOTAL-CHUNKS",
        "X-Pulsar-PROPERTY-CHUNK-ID",
        "X-Pulsar-uuid",
        "X-Pulsar-chunk-id",
        "X-Pulsar-num-chunks-from-msg",
    )
    for path in (
        "/subscription/sub/position/1",
        "/subscription/sub/position/2",
        "/examinemessage",
        "/subscription/sub/position/3",
    ):
        status, body = s.http("GET", rest(topic, path), quietly=True)
        s.note(path, [status, body, *(s.http_headers.get(n) for n in names)])
    s.call("GET", rest(topic, "/subscription/sub/analyzeBacklog"), keep=("entries", "messages"))
    s.note("chunked", [p["chunkedMessageRate"] for p in stats(s, topic)["publishers"]])


@scenario
def chunks_compacted_beside_single_messages(s):
    topic = s.topic()
    chunked(s, topic, "p-0", 2, partition_key="k")
    published(s, topic, [b"single"], 5, partition_key="l")
    chunked(s, topic, "p-1", 1, first=6, partition_key="k")
    compact(s, topic)
    c = s.connect()
    c.subscribe(topic, "r", quietly=True, durable=False, read_compacted=True, start_message_id=EARLIEST, permits=10)
    came(s, c)
    figures(s, topic, "end")


@scenario
def chunks_and_deduplication(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("POST", rest(topic, "/deduplicationEnabled"), True, quietly=True)
    s.eventually("on", lambda: stats(s, topic)["deduplicationStatus"] == "Enabled")
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    for sequence, chunk, total in (
        (0, 0, 2),
        (0, 1, 2),
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (1, 0, 2),
        (1, 1, 2),
        (2, 0, 1),
    ):
        fields = dict(uuid=f"p-{sequence}", num_chunks_from_msg=total, total_chunk_msg_size=8, chunk_id=chunk)
        c.publish(1, sequence, b"part", command=dict(is_chunk=True), **fields)
        c.recv(3)
    figures(s, topic, "end")


@scenario
def chunks_over_a_load(s):
    topic = s.topic()
    c = join(s, topic, "Exclusive", consumer_name="n", permits=1)
    ids = chunked(s, topic, "p-0", 3)
    came(s, c)
    s.http("PUT", rest(topic, "/unload"))
    c.recv(5)
    s.lookup(topic)
    d = join(s, topic, "Exclusive", consumer_name="n", permits=10)
    came(s, d, "loaded", 1)
    ack(d, *ids)
    figures(s, topic, "end")
