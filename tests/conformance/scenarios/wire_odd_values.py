"""Odd values in well-formed commands: ids, sizes, sets, positions; neighbours on the broker notice nothing."""

import time

from harness.steps import ack, backlog, drained, published, published_batches, read, texts, told
from transcript import encode, pb, scenario

SHARED = dict(subType="Shared", quietly=True)
MAX = 2**64 - 1


def consuming(s, n=3, **more):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **(SHARED | more))
    ids = published(s, topic, n)
    read(c, n)
    return topic, c, ids


@scenario
def largest_ids_are_ids_like_any_other(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, MAX, producer_name="p")
    c.subscribe(topic, "sub", MAX, permits=5)
    c.publish(MAX, 0)
    c.recv_sorted(2)
    c.ask("CLOSE_CONSUMER", consumer_id=MAX, request_id=MAX - 1)
    c.ask("CLOSE_PRODUCER", producer_id=MAX, request_id=2**63)


@scenario
def request_ids_may_repeat(s):
    topic = s.topic()
    c = s.connect()
    for _ in range(2):
        c.ask("LOOKUP", topic=topic, request_id=0)
        c.ask("PARTITIONED_METADATA", topic=topic, request_id=0)
    c.producer(topic, 1, request_id=0, producer_name="p")
    c.subscribe(topic, "sub", 1, request_id=0)


@scenario
def permits_beyond_an_int(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    for _ in range(3):
        c.send("FLOW", consumer_id=1, messagePermits=2**31 - 1)
    published(s, topic, 2)
    s.note("came", texts(drained(c)))


@scenario
def permits_beyond_an_int_on_shared(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, **SHARED)
    c.send("FLOW", consumer_id=1, messagePermits=2**31 - 1)
    published(s, topic, 2)
    s.note("came", texts(drained(c)))


@scenario
def acks_at_the_borders(s):
    topic, c, ids = consuming(s)
    one = dict(consumer_id=1, ack_type="Individual")
    for id_ in (
        dict(ledgerId=MAX, entryId=MAX),
        dict(ledgerId=0, entryId=0),
        dict(ledgerId=2**63 - 1, entryId=2**63 - 1),
        ids[0] | dict(entryId=MAX),
        ids[2] | dict(entryId=3),
    ):
        c.ask("ACK", message_id=[id_], **one)
    s.note("backlog", backlog(s, topic))
    published(s, topic, 1, 3)
    s.note("came", texts(drained(c)))


@scenario
def cumulative_acks_at_the_borders(s):
    topic, c, ids = consuming(s, subType="Exclusive")
    for id_ in (
        dict(ledgerId=0, entryId=0),
        ids[0] | dict(entryId=MAX),
        ids[1],
        ids[0],
        ids[2] | dict(entryId=50),
        dict(ledgerId=2**63 - 1, entryId=2**63 - 1),
    ):
        c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[id_])
        s.note("backlog", backlog(s, topic))
    published(s, topic, 1, 3)
    s.note("came", texts(drained(c)))


@scenario
def ack_sets_that_do_not_fit(s):
    """Longer than the batch, for a message that is no batch, with another size."""
    topic, c, ids = consuming(s, 1)
    (many,) = published_batches(s, topic, [b"a", b"b", b"c"])
    read(c, 1)
    ack(c, ids[0] | dict(ack_set=[1], batch_size=1))
    ack(c, many | dict(ack_set=[0b111000, 1], batch_size=3))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    for _ in range(2):
        c.recv(1)
    s.note("backlog", backlog(s, topic))


@scenario
def ack_of_a_message_with_partition_and_indexes(s):
    """partition, batch_index and batch_size of an id do not matter to an ack."""
    topic, c, ids = consuming(s)
    ack(c, ids[0] | dict(partition=5, batch_index=3, batch_size=10))
    ack(c, ids[1] | dict(first_chunk_message_id=ids[0]))
    s.note("backlog", backlog(s, topic))


@scenario
def redelivery_of_odd_ids(s):
    topic, c, ids = consuming(s)
    odd = [dict(ledgerId=MAX, entryId=MAX), dict(ledgerId=0, entryId=0), ids[0] | dict(entryId=99), ids[1], ids[1]]
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=odd)
    s.note("came", told(drained(c)))


@scenario
def message_of_a_client_closes(s):
    c = s.connect()
    c.send("MESSAGE", consumer_id=1, message_id=dict(ledgerId=1, entryId=1))
    c.recv(2)


@scenario
def acks_after_the_consumer_left(s):
    topic, c, ids = consuming(s)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]], request_id=5)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.none()
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("SEEK", consumer_id=1, message_id=ids[0])
    s.note("backlog", backlog(s, topic))


@scenario
def connection_reset_in_the_middle(s):
    """A consumer that vanishes without a word: its messages go to the next."""
    topic, c, _ = consuming(s)
    c.sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SO_LINGER of zero: close resets
    c.close()
    time.sleep(0.3)
    d = s.connect()
    d.subscribe(topic, permits=10, **SHARED)
    s.note("came", told(drained(d)))


@scenario
def consumer_that_does_not_read(s):
    """The socket of the consumer fills; the producer and other consumers go on."""
    topic = s.topic()
    slow, quick, p = s.connect("slow"), s.connect("quick"), s.connect("producer")
    slow.subscribe(topic, "slow", permits=1000, quietly=True)
    quick.subscribe(topic, "quick", permits=1000, quietly=True)
    p.producer(topic, 1, quietly=True, producer_name="p")
    ids = p.publish_all(1, [bytes(100_000)] * 60)
    s.note("receipts", len(ids) - ids.count(None))
    s.note("quick", len(read(quick, 60)))
    s.note("slow in the end", len(read(slow, 60)))


@scenario
def deep_properties_and_long_keys(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    properties = [dict(key=f"k{i}", value="v" * 100) for i in range(500)]
    c.publish(1, 0, b"x", properties=properties, partition_key="k" * 10_000)
    frames = [c.recv_quietly(), c.recv_quietly()]
    s.lines = keep
    message = next(f for f in frames if f.type == "MESSAGE")
    s.note("properties", [len(message.metadata.properties), len(message.metadata.partition_key)])


@scenario
def unknown_metadata_fields_and_enums_pass(s):
    """Metadata of a newer client: unknown fields pass."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    raw = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=5).SerializeToString()
    raw += b"\x48\x63" + b"\xfa\x3f\x03abc"  # compression 99 and an unknown field
    c.publish(1, 0, entry=len(raw).to_bytes(4, "big") + raw + b"payload")
    frames = [c.recv_quietly(2), c.recv_quietly(2)]
    s.note("types", sorted(f.type for f in frames if f))
    s.note("payload", [f.payload.decode() for f in frames if f and f.type == "MESSAGE"])


@scenario
def thousand_pings(s):
    s.keep_pong = True
    c = s.connect()
    c.raw(encode("PING") * 1000, "1000 PING")
    s.note("PONGs", sum(c.recv_quietly(5).type == "PONG" for _ in range(1000)))


@scenario
def fifty_connections_at_once(s):
    topic = s.topic()
    connections = [s.connect(f"x{i}") for i in range(50)]
    for i, c in enumerate(connections):
        c.send(
            "SUBSCRIBE", quietly=True, topic=topic, subscription="sub", subType="Shared", consumer_id=i, request_id=i
        )
    s.note("made", sum(c.recv_quietly().type == "SUCCESS" for c in connections))
    for i, c in enumerate(connections):
        c.send("FLOW", quietly=True, consumer_id=i, messagePermits=10)
    published(s, topic, 100)
    counts = [len(drained(c, 0.05)) for c in connections]
    s.note("messages", sum(counts))
