"""Acknowledgements of each kind on each subscription type: sets, ranges, acknowledgements of messages the consumer never had."""

from harness.joining import TYPES, join, left
from harness.steps import ack, backlog, drained, published, published_batches, read, texts, told
from transcript import scenario


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


def redeliver(c, *ids, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids), **more)


@scenario
def individual_acks_on_failover(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, subType="Failover", consumer_name="n", quietly=True)
    c.recv_quietly()
    ids = published(s, topic, 4)
    read(c, 4)
    ack(c, ids[2], ids[0])
    redeliver(c)
    s.note("came", told(drained(c)))


@scenario
def batch_acks_on_exclusive(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d"])
    read(c, 2)
    ack(c, ids[0] | dict(ack_set=[0b010], batch_size=3))
    redeliver(c)
    c.recv()
    c.recv()
    ack(c, ids[0] | dict(ack_set=[0], batch_size=3))
    redeliver(c)
    c.recv()
    c.none()
    s.note("backlog", backlog(s, topic))


@scenario
def cumulative_acks_on_failover(s):
    topic = s.topic()
    a, b = s.connect("a"), s.connect("b")
    for i, c in enumerate((a, b)):
        c.subscribe(topic, permits=100, subType="Failover", consumer_name=c.name, priority_level=i, quietly=True)
    a.recv_quietly()
    ids = published(s, topic, 4)
    read(a, 4)
    ack(a, ids[1], kind="Cumulative")
    s.note("by the active one", backlog(s, topic))
    b.ask("ACK", consumer_id=1, ack_type="Cumulative", message_id=[ids[2]])
    s.note("by the standby", backlog(s, topic))


@scenario
def ack_properties_that_come_twice_close(s):
    for name in ("Individual", "Cumulative"):
        topic = s.topic(name)
        ids = published(s, topic, 2)
        c = s.connect(name)
        c.subscribe(topic, permits=10, quietly=True, initialPosition="Earliest")
        read(c, 2)
        c.ask("ACK", consumer_id=1, ack_type=name, message_id=ids[:1], properties=[dict(key="a", value=1)])
        twice = [dict(key="a", value=value) for value in (1, 2)]
        c.ask("ACK", consumer_id=1, ack_type=name, message_id=ids[1:], properties=twice)
        s.note("backlog", backlog(s, topic))
