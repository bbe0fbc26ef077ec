"""Chunked messages: statistics, permits, acknowledgements, seeks and limits by subscription type."""

from harness.consumers import by_type, by_types, join
from harness.figures import figures, internal_figures
from harness.steps import ack, compact, drained, namespace, published, rest, setup_connection, stats
from transcript import scenario


def chunked(s, topic, name, chunks=3, first=0, only=None, **more):
    """The chunks of one message, each an entry; their ids."""
    ids = []
    common = dict(uuid=name, num_chunks_from_msg=chunks, total_chunk_msg_size=3 * chunks) | more
    for i in range(chunks) if only is None else only:
        ids += published(s, topic, [b"%b%d" % (name.encode(), i)], first, producer="q", chunk_id=i, **common)
    return ids


def shown(s, what, frames):
    s.note(what, [[f.payload.decode(), f.command.redelivery_count, f.metadata.chunk_id] for f in frames])


@by_type
def chunks_delivered_and_acknowledged(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = chunked(s, topic, "a")
    shown(s, "came", drained(c, 0.4))
    figures(s, topic, "delivered")
    ack(c, ids[2])
    figures(s, topic, "last acknowledged")
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    shown(s, "again", drained(c, 0.4))
    ack(c, *ids)
    figures(s, topic, "all acknowledged")
    internal_figures(s, topic, "insides")


@by_type
def chunks_of_two_messages_in_turns(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    for i in range(3):
        chunked(s, topic, "a", only=[i])
        chunked(s, topic, "b", only=[i], first=1)
    shown(s, "came", drained(c, 0.4))
    figures(s, topic, "end")


@by_types("Exclusive", "Failover", "Key_Shared")
def chunks_and_a_seek_into_the_middle(s, kind):
    """On Shared the rest of a message whose first chunk is missing is a listed difference."""
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = chunked(s, topic, "a")
    drained(c, 0.4)
    c.ask("SEEK", consumer_id=1, message_id=ids[1] | dict(first_chunk_message_id=ids[0]))
    c.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="n")
    shown(s, "came", [f for f in drained(c, 1.3) if f.type == "MESSAGE"])
    figures(s, topic, "first chunk id")
    c.ask("SEEK", consumer_id=1, message_id=ids[2])
    c.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="n")
    shown(s, "came", [f for f in drained(c, 1.3) if f.type == "MESSAGE"])
    figures(s, topic, "end")


@by_type
def chunks_acknowledged_with_the_id_of_the_first(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = chunked(s, topic, "a") + published(s, topic, 1, first=9)
    drained(c, 0.4)
    ack(c, ids[2] | dict(first_chunk_message_id=ids[0]))
    figures(s, topic, "individual")
    ack(c, ids[2] | dict(first_chunk_message_id=ids[0]), kind="Cumulative", quietly=False)
    figures(s, topic, "cumulative")


@by_type
def chunks_with_a_key(s, kind):
    topic = s.topic()
    a = join(s, topic, kind, consumer_name="a")
    chunked(s, topic, "m", partition_key="k")
    chunked(s, topic, "n", first=1, partition_key="other")
    shown(s, "came", drained(a, 0.4))
    figures(s, topic, "end")


@scenario
def last_message_id_behind_chunks(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    chunked(s, topic, "a")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    chunked(s, topic, "b", only=[0], first=1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    s.http("POST", rest(topic, "/terminate"), keep=True)


@scenario
def chunks_beyond_a_limit_of_the_message_size(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("POST", rest(topic, "/maxMessageSize"), 10)
    s.http("PUT", rest(topic), quietly=True)
    c = setup_connection(s)
    c.producer(topic, 7, quietly=True, producer_name="r")
    for i, size in enumerate((5, 50)):
        c.publish(
            7, i, b"x" * size, dict(is_chunk=True), uuid="r", num_chunks_from_msg=2, total_chunk_msg_size=60, chunk_id=i
        )
        c.recv(1)
    s.note("chunks", stats(s, topic)["msgChunkPublished"])


@scenario
def chunks_and_compaction(s):
    topic = s.topic()
    chunked(s, topic, "a", partition_key="k")
    published(s, topic, [b"x"], 5, partition_key="l")
    published(s, topic, [b"y"], 6, partition_key="l")
    compact(s, topic)
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True, read_compacted=True, initialPosition="Earliest")
    s.note("last", [f.payload.decode() for f in drained(c, 0.5)][-1:])


@scenario
def chunks_peeked_over_rest(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/subscription/sub"), {}, quietly=True)
    s.http("PUT", rest(topic, "/subscription/early"), "earliest", quietly=True)
    chunked(s, topic, "a")
    for i in range(1, 4):
        s.call(
            "GET",
            rest(topic, f"/subscription/sub/position/{i}"),
            show=(
                "X-Pulsar-num-chunks-from-msg",
                "X-Pulsar-chunk-id",
                "X-Pulsar-total-chunk-msg-size",
                "X-Pulsar-sequence-id",
                "X-Pulsar-uuid",
            ),
        )
