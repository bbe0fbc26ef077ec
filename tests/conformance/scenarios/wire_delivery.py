"""FLOW, MESSAGE, ACK and redelivery on Exclusive and Shared subscriptions."""

import time

from harness.steps import (
    ack,
    backlog,
    drained,
    published,
    published_batches,
    read,
    rest,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def got(s, c, what="messages", seconds=0.7):
    s.note(what, told(drained(c, seconds)))


def redeliver(c, *ids, consumer_id=1, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=consumer_id, message_ids=list(ids), **more)


@scenario
def permits_add_up(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 6)
    c.none()
    for permits in (1, 2):
        c.send("FLOW", consumer_id=1, messagePermits=permits)
        got(s, c)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    got(s, c)


@scenario
def permits_of_a_shared_consumer_go_below_zero(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, **SHARED)
    published_batches(s, topic, [b"a", b"b", b"c"], [b"d"], [b"e"])
    for permits in (1, 1, 1, 1):
        c.send("FLOW", consumer_id=1, messagePermits=permits)
        c.none()
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def permits_given_back_for_what_was_acked_of_a_batch(s):
    """A batch of which two of three are acked costs one permit."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=3, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b", b"c"])
    read(c, 1)
    ack(c, ids[0] | dict(ack_set=[0b100], batch_size=3))
    redeliver(c)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=2)
    c.recv()
    published(s, topic, 2)
    c.recv(1)
    c.recv(1)


@scenario
def several_consumers_on_one_connection(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "a", 1, permits=10, quietly=True)
    c.subscribe(topic, "b", 2, permits=10, quietly=True)
    published(s, topic, 2)
    c.recv_sorted(4)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    published(s, topic, 1, 2)
    c.recv()
    c.none()


@scenario
def message_ids_of_a_partition(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    c = s.connect()
    c.subscribe(topic + "-partition-2", permits=10, quietly=True)
    published(s, topic + "-partition-2", 1)
    c.recv()
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def acks_of_many_holes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published(s, topic, 20)
    read(c, 20)
    for id_ in ids[1::2]:
        ack(c, id_)
    s.note("backlog", backlog(s, topic))
    redeliver(c)
    got(s, c)
    ack(c, *ids[0::2])
    s.note("backlog", backlog(s, topic))


@scenario
def holes_survive_an_unload(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published(s, topic, 10)
    read(c, 10)
    ack(c, ids[0], ids[3], ids[4], ids[9])
    time.sleep(1.2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, permits=100, **SHARED)
    got(s, c)


@scenario
def cumulative_ack_on_shared_is_ignored(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[2]])
    redeliver(c)
    got(s, c)


@scenario
def acks_are_idempotent(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 2)
    read(c, 2)
    for _ in range(2):
        c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0], ids[0]])
    c.ask("CONSUMER_STATS", consumer_id=1)
    redeliver(c)
    got(s, c)


@scenario
def ack_of_messages_never_delivered(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, **SHARED)
    ids = published(s, topic, 3)
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]])
    c.send("FLOW", consumer_id=1, messagePermits=10)
    got(s, c)


@scenario
def ack_by_another_consumer(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 2)
    read(a, 2)
    b.subscribe(topic, permits=10, **SHARED)
    b.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    a.ask("CONSUMER_STATS", consumer_id=1)
    a.close()
    got(s, b)


@scenario
def batch_acks_add_up(s):
    """Sets of remaining messages are intersected; when nothing remains the entry is acked."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    (first,) = published_batches(s, topic, [b"a", b"b", b"c", b"d"])
    read(c, 1)
    for bits in (0b1110, 0b1011):
        ack(c, first | dict(ack_set=[bits], batch_size=4))
        redeliver(c)
        c.recv()
    ack(c, first | dict(ack_set=[0b0101], batch_size=4))
    redeliver(c)
    c.none()
    s.note("backlog", backlog(s, topic))


@scenario
def batch_ack_with_an_empty_or_full_set(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b"], [b"c", b"d"], [b"e", b"f"])
    read(c, 3)
    ack(c, ids[0] | dict(ack_set=[0], batch_size=2))
    ack(c, ids[1] | dict(ack_set=[0b11], batch_size=2))
    ack(c, ids[2] | dict(ack_set=[0b01]))
    redeliver(c)
    c.recv()
    c.recv()
    c.none()


@scenario
def batch_ack_by_index_without_a_set(s):
    """batch_index in an ack means nothing: the whole entry is acked."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published_batches(s, topic, [b"a", b"b"], [b"c", b"d"])
    read(c, 2)
    ack(c, ids[0] | dict(batch_index=0))
    redeliver(c)
    c.recv()
    c.none()


@scenario
def cumulative_ack_inside_a_batch(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=100)
    ids = published_batches(s, topic, [b"a", b"b"], [b"c", b"d", b"e"], [b"f"])
    read(c, 3)
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1] | dict(ack_set=[0b110], batch_size=3)])
    redeliver(c)
    c.recv()
    c.recv()
    c.none()
    c.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[1] | dict(ack_set=[0b100], batch_size=3)])
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, permits=10)
    c.recv()
    c.recv()


@scenario
def batch_of_more_than_64_messages(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=200, **SHARED)
    (first,) = published_batches(s, topic, [b"%d" % i for i in range(70)])
    read(c, 1)
    ack(c, first | dict(ack_set=[2**63 - 1, 0b100001], batch_size=70))
    redeliver(c)
    s.note("ack set", [list(f.command.ack_set) for f in drained(c)])


@scenario
def partial_batch_acks_and_a_new_consumer(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=100, **SHARED)
    (first,) = published_batches(s, topic, [b"a", b"b", b"c"])
    read(a, 1)
    ack(a, first | dict(ack_set=[0b101], batch_size=3))
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b.subscribe(topic, permits=100, **SHARED)
    b.recv()


@scenario
def ack_with_properties_and_validation_error(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 2)
    read(c, 2)
    ids_and = dict(consumer_id=1, ack_type="Individual")
    c.ask("ACK", **ids_and, message_id=[ids[0]], validation_error="DecryptionError")
    c.ask("ACK", **ids_and, message_id=[ids[1]], properties=[dict(key="k", value=5)])
    s.note("backlog", backlog(s, topic))


@scenario
def redelivery_of_everything(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published(s, topic, 4)
    read(c, 4)
    ack(c, ids[1])
    for _ in range(2):
        redeliver(c)
        got(s, c)


@scenario
def redelivery_to_other_consumers(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=2, **SHARED)
    ids = published(s, topic, 2)
    read(a, 2)
    b.subscribe(topic, permits=10, **SHARED)
    redeliver(a, *ids)
    got(s, b)
    got(s, a)


@scenario
def redelivery_of_what_is_not_pending(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 2)
    read(a, 2)
    b.subscribe(topic, permits=10, **SHARED)
    redeliver(b, *ids)
    got(s, a)
    got(s, b)
    ack(a, ids[0])
    redeliver(a, ids[0], dict(ledgerId=10**9, entryId=1))
    got(s, a)


@scenario
def redelivery_counts_and_the_end_of_a_consumer(s):
    """A close does not count, a request does; the count goes with the message to another consumer."""
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=10, **SHARED)
    published(s, topic, 2)
    read(a, 2)
    redeliver(a)
    got(s, a)
    b.subscribe(topic, permits=10, **SHARED)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    got(s, b)
    b.close()
    time.sleep(0.2)
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    got(s, c)


@scenario
def redelivery_on_exclusive_rewinds(s):
    """Named ids do not matter: all that is not acked comes again, always with count 0."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=100)
    ids = published(s, topic, 4)
    read(c, 4)
    ack(c, ids[1])
    redeliver(c, ids[3])
    got(s, c)
    redeliver(c)
    got(s, c)


@scenario
def redelivery_needs_permits(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=2)
    published(s, topic, 2)
    read(c, 2)
    redeliver(c)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=1)
    got(s, c)
