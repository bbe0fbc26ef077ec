"""SEEK to every place by each subscription type: inside batches, between batches by time, beyond both ends."""

import time

from harness.joining import join, left
from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    drained,
    now_ms,
    published,
    published_batches,
    read,
    rest,
    texts,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


@scenario
def seek_inside_a_batch_on_shared(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    read(c, 2)
    c.ask("SEEK", consumer_id=1, message_id=ids[0] | dict(ack_set=[0b100], batch_index=2, batch_size=3))
    c.subscribe(topic, permits=100, **SHARED)
    c.recv()
    c.recv()
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def seek_forgets_partial_acks(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b", b"c"])
    read(c, 1)
    ack(c, ids[0] | dict(ack_set=[0b110], batch_size=3))
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.subscribe(topic, permits=100, **SHARED)
    c.recv()


@scenario
def seek_by_time_between_batches(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published_batches(s, topic, [b"a", b"b"])
    time.sleep(0.1)
    middle = now_ms()
    time.sleep(0.1)
    published_batches(s, topic, [b"c", b"d"])
    read(c, 2)
    keep, s.lines = s.lines, []
    c.ask("SEEK", quietly=True, consumer_id=1, message_publish_time=middle)
    s.lines = keep
    c.subscribe(topic, permits=100, quietly=True)
    s.note("entries", [f.command.message_id.entryId for f in drained(c)])


@scenario
def seek_of_key_shared(s):
    topic = s.topic()
    a, b = s.connect("left"), s.connect("right")
    for c in (a, b):
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=c.name, quietly=True)
    ids = [published(s, topic, [b"key-%d" % i], i, partition_key=f"key-{i}")[0] for i in range(6)]
    drained(a), drained(b)
    a.ask("SEEK", consumer_id=1, message_id=ids[2])
    b.recv()
    for c in (a, b):
        c.subscribe(topic, permits=0, subType="Key_Shared", consumer_name=c.name, quietly=True)
    for c in (a, b):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=100)
    for c in (a, b):
        s.note(c.name, told(drained(c)))


@scenario
def reader_that_seeks_around(s):
    topic = s.topic()
    ids = published(s, topic, 4)
    c = s.connect()
    more = dict(durable=False, permits=10, quietly=True)
    c.subscribe(topic, "r", 1, start_message_id=LATEST, **more)
    for name, id_ in dict(earliest=EARLIEST, third=ids[2], latest=LATEST).items():
        c.ask("SEEK", consumer_id=1, message_id=id_)
        c.subscribe(topic, "r", 1, start_message_id=id_, **more)
        s.note(name, texts(drained(c, 0.5)))


@scenario
def seek_keeps_other_subscriptions_as_they_are(s):
    topic = s.topic()
    c = s.connect()
    for i, name in enumerate("ab"):
        c.subscribe(topic, name, i, permits=10, quietly=True)
    ids = published(s, topic, 2)
    read(c, 4)
    for i in range(2):
        ack(c, ids[1], consumer_id=i, kind="Cumulative")
    c.ask("SEEK", consumer_id=0, message_id=ids[0])
    s.note("backlog", backlog(s, topic))
    c.none()


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
def seek_to_the_highest_ledger(s):
    """By SEEK, by REST, and as the first position of a subscription."""
    topic = s.topic()
    published(s, topic, 3)
    path = rest(topic, "/subscription/")
    for ledger in (2**63 - 2, 2**63 - 1):
        for entry in (0, 7, 2**63 - 1, -1):
            place = dict(ledgerId=ledger, entryId=entry)
            c = join(s, topic, "Exclusive", permits=0)
            c.ask("SEEK", consumer_id=1, message_id=place | dict(entryId=entry % 2**64))
            s.note(f"{entry} by SEEK", backlog(s, topic)["sub"])
            s.http("POST", path + "sub/skip_all", quietly=True)
            s.http("POST", path + "sub/resetcursor", place)
            s.note(f"{entry} by REST", backlog(s, topic)["sub"])
            s.http("PUT", path + f"new{entry}", place)
            s.note(f"{entry} at first", backlog(s, topic)[f"new{entry}"])
            s.http("DELETE", path + f"new{entry}", quietly=True)
