"""Failover: the active consumer, the notices, the redelivered messages."""

import time

from harness.steps import ack, drained, published, read, rest, texts
from transcript import scenario

FAILOVER = dict(subType="Failover", quietly=True)


def join(s, topic, name, priority=0, permits=100, **more):
    """A failover consumer on a connection of its own, named like it; its changes are left unread."""
    c = s.connect(name)
    c.subscribe(topic, permits=permits, consumer_name=name, priority_level=priority, **FAILOVER, **more)
    return c


def heard(s, *connections, seconds=1.6):
    """Changes and messages of each connection after the broker's second of delay."""
    time.sleep(seconds)
    for c in connections:
        frames = list(iter(lambda c=c: c.recv_quietly(0.2), None))
        changes = [f.command.is_active for f in frames if f.type == "ACTIVE_CONSUMER_CHANGE"]
        s.note(c.name, [changes, texts([f for f in frames if f.type == "MESSAGE"])])


def partition(s):
    """The first partition of a topic of three: there the choice is by number, not by hash."""
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    return topic + "-partition-0", topic + "-partition-1", topic + "-partition-2"


@scenario
def first_failover_consumer_is_told_and_served_after_a_delay(s):
    topic = s.topic()
    published(s, topic, 1)
    c = s.connect()
    start = time.monotonic()
    c.subscribe(topic, subType="Failover", consumer_name="a", initialPosition="Earliest", permits=10)
    c.recv()
    s.note("after a second", 0.8 < time.monotonic() - start < 3)
    c.recv()


@scenario
def failover_joiner_of_lower_priority(s):
    """The joiner gets its notice of not being active at once; the active consumer gets none."""
    topic = s.topic()
    a = join(s, topic, "a", 0)
    heard(s, a)
    b = join(s, topic, "b", 1)
    heard(s, a, b)
    published(s, topic, 2)
    heard(s, a, b, seconds=0.5)


@scenario
def failover_joiner_of_higher_priority_takes_over(s):
    topic = s.topic()
    b = join(s, topic, "b", 1)
    heard(s, b)
    published(s, topic, 2)
    heard(s, b, seconds=0.3)
    a = join(s, topic, "a", 0)
    heard(s, a, b)
    published(s, topic, 1, 2)
    heard(s, a, b, seconds=0.5)


@scenario
def failover_hands_over_what_was_not_acked(s):
    topic = s.topic()
    a = join(s, topic, "a", 0)
    heard(s, a)
    ids = published(s, topic, 4)
    read(a, 4)
    ack(a, ids[0])
    ack(a, ids[2])
    b = join(s, topic, "b", 1)
    heard(s, a, b)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    heard(s, b)


@scenario
def failover_after_a_lost_connection(s):
    topic = s.topic()
    a = join(s, topic, "a", 0)
    heard(s, a)
    b = join(s, topic, "b", 1)
    heard(s, b)
    published(s, topic, 2)
    time.sleep(0.3)
    a.close()
    heard(s, b)


@scenario
def failover_on_partitions_is_by_number(s):
    """Consumers sorted by name: partition i is for consumer i modulo their number."""
    partitions = partition(s)
    connections = {}
    for name in "abc":
        connections[name] = c = s.connect(name)
        for i, topic in enumerate(partitions):
            c.subscribe(topic, "sub", i, subType="Failover", consumer_name=name, quietly=True)
    time.sleep(3)
    for c in connections.values():
        last = {}
        for f in iter(lambda c=c: c.recv_quietly(0.2), None):
            last[f.command.consumer_id] = f.command.is_active
        s.note(c.name, [last.get(i) for i in range(3)])


@scenario
def failover_on_a_partition_by_name_order(s):
    topic, _, _ = partition(s)
    b = join(s, topic, "b")
    heard(s, b)
    a = join(s, topic, "a")
    heard(s, a, b)
    c = join(s, topic, "c")
    heard(s, a, b, c)
    a.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    heard(s, b, c)


@scenario
def failover_priority_on_a_partition(s):
    """Only the best level counts."""
    _, topic, _ = partition(s)
    a = join(s, topic, "a", 1)
    heard(s, a)
    b = join(s, topic, "b", 0)
    c = join(s, topic, "c", 0)
    heard(s, a, b, c)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    heard(s, a, b)


@scenario
def failover_standby_acks_and_asks(s):
    topic = s.topic()
    a = join(s, topic, "a", 0)
    b = join(s, topic, "b", 1)
    heard(s, a, b)
    ids = published(s, topic, 3)
    read(a, 3)
    b.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[1]])
    b.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    heard(s, a, b, seconds=0.5)
    a.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    heard(s, a, b, seconds=0.5)
    b.ask("CONSUMER_STATS", consumer_id=1)
    b.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def failover_seek_closes_the_active_one(s):
    """No consumer is active until one joins or leaves: the standby gets neither notice nor messages."""
    topic = s.topic()
    a = join(s, topic, "a", 0)
    b = join(s, topic, "b", 1)
    heard(s, a, b)
    ids = published(s, topic, 2)
    read(a, 2)
    b.ask("SEEK", consumer_id=1, message_id=ids[0])
    s.note("active", [f.type for f in iter(lambda: a.recv_quietly(0.3), None)])
    heard(s, b, seconds=2.5)
    a.subscribe(topic, permits=100, consumer_name="a", priority_level=0, **FAILOVER)
    heard(s, a, b)


@scenario
def failover_standby_unsubscribes_behind_a_seek(s):
    """The standby is not active: only a consumer that joins or leaves makes it active."""
    topic = s.topic()
    a = join(s, topic, "a", 0)
    b = join(s, topic, "b", 1)
    heard(s, a, b)
    ids = published(s, topic, 1)
    b.ask("SEEK", consumer_id=1, message_id=ids[0])
    b.ask("UNSUBSCRIBE", consumer_id=1)


@scenario
def failover_without_permits_stays_active(s):
    topic = s.topic()
    a = join(s, topic, "a", 0, permits=0)
    b = join(s, topic, "b", 1)
    heard(s, a, b)
    published(s, topic, 1)
    heard(s, a, b, seconds=0.5)
    a.send("FLOW", consumer_id=1, messagePermits=1)
    heard(s, a, b, seconds=0.3)


@scenario
def failover_of_one_name_twice(s):
    topic = s.topic()
    a, b = join(s, topic, "same", 0), s.connect("second")
    b.subscribe(topic, consumer_name="same", priority_level=0, **FAILOVER)
    heard(s, a, b)
    a.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    heard(s, b)


@scenario
def failover_reader(s):
    topic = s.topic()
    published(s, topic, 1)
    a = join(s, topic, "a", 0, durable=False, initialPosition="Earliest")
    b = join(s, topic, "b", 1, durable=False)
    heard(s, a, b)
    s.note("rest", texts(drained(a)))


@scenario
def failover_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    a, b = s.connect("a"), s.connect("b")
    p = s.connect("producer")
    p.producer(topic, 1, quietly=True)
    a.subscribe(topic, subType="Failover", consumer_name="a", priority_level=0, permits=10)
    heard(s, a)
    b.subscribe(topic, subType="Failover", consumer_name="b", priority_level=1, permits=10)
    heard(s, a, b)
    p.publish_all(1, [b"0"])
    heard(s, a, b, seconds=0.3)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    heard(s, b)
    p.publish_all(1, [b"1"], 1)
    heard(s, b, seconds=0.3)


@scenario
def failover_higher_priority_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    a, b = s.connect("a"), s.connect("b")
    b.subscribe(topic, subType="Failover", consumer_name="b", priority_level=1, permits=10)
    heard(s, b)
    a.subscribe(topic, subType="Failover", consumer_name="a", priority_level=0, permits=10)
    heard(s, a, b)


@scenario
def failover_consumer_closed_by_a_lost_connection_and_back(s):
    topic = s.topic()
    a = join(s, topic, "a", 0)
    heard(s, a)
    b = join(s, topic, "b", 1)
    a.close()
    heard(s, b)
    a = s.connect("a again")
    a.subscribe(topic, permits=100, consumer_name="a", priority_level=0, **FAILOVER)
    heard(s, a, b)


@scenario
def names_of_consumers_decide_on_a_partition(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    a, b = s.connect("a"), s.connect("b")
    for c in (a, b):
        for i in range(2):
            more = dict(subType="Failover", consumer_name=c.name, permits=10, quietly=True)
            c.subscribe(f"{topic}-partition-{i}", "sub", i, **more)
    time.sleep(2.5)
    for i in range(2):
        published(s, f"{topic}-partition-{i}", [b"%d" % i])
    for c in (a, b):
        s.note(c.name, texts(drained(c)))
