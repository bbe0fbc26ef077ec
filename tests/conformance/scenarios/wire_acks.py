"""Acknowledgements, redelivery, SEEK, UNSUBSCRIBE and questions in combination."""

import time

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    drained,
    published,
    published_batches,
    read,
    rest,
    stats,
    texts,
    told,
)
from transcript import encode, encode_send, scenario

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
AUTO = dict(keySharedMode="AUTO_SPLIT")


def becomes_active(c):
    """Whether it is (the next change tells), or will never be."""
    frame = c.recv_quietly(4)
    return frame is None or frame.command.is_active


def join(s, topic, sub_type, name="a", consumer_id=1, permits=100, subscription="sub", **more):
    """A consumer that is served when this returns."""
    c = s.connect(name)
    more = ({"keySharedMeta": AUTO} if sub_type == "Key_Shared" else {}) | more
    c.subscribe(
        topic,
        subscription,
        consumer_id,
        quietly=True,
        subType=sub_type,
        consumer_name=name,
        initialPosition="Earliest",
        **more,
    )
    while sub_type == "Failover" and not becomes_active(c):
        pass
    if permits:
        c.send("FLOW", quietly=True, consumer_id=consumer_id, messagePermits=permits)
    return c


def left(s, topic, subscription="sub"):
    """What a newcomer is given: payload, redelivery count, ack set."""
    c = s.connect("left")
    c.subscribe(topic, subscription, 77, 100, quietly=True, subType="Shared")
    s.note("left", [[f.payload[-2:].decode("latin-1"), list(f.command.ack_set)] for f in drained(c, 0.4)])
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=77)


@scenario
def acks_of_every_kind_by_type(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        ids = published(s, topic, 6)
        c = join(s, topic, sub_type)
        read(c, 6)
        ack(c, ids[1], quietly=False)
        ack(c, ids[3], kind="Cumulative", quietly=False)
        ack(c, ids[4], ids[5], kind="Cumulative", quietly=False)
        ack(c, quietly=False)
        ack(c, kind="Cumulative", quietly=False)
        ack(c, ids[0], ids[0], quietly=False)
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        left(s, topic)


@scenario
def ack_sets_that_overlap_by_type(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        [b] = published_batches(s, topic, [b"a", b"b", b"c", b"d"])
        c = join(s, topic, sub_type)
        read(c, 1)
        for words in ([0b1100], [0b0110], [0b1111], [0b0100, 5], [-1], [2**63 - 1]):
            ack(c, b | dict(ack_set=words), quietly=False)
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        c.recv(1)
        ack(c, b | dict(ack_set=[0b1011]), quietly=False)
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        c.recv(0.5)


@scenario
def cumulative_ack_sets(s):
    for sub_type in ("Exclusive", "Failover"):
        topic = s.topic(sub_type)
        first, second, third = published_batches(s, topic, *[[b"%d%d" % (i, j) for j in range(3)] for i in range(3)])
        c = join(s, topic, sub_type)
        read(c, 3)
        ack(c, second | dict(ack_set=[0b100]), kind="Cumulative")
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        s.note("again", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c, 0.4)])
        ack(c, second | dict(ack_set=[0b110]), kind="Cumulative")
        ack(c, first | dict(ack_set=[0b110]), kind="Cumulative")
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        s.note("again", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c, 0.4)])
        ack(c, third | dict(ack_set=[0]), kind="Cumulative")
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        s.note("again", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c, 0.4)])


@scenario
def single_message_with_an_ack_set(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        ids = published(s, topic, 4)
        c = join(s, topic, sub_type)
        read(c, 4)
        for ident, words in zip(ids, ([1], [0], [2], [-1]), strict=True):
            ack(c, ident | dict(ack_set=words))
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
        left(s, topic)


@scenario
def acks_by_a_consumer_that_has_none_of_them(s):
    for sub_type in ("Shared", "Key_Shared"):
        topic = s.topic(sub_type)
        ids = published(s, topic, 4)
        c = join(s, topic, sub_type, "a")
        read(c, 4)
        d = join(s, topic, sub_type, "b", permits=0)
        ack(d, ids[0])
        ack(d, ids[1], ids[2])
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        s.note("again", told(drained(c, 0.5)))
        s.note("backlog", backlog(s, topic))


@scenario
def acks_of_another_subscription(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Shared", subscription="one", permits=0)
    c.subscribe(topic, "two", 2, 100, quietly=True, subType="Shared", initialPosition="Earliest")
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=100)
    read(c, 4)
    ack(c, ids[0], consumer_id=2)
    ack(c, ids[1], consumer_id=1)
    s.note("backlog", backlog(s, topic))


@scenario
def acks_before_delivery(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        ids = published(s, topic, 4)
        c = join(s, topic, sub_type, permits=0)
        ack(c, ids[1])
        ack(c, ids[3])
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
        s.note("read", texts(drained(c, 0.4)))


@scenario
def acks_of_the_future(s):
    for sub_type in ("Exclusive", "Shared"):
        topic = s.topic(sub_type)
        ids = published(s, topic, 2)
        c = join(s, topic, sub_type)
        read(c, 2)
        nxt = ids[1] | dict(entryId=ids[1]["entryId"] + 1)
        ack(c, nxt, quietly=False)
        ack(c, nxt | dict(entryId=nxt["entryId"] + 1), kind="Cumulative", quietly=False)
        ack(c, dict(ledgerId=ids[0]["ledgerId"] + 1000, entryId=0), quietly=False)
        published(s, topic, 2, first=2)
        s.note("read", texts(drained(c, 0.4)))
        s.note("backlog", backlog(s, topic))


@scenario
def acks_with_transaction_fields_of_zero(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Shared")
    read(c, 2)
    ack(c, ids[0], quietly=False, txnid_least_bits=0, txnid_most_bits=0)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]], txnid_least_bits=1)
    c.none(0.3)
    s.note("backlog", backlog(s, topic))


@scenario
def redelivery_by_type(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        ids = published(s, topic, 4)
        c = join(s, topic, sub_type)
        read(c, 4)
        ack(c, ids[1])
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[2], ids[1], ids[0], ids[0]])
        s.note("some", told(drained(c, 0.4)))
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        s.note("all", told(drained(c, 0.4)))
        c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[3]], consumer_epoch=4)
        s.note(
            "epoch",
            [[f.payload.decode(), f.command.redelivery_count, f.command.consumer_epoch] for f in drained(c, 0.4)],
        )


@scenario
def redelivery_of_parts_of_batches(s):
    for sub_type in ("Shared", "Key_Shared"):
        topic = s.topic(sub_type)
        [b] = published_batches(s, topic, [b"a", b"b", b"c"])
        c = join(s, topic, sub_type)
        read(c, 1)
        for words in ([0b110], [0b100]):
            ack(c, b | dict(ack_set=words))
            c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[b])
            f = c.recv_quietly(1)
            s.note("again", [f.command.redelivery_count, list(f.command.ack_set)])
            c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[b | dict(batch_index=2)])
            f = c.recv_quietly(1)
            s.note("again", [f.command.redelivery_count, list(f.command.ack_set)])


@scenario
def redelivery_after_which_permits_are_short(s):
    topic = s.topic()
    published(s, topic, 5)
    c = join(s, topic, "Shared", permits=5)
    read(c, 5)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.none(0.2)
    for permits in (1, 2):
        c.send("FLOW", consumer_id=1, messagePermits=permits)
        s.note("again", told(drained(c, 0.3)))
    d = join(s, topic, "Shared", "b", permits=10)
    s.note("b", told(drained(d, 0.4)))


@scenario
def seek_to_every_place_by_type(s):
    for sub_type in ("Exclusive", "Shared", "Key_Shared"):
        topic = s.topic(sub_type)
        ids = published(s, topic, 3)
        for place in (
            EARLIEST,
            LATEST,
            ids[1],
            ids[1] | dict(entryId=99),
            dict(ledgerId=0, entryId=0),
            dict(ledgerId=2**40, entryId=0),
        ):
            c = join(s, topic, sub_type, permits=0)
            c.ask("SEEK", consumer_id=1, message_id=place)
            c = join(s, topic, sub_type)
            s.note("read", texts(drained(c, 0.3)))
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def seek_by_odd_times(s):
    topic = s.topic()
    published(s, topic, 3)
    for moment in (
        0,
        1,
        int(time.time() * 1000) - 60_000,
        int(time.time() * 1000) + 60_000,
        2**63 - 1,
        2**63,
        2**64 - 1,
    ):
        c = join(s, topic, "Exclusive", permits=0)
        c.ask("SEEK", quietly=True, consumer_id=1, message_publish_time=moment)
        c = join(s, topic, "Exclusive")
        s.note("read", texts(drained(c, 0.2)))
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def seek_with_fields_of_chunks_and_batches(s):
    topic = s.topic()
    first, second = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e", b"f"])
    for more in (
        dict(batch_index=0), dict(batch_index=1), dict(batch_index=2, batch_size=3), dict(ack_set=[0b110]), dict(ack_set=[0]),
        dict(ack_set=[0b111]), dict(batch_index=1, ack_set=[0b100]), dict(partition=7),
    ):  # fmt: skip
        c = join(s, topic, "Exclusive", permits=0)
        c.ask("SEEK", quietly=True, consumer_id=1, message_id=second | more)
        c = join(s, topic, "Exclusive")
        s.note("read", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c, 0.2)])
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def seek_of_a_consumer_that_then_goes_on(s):
    """Commands for the consumer that SEEK closed, before it subscribes again."""
    topic = s.topic()
    ids = published(s, topic, 3)
    c = join(s, topic, "Shared")
    read(c, 3)
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    c.ask("SEEK", consumer_id=1, message_id=ids[0])
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]], request_id=9)
    c.none(0.3)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    left(s, topic)


@scenario
def seek_twice_by_two_consumers(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = s.connect()
    for i in (1, 2):
        c.subscribe(topic, "sub", i, quietly=True, subType="Shared", initialPosition="Earliest")
    c.ask("SEEK", consumer_id=1, message_id=ids[1])
    c.none(0.3)
    c.ask("SEEK", consumer_id=2, message_id=ids[2])
    left(s, topic)


@scenario
def unsubscribe_by_type_and_force(s):
    for sub_type in ("Exclusive", "Shared", "Key_Shared"):
        for force in (False, True):
            topic = s.topic(f"{sub_type}{force}")
            c = join(s, topic, sub_type, "a", permits=0)
            if sub_type != "Exclusive":
                d = join(s, topic, sub_type, "b", permits=0)
                d.ask("UNSUBSCRIBE", consumer_id=1, **({"force": True} if force else {}))
            c.ask("UNSUBSCRIBE", consumer_id=1, **({"force": True} if force else {}))
            c.none(0.1)
            s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))


@scenario
def unsubscribe_and_what_follows_it(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.ask("SEEK", consumer_id=1, message_id=ids[0])
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.subscribe(topic, "sub", 1, 5, subType="Shared")
    c.none(0.3)
    published(s, topic, 1, first=2)
    c.recv()


@scenario
def unsubscribe_of_a_reader(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "r", 1, 5, durable=False, initialPosition="Earliest")
    read(c, 2)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))
    c.subscribe(topic, "r", 1, 5, durable=True)
    c.ask("UNSUBSCRIBE", consumer_id=1, force=True)
    s.note("subscriptions", sorted(stats(s, topic)["subscriptions"]))


@scenario
def unsubscribe_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c, d = s.connect(), s.connect()
    c.subscribe(topic, "sub", 1, subType="Shared")
    d.subscribe(topic, "sub", 1, subType="Shared")
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1, force=True)
    d.none(0.3)
    d.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(topic, "sub", 2)
    c.ask("UNSUBSCRIBE", consumer_id=2)


@scenario
def last_message_id_by_type_and_contents(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        c = join(s, topic, sub_type, permits=0)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        ids = published(s, topic, 2)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        published_batches(s, topic, [b"a", b"b", b"c"])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        ack(c, ids[0])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def last_message_id_over_ledgers(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c = join(s, topic, "Exclusive", "b")
    read(c, 2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    ack(c, ids[0], kind="Cumulative")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    published(s, topic, 1, first=2)
    read(c, 1)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def last_message_id_of_readers(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = s.connect()
    for i, start in enumerate((EARLIEST, LATEST, ids[0], ids[2], ids[2] | dict(entryId=50))):
        c.subscribe(topic, f"r{i}", i, quietly=True, durable=False, start_message_id=start)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=i)


@scenario
def last_message_id_of_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        published(s, part, i)
        c.subscribe(part, "sub", i, quietly=True)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=i)


@scenario
def questions_about_a_consumer_by_type(s):
    for sub_type in TYPES:
        topic = s.topic(sub_type)
        ids = published(s, topic, 3)
        c = join(s, topic, sub_type, permits=10)
        read(c, 3)
        c.ask("CONSUMER_STATS", consumer_id=1)
        ack(c, ids[0])
        c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def close_and_ack_in_one_write(s):
    """What comes behind the closing of a consumer is for nobody."""
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


@scenario
def consumed_ledgers_are_gone_after_a_load(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, "late", 1, quietly=True)
    time.sleep(0.3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, "early", 2, 10, quietly=True, initialPosition="Earliest")
    c.none(0.3)
    published(s, topic, 1, first=2)
    c.recv()


@scenario
def consumed_ledgers_stay_until_the_next_is_begun(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive", "a")
    read(c, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv_quietly()
    s.lookup(topic)
    c = join(s, topic, "Exclusive", "b")
    read(c, 2)
    ack(c, ids[1], kind="Cumulative")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    time.sleep(1.2)
    reader = s.connect()
    reader.subscribe(topic, "r", 1, 10, quietly=True, durable=False, initialPosition="Earliest")
    s.note("earliest", texts(drained(reader, 0.4)))
    reader.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    [third] = published(s, topic, 1, first=2)
    c.recv()
    ack(c, third)
    time.sleep(0.5)
    reader.subscribe(topic, "r", 1, 10, quietly=True, durable=False, initialPosition="Earliest")
    s.note("earliest", texts(drained(reader, 0.4)))


@scenario
def terminated_topic_stays_readable_when_all_is_consumed(s):
    topic = s.topic()
    ids = published(s, topic, 2)
    c = join(s, topic, "Exclusive")
    read(c, 2)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    time.sleep(0.3)
    ack(c, ids[1], kind="Cumulative")
    c.subscribe(topic, "new", 2, 10, quietly=True, initialPosition="Earliest")
    s.note("new", texts(drained(c, 0.5)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def acknowledged_before_an_unload(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    c = join(s, topic, "Exclusive")
    read(c, 3)
    ack(c, ids[2], kind="Cumulative")
    time.sleep(0.3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c = join(s, topic, "Exclusive")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.subscribe(topic, "r", 2, 10, quietly=True, durable=False, initialPosition="Earliest")
    c.none(0.3)
