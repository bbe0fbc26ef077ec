"""Acknowledgements of every form on every subscription type: their effects, their answers, and redelivered messages."""

import time

from harness.consumers import by_type, join
from harness.steps import EARLIEST, LATEST, drained, published, published_batches, read, rest, stats, told


def books(s, topic, name="sub"):
    sub = stats(s, topic)["subscriptions"][name]
    s.note("backlog, unacked, sent", [sub["msgBacklog"], sub["unackedMessages"], sub["msgOutCounter"]])
    for x in sorted(sub["consumers"], key=lambda x: x["consumerName"]):
        s.note("consumer", [x["availablePermits"], x["unackedMessages"], x["msgOutCounter"]])


def acknowledge(c, *ids, kind="Individual", **more):
    c.ask("ACK", consumer_id=1, ack_type=kind, message_id=list(ids), **more)


def again(s, c):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note(
        "again",
        [[f.command.message_id.entryId, list(f.command.ack_set), f.command.redelivery_count] for f in drained(c)],
    )


@by_type
def acks_of_positions_that_are_not(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 3)
    read(c, 3)
    first = ids[0]
    for id_ in (
        first | dict(entryId=2**64 - 1),
        first | dict(entryId=77),
        first | dict(ledgerId=2**62, entryId=0),
        EARLIEST,
    ):
        acknowledge(c, id_)
    books(s, topic)
    again(s, c)


@by_type
def cumulative_acks_of_positions_that_are_not(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 3)
    read(c, 3)
    for id_ in (
        ids[0] | dict(entryId=2**64 - 1),
        ids[0] | dict(entryId=77),
        EARLIEST,
        LATEST,
    ):
        acknowledge(c, id_, kind="Cumulative")
        books(s, topic)
    again(s, c)


@by_type
def acks_of_several_ids(s, kind):
    """Twice the same in one command, none at all, two at once cumulatively."""
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 5)
    read(c, 5)
    acknowledge(c, ids[1], ids[1], ids[3])
    books(s, topic)
    acknowledge(c)
    acknowledge(c, kind="Cumulative")
    acknowledge(c, ids[0], ids[2], kind="Cumulative")
    books(s, topic)
    again(s, c)


@by_type
def ack_sets_of_odd_lengths(s, kind):
    """Shorter and longer than the batch, with bits beyond it, of a message that is no batch."""
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published_batches(s, topic, [b"a"] * 3, [b"b"] * 70, [b"c"] * 70, [b"d"] * 3)
    ids += published(s, topic, 1, 200)
    read(c, 5)
    acknowledge(c, ids[0] | dict(ack_set=[0b1111110], batch_size=3))
    acknowledge(c, ids[1] | dict(ack_set=[2**63 - 1], batch_size=70))
    acknowledge(c, ids[2] | dict(ack_set=[2**63 - 1, 1, 1], batch_size=70))
    acknowledge(c, ids[3] | dict(ack_set=[0b011]))
    acknowledge(c, ids[4] | dict(ack_set=[0b1]))
    s.note("backlog", stats(s, topic)["subscriptions"]["sub"]["msgBacklog"])
    again(s, c)


@by_type
def ack_sets_that_only_ever_shrink(s, kind):
    """A later ack with more bits gives nothing back."""
    topic = s.topic()
    c = join(s, topic, kind)
    (id_,) = published_batches(s, topic, [b"a"] * 6)
    read(c, 1)
    for bits in (0b111110, 0b011111, 0b111111, 0b001000):
        acknowledge(c, id_ | dict(ack_set=[bits], batch_size=6))
        books(s, topic)
    again(s, c)
    acknowledge(c, id_ | dict(ack_set=[0b110111], batch_size=6))
    books(s, topic)
    again(s, c)


@by_type
def cumulative_acks_within_batches(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published_batches(s, topic, [b"a"] * 4, [b"b"] * 4, [b"c"] * 4)
    read(c, 3)
    acknowledge(c, ids[1] | dict(ack_set=[0b1100], batch_size=4), kind="Cumulative")
    books(s, topic)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    again(s, c)
    acknowledge(c, ids[0] | dict(ack_set=[0b1000], batch_size=4), kind="Cumulative")
    acknowledge(c, ids[1] | dict(ack_set=[0b1000], batch_size=4), kind="Cumulative")
    acknowledge(c, ids[2] | dict(ack_set=[0b0111], batch_size=4))
    again(s, c)
    acknowledge(c, ids[1], kind="Cumulative")
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    books(s, topic)


@by_type
def acks_with_each_validation_error(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 5)
    read(c, 5)
    errors = (
        "UncompressedSizeCorruption",
        "DecompressionError",
        "ChecksumMismatch",
        "BatchDeSerializeError",
        "DecryptionError",
    )
    for id_, error in zip(ids, errors, strict=True):
        acknowledge(c, id_, validation_error=error)
    books(s, topic)
    again(s, c)


@by_type
def acks_move_the_mark_delete_position(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 5)
    read(c, 5)
    for k in (1, 0, 4, 2, 3):
        acknowledge(c, ids[k])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@by_type
def acks_of_one_who_closed(s, kind):
    """Neither answered nor heard; the next consumer gets everything."""
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 3)
    read(c, 3)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]], request_id=77)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.none()
    other = join(s, topic, kind, name="other")
    s.note("other", told(drained(other)))


@by_type
def acks_and_what_a_new_consumer_gets(s, kind):
    """Whole entries, parts and holes, as the next consumer sees them."""
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published_batches(s, topic, *[[b"x"] * 3] * 5)
    read(c, 5)
    acknowledge(c, ids[0], ids[3])
    acknowledge(c, ids[1] | dict(ack_set=[0b101], batch_size=3))
    acknowledge(c, ids[4] | dict(ack_set=[0b100], batch_size=3))
    c.close()
    time.sleep(0.3)
    c = join(s, topic, kind, name="next")
    s.note(
        "next",
        [[f.command.message_id.entryId, list(f.command.ack_set), f.command.redelivery_count] for f in drained(c)],
    )
    books(s, topic)


@by_type
def acks_before_anything_is_delivered(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, permits=0)
    ids = published_batches(s, topic, [b"a"] * 2, [b"b"] * 2, [b"c"] * 2)
    acknowledge(c, ids[1])
    acknowledge(c, ids[0] | dict(ack_set=[0b10], batch_size=2))
    books(s, topic)
    c.send("FLOW", consumer_id=1, messagePermits=2)
    s.note("came", [[f.command.message_id.entryId, list(f.command.ack_set)] for f in drained(c)])
    books(s, topic)


@by_type
def acks_of_a_reader(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, durable=False, start_message_id=EARLIEST)
    ids = published(s, topic, 4)
    read(c, 4)
    acknowledge(c, ids[0], ids[2])
    acknowledge(c, ids[1], kind="Cumulative")
    books(s, topic)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    again(s, c)


@by_type
def acks_with_transactions_of_each_kind(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 3)
    read(c, 3)
    for ack_type in ("Individual", "Cumulative"):
        acknowledge(c, ids[0], kind=ack_type, txnid_least_bits=1, txnid_most_bits=2)
        acknowledge(c, ids[0], kind=ack_type, txnid_least_bits=1)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]], txnid_least_bits=1, txnid_most_bits=2)
    c.none()
    books(s, topic)


@by_type
def acks_on_a_non_persistent_topic(s, kind):
    topic = s.topic(domain="non-persistent")
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True, subType=kind)
    published(s, topic, 2)
    frames = read(c, 2)
    s.note("came", told(frames))
    for ack_type in ("Individual", "Cumulative"):
        acknowledge(c, frames[0].message_id, kind=ack_type)
        acknowledge(c, dict(ledgerId=9, entryId=9), kind=ack_type)
    acknowledge(c, frames[1].message_id | dict(ack_set=[1], batch_size=3))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.none()
    books(s, topic)


@by_type
def acks_over_ledgers(s, kind):
    """Cumulative and individual, of the ledger before the last."""
    topic = s.topic()
    c = join(s, topic, kind)
    old = published(s, topic, 3)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    new = published(s, topic, 3, 3)
    c = join(s, topic, kind, name="d")
    drained(c)
    acknowledge(c, old[1], new[1])
    acknowledge(c, old[0], kind="Cumulative")
    books(s, topic)
    acknowledge(c, old[2])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    again(s, c)
