"""REDELIVER_UNACKNOWLEDGED_MESSAGES by type: parts of batches, epochs, permits, and the order beside new messages."""

from harness.joining import TYPES, join
from harness.steps import ack, drained, published, published_batches, read, texts, told
from transcript import scenario


def redeliver(c, *ids, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids), **more)


@scenario
def redelivery_after_a_cumulative_ack_in_the_middle(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published(s, topic, 5)
    read(c, 5)
    ack(c, ids[3])
    ack(c, ids[1], kind="Cumulative")
    redeliver(c)
    s.note("came", told(drained(c)))
    ack(c, ids[4], kind="Cumulative")
    redeliver(c)
    c.none()


@scenario
def redelivery_epoch_of_failover(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, subType="Failover", consumer_name="n", consumer_epoch=1, quietly=True)
    c.recv()
    published(s, topic, 2)
    c.recv()
    c.recv()
    redeliver(c, consumer_epoch=2)
    c.recv()
    c.recv()


@scenario
def consumer_without_an_epoch_gets_one_by_redelivery(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published(s, topic, 1)
    c.recv()
    redeliver(c, consumer_epoch=1)
    c.recv()
    redeliver(c)
    c.recv()


@scenario
def redelivery_between_new_messages(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=3, quietly=True)
    published(s, topic, 5)
    s.note("first", texts(read(c, 3)))
    redeliver(c)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("then", told(drained(c)))


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
