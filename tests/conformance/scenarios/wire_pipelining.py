"""Commands that do not wait for answers: many in one write, creation and use at once, close during creation."""

import time

from harness.joining import join, left
from harness.steps import EARLIEST, LATEST, published, published_batches, read, rest, texts
from transcript import encode, encode_send, scenario


def both(c, note, *frames):
    c.raw(b"".join(frames), note, tolerant=True)


def subscribe(topic, consumer_id, request_id, subscription="sub", **more):
    ids = dict(topic=topic, subscription=subscription, consumer_id=consumer_id, request_id=request_id)
    return encode("SUBSCRIBE", **({"subType": "Exclusive"} | ids | more))


@scenario
def subscribe_twice_in_one_write(s):
    """The second finds the first under way or made."""
    topic = s.topic()
    published(s, topic, 1)
    c = s.connect()
    c.subscribe(topic, "warm", 9, quietly=True)
    both(c, "the same twice", subscribe(topic, 1, 1), subscribe(topic, 1, 2))
    answers = sorted(c.recv_quietly().type for _ in range(2))
    s.note("one at least is made", "SUCCESS" in answers)
    c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def subscribe_and_flow_in_one_write(s):
    """FLOW for a consumer that is not made yet is ignored or counted; another FLOW makes sure."""
    topic = s.topic()
    c = s.connect()
    both(c, "both", subscribe(topic, 1, 1), encode("FLOW", consumer_id=1, messagePermits=1))
    c.recv()
    c.send("FLOW", consumer_id=1, messagePermits=5)
    published(s, topic, 1)
    c.recv()


@scenario
def two_subscriptions_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    both(c, "both", subscribe(topic, 1, 1, "a"), subscribe(topic, 2, 2, "b"))
    c.recv_sorted(2)


@scenario
def unsubscribe_of_a_consumer_being_made(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "warm", 9, quietly=True)
    both(c, "both", subscribe(topic, 1, 1, "a"), encode("CLOSE_CONSUMER", consumer_id=1, request_id=2))
    types = sorted(f.type for f in (c.recv_quietly(2), c.recv_quietly(2)) if f)
    s.note("an answer to the close", "SUCCESS" in types)
    time.sleep(0.3)
    c.subscribe(topic, "a", 3)


@scenario
def many_sends_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    both(c, "twenty SEND", *(encode_send(1, n, b"m%d" % n) for n in range(20)))
    for _ in range(20):
        c.recv()


@scenario
def sends_of_two_producers_in_one_write(s):
    a, b = s.topic("a"), s.topic("b")
    c = s.connect()
    c.producer(a, 1, quietly=True, producer_name="p")
    c.producer(b, 2, quietly=True, producer_name="p")
    both(c, "in turns", *(encode_send(n % 2 + 1, n) for n in range(8)))
    c.recv_sorted(8)


@scenario
def sends_and_other_commands_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    both(
        c,
        "SEND LOOKUP SEND PARTITIONED_METADATA SEND",
        encode_send(1, 0),
        encode("LOOKUP", topic=topic, request_id=1),
        encode_send(1, 1),
        encode("PARTITIONED_METADATA", topic=topic, request_id=2),
        encode_send(1, 2),
    )
    c.recv_sorted(5)


@scenario
def send_after_close_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    both(
        c,
        "SEND CLOSE SEND",
        encode_send(1, 0),
        encode("CLOSE_PRODUCER", producer_id=1, request_id=1),
        encode_send(1, 1),
    )
    c.recv_sorted(3, 2)
    c.none()


@scenario
def send_in_small_pieces(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    frame = encode_send(1, 0, b"payload" * 20) + encode_send(1, 1, b"second")
    for i in range(0, len(frame), 7):
        c._write(frame[i : i + 7])
        time.sleep(0.002)
    c.recv_sorted(4)


@scenario
def broken_frame_after_good_ones(s):
    """Frames before the broken one take effect; their answers may be lost with the connection."""
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    both(
        c,
        "two SEND and garbage",
        encode_send(1, 0),
        encode_send(1, 1),
        b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",
    )
    while c.recv_quietly(3):
        pass
    c.recv(1)
    s.note("stored", texts(read(d, 2)))


@scenario
def acks_and_flows_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, subType="Shared", permits=3, quietly=True)
    ids = published(s, topic, 10)
    read(c, 3)
    one = dict(consumer_id=1, ack_type="Individual")
    both(
        c,
        "ACK FLOW ACK FLOW ACK",
        encode("ACK", message_id=[ids[0]], request_id=1, **one),
        encode("FLOW", consumer_id=1, messagePermits=1),
        encode("ACK", message_id=[ids[1]], **one),
        encode("FLOW", consumer_id=1, messagePermits=1),
        encode("ACK", message_id=[ids[2]], request_id=2, **one),
    )
    c.recv_sorted(4)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def seek_and_commands_behind_it_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    ids = published(s, topic, 3)
    read(c, 3)
    both(
        c,
        "SEEK FLOW LOOKUP",
        encode("SEEK", consumer_id=1, request_id=1, message_id=ids[1]),
        encode("FLOW", consumer_id=1, messagePermits=5),
        encode("LOOKUP", topic=topic, request_id=2),
    )
    c.recv_sorted(3)
    c.none()


@scenario
def hundred_producers_on_one_connection(s):
    topic = s.topic()
    c = s.connect()
    both(
        c,
        "PRODUCER",
        *(encode("PRODUCER", topic=topic, producer_id=n, request_id=n, producer_name=f"p{n}") for n in range(100)),
    )
    frames = [c.recv_quietly() for _ in range(100)]
    s.note("all made", sorted(f.command.request_id for f in frames if f.type == "PRODUCER_SUCCESS") == list(range(100)))
    both(c, "SEND", *(encode_send(n, 0) for n in range(100)))
    frames = [c.recv_quietly() for _ in range(100)]
    s.note("receipts", sorted(f.command.message_id.entryId for f in frames) == list(range(100)))


@scenario
def thousand_messages_in_order(s):
    topic = s.topic()
    c, d = s.connect(), s.connect()
    d.subscribe(topic, permits=1000, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    both(c, "1000 SEND", *(encode_send(1, n, b"%d" % n) for n in range(1000)))
    receipts = [c.recv_quietly().command for _ in range(1000)]
    s.note("receipts in order", [r.sequence_id for r in receipts] == list(range(1000)))
    s.note("entries in order", [r.message_id.entryId for r in receipts] == list(range(1000)))
    frames = read(d, 1000)
    s.note("messages in order", texts(frames) == [str(n) for n in range(1000)])
    s.note("index", [f.entry_metadata.index for f in frames] == list(range(1000)))


@scenario
def batches_and_permits_of_many(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published_batches(s, topic, *[[b"x"] * 10] * 10)
    counts = []
    for permits in (10, 15, 5, 1, 9, 50):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=permits)
        counts.append(len(list(iter(lambda: c.recv_quietly(0.4), None))))
    s.note("entries for each FLOW", counts)


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
def close_and_ack_in_one_write(s):
    """Commands behind the close of their consumer have no effect."""
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Shared")
    read(c, 2)
    data = encode("CLOSE_CONSUMER", consumer_id=1, request_id=50)
    data += encode("ACK", consumer_id=1, ack_type="Individual", message_id=ids, request_id=51)
    data += encode("FLOW", consumer_id=1, messagePermits=5)
    data += encode("CLOSE_CONSUMER", consumer_id=1, request_id=52)
    c.raw(data, "close, ack, flow, close")
    c.recv()
    c.recv()
    c.none(0.2)
    left(s, topic)


@scenario
def flow_to_close_in_one_write(s):
    topic = s.topic()
    published(s, topic, 3)
    c = join(s, topic, "Shared", permits=0)
    data = b"".join(encode("FLOW", consumer_id=1, messagePermits=1) for _ in range(3))
    data += encode("GET_LAST_MESSAGE_ID", consumer_id=2, request_id=60)
    c.raw(data, "flows and a question about nobody")
    c.recv_sorted(4)


@scenario
def close_of_producer_and_send_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    c.raw(encode("CLOSE_PRODUCER", producer_id=1, request_id=5) + encode_send(1, 0), "close and send", tolerant=True)
    c.until_closed(3)


@scenario
def same_requests_for_both_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    c.subscribe(topic, "s", 1, quietly=True)
    data = encode("PRODUCER", topic=topic, producer_id=1, request_id=1, producer_name="a")
    data += encode("SUBSCRIBE", topic=topic, subscription="s", subType="Exclusive", consumer_id=1, request_id=2)
    data += encode("CLOSE_PRODUCER", producer_id=1, request_id=3)
    data += encode("CLOSE_CONSUMER", consumer_id=1, request_id=4)
    data += encode("CLOSE_CONSUMER", consumer_id=1, request_id=5)
    data += encode("CLOSE_PRODUCER", producer_id=1, request_id=6)
    c.raw(data, "repeats and closes")
    for _ in range(6):
        c.recv()


@scenario
def close_and_open_again_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    data = encode("CLOSE_PRODUCER", producer_id=1, request_id=1)
    data += encode("PRODUCER", topic=topic, producer_id=1, request_id=2, producer_name="b")
    c.raw(data, "close and open")
    c.recv()
    c.recv()
    c.publish(1, 0)
    c.recv()


@scenario
def close_and_open_under_another_id_in_one_write(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="a")
    data = encode("CLOSE_PRODUCER", producer_id=1, request_id=1)
    data += encode("PRODUCER", topic=topic, producer_id=2, request_id=2, producer_name="a")
    c.raw(data, "close and open")
    c.recv()
    c.recv()


@scenario
def close_and_subscribe_again_in_one_write(s):
    topic = s.topic()
    published(s, topic, 1)
    c = s.connect()
    c.subscribe(topic, "s", 1, quietly=True, initialPosition="Earliest")
    data = encode("CLOSE_CONSUMER", consumer_id=1, request_id=1)
    data += encode("SUBSCRIBE", topic=topic, subscription="s", subType="Exclusive", consumer_id=1, request_id=2)
    data += encode("FLOW", consumer_id=1, messagePermits=5)
    c.raw(data, "close, subscribe, flow")
    c.recv()
    c.recv()
    c.none(0.4)
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.recv()


SINGLE_ACTIVE = ("Exclusive", "Failover")


def behind(s, kind, first, second):
    """A consumer of a topic with three messages, which sends both requests in one write."""
    topic = s.topic(kind)
    published(s, topic, 3)
    c = join(s, topic, kind, permits=0)
    both(c, f"{first[0]} {second[0]}", *(encode(name, consumer_id=1, **more) for name, more in (first, second)))
    return topic, c


@scenario
def seek_behind_seek_in_one_write(s):
    for kind in (*SINGLE_ACTIVE, "Shared", "Key_Shared"):
        _, c = behind(
            s,
            kind,
            ("SEEK", dict(request_id=1, message_id=EARLIEST)),
            ("SEEK", dict(request_id=2, message_id=LATEST)),
        )
        for _ in range(3):
            c.recv()
        c.none(0.3)


@scenario
def close_behind_seek_in_one_write(s):
    for kind in SINGLE_ACTIVE:
        _, c = behind(s, kind, ("SEEK", dict(request_id=1, message_id=LATEST)), ("CLOSE_CONSUMER", dict(request_id=2)))
        for _ in range(3):
            c.recv()
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def statistics_behind_seek_in_one_write(s):
    for kind in SINGLE_ACTIVE:
        _, c = behind(s, kind, ("SEEK", dict(request_id=1, message_id=LATEST)), ("CONSUMER_STATS", dict(request_id=2)))
        for _ in range(3):
            c.recv()


@scenario
def close_behind_unsubscribe_in_one_write(s):
    for kind in SINGLE_ACTIVE:
        topic, c = behind(s, kind, ("UNSUBSCRIBE", dict(request_id=1)), ("CLOSE_CONSUMER", dict(request_id=2)))
        c.recv_sorted(2)
        s.call("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def close_and_unsubscribe_behind_an_acknowledgement_in_one_write(s):
    """The acknowledgement is answered first: the client forgets the consumer with the later answer."""
    for second in ("CLOSE_CONSUMER", "UNSUBSCRIBE"):
        topic = s.topic(second)
        published(s, topic, 3)
        c = s.connect()
        c.subscribe(topic, subType="Shared", permits=10, quietly=True, initialPosition="Earliest")
        first = read(c, 3)[0].command.message_id
        ids = [dict(ledgerId=first.ledgerId, entryId=first.entryId)]
        both(
            c,
            f"ACK {second}",
            encode("ACK", consumer_id=1, ack_type="Individual", message_id=ids, request_id=1),
            encode(second, consumer_id=1, request_id=2),
        )
        c.recv()
        c.recv()
