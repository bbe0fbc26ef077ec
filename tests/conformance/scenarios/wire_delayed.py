"""Delayed delivery: deliver_at_time with each subscription type, order, redelivery, acks."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    backlog,
    batch,
    drained,
    now_ms,
    published,
    read,
    rest,
    setup_connection,
    stats,
    texts,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True, permits=100)


def later(s, topic, name, seconds, sequence=0):
    """One delayed message; its id."""
    return published(s, topic, [name.encode()], sequence, deliver_at_time=now_ms(int(seconds * 1000)))[0]


def shared(s, topic, name="sub", **more):
    c = s.connect()
    c.subscribe(topic, name, **(SHARED | more))
    return c


def timed(s, c, n, start, *bounds):
    """n messages, and whether each came within its bounds (seconds since start)."""
    for low, high in bounds[:n]:
        frames = read(c, 1, 8)
        took = time.monotonic() - start
        s.note("came", [*texts(frames), low <= took <= high])


@scenario
def delayed_messages_come_in_the_order_they_are_due(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "third", 2.4)
    later(s, topic, "first", 1.2)
    later(s, topic, "second", 1.8)
    s.note("order", texts(read(c, 3)))


@scenario
def delayed_message_lets_others_pass(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.5)
    published(s, topic, [b"now"], 1)
    s.note("order", told(read(c, 2)))


@scenario
def deliver_at_time_in_the_past_is_now(s):
    topic = s.topic()
    c = shared(s, topic)
    for i, at in enumerate((-5000, -1)):
        published(s, topic, [b"%d" % i], i, deliver_at_time=now_ms(at))
    for i, at in enumerate((0, 1, -1), 2):
        published(s, topic, [b"%d" % i], i, deliver_at_time=at)
    s.note("at once", told(drained(c, 0.5)))


@scenario
def delay_by_subscription_type(s):
    """Only Shared and Key_Shared wait."""
    topic = s.topic()
    for kind in "Exclusive", "Shared", "Failover", "Key_Shared":
        s.connect(kind).subscribe(topic, kind, subType=kind, quietly=True, permits=10, consumer_name="n")
    time.sleep(1.5)
    later(s, topic, "later", 2.5)
    connections = [c for c in s.connections if c.name[0].isupper()]
    for c in connections:
        s.note(f"{c.name} at once", texts(drained(c, 0.3)))
    time.sleep(1.5)
    for c in connections:
        s.note(f"{c.name} when due", texts(drained(c, 0.5)))


@scenario
def delay_for_a_reader(s):
    topic = s.topic()
    a, b = s.connect(), s.connect()
    a.subscribe(topic, "exclusive", durable=False, quietly=True, permits=10)
    b.subscribe(topic, "shared", durable=False, **SHARED)
    later(s, topic, "later", 1.5)
    s.note("exclusive", texts(drained(a, 0.5)))
    s.note("shared at once", texts(drained(b, 0.3)))
    s.note("shared", texts(read(b, 1, 5)))


@scenario
def delayed_message_and_a_consumer_that_comes_late(s):
    topic = s.topic()
    start = time.monotonic()
    shared(s, topic).ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    later(s, topic, "due meanwhile", 0.5)
    later(s, topic, "due later", 2.5, 1)
    time.sleep(1)
    c = shared(s, topic)
    timed(s, c, 2, start, (0.9, 2), (2.3, 5))


@scenario
def delayed_message_needs_a_permit_when_due(s):
    topic = s.topic()
    c = shared(s, topic, permits=0)
    later(s, topic, "later", 0.5)
    time.sleep(1)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=1)
    s.note("came", texts(read(c, 1)))


@scenario
def delayed_message_takes_no_permit_while_waiting(s):
    topic = s.topic()
    c = shared(s, topic, permits=2)
    later(s, topic, "later", 2)
    published(s, topic, [b"a", b"b"], 1)
    s.note("at once", texts(drained(c, 0.5)))
    c.ask("CONSUMER_STATS", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    s.note("when due", texts(read(c, 1, 5)))


@scenario
def delayed_message_acked_before_it_is_due_never_comes(s):
    topic = s.topic()
    c = shared(s, topic)
    first = later(s, topic, "cancelled", 1.2)
    later(s, topic, "kept", 1.5, 1)
    time.sleep(0.3)
    c.ask("ACK", consumer_id=1, ack_type="Individual", message_id=[first])
    s.note("came", texts(drained(c, 2)))
    s.note("backlog", backlog(s, topic))


@scenario
def delayed_messages_are_backlog(s):
    topic = s.topic()
    shared(s, topic)
    later(s, topic, "a", 30)
    later(s, topic, "b", 30, 1)
    published(s, topic, [b"now"], 2)
    time.sleep(0.5)
    sub = stats(s, topic)["subscriptions"]["sub"]
    s.note("stats", {k: sub[k] for k in ("msgBacklog", "msgDelayed", "msgBacklogNoDelayed", "unackedMessages")})


@scenario
def redelivery_of_a_delayed_message_is_immediate(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1)
    read(c, 1, 5)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(c, 0.5)))


@scenario
def consumer_closed_before_a_message_is_due(s):
    topic = s.topic()
    a, b = shared(s, topic), shared(s, topic)
    later(s, topic, "later", 1.5)
    time.sleep(0.3)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    s.note("the other one has it", told(read(b, 1, 5)))


@scenario
def two_subscriptions_wait_each_for_itself(s):
    topic = s.topic()
    a, b = shared(s, topic, "a"), shared(s, topic, "b")
    later(s, topic, "later", 1.2)
    s.note("a", told(read(a, 1, 5)))
    s.note("b", told(read(b, 1, 5)))
    c = shared(s, topic, "c", initialPosition="Earliest")
    s.note("c after it was due", told(read(c, 1)))


@scenario
def delayed_message_survives_an_unload(s):
    topic = s.topic()
    c = shared(s, topic)
    start = time.monotonic()
    later(s, topic, "later", 2.5)
    published(s, topic, [b"now"], 1)
    s.note("at once", texts(drained(c, 0.3)))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.subscribe(topic, **SHARED)
    s.note("again at once", texts(drained(c, 0.5)))
    timed(s, c, 1, start, (2.3, 6))


@scenario
def seek_and_delayed_messages(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.8)
    published(s, topic, [b"now"], 1)
    drained(c, 0.3)
    c.ask("SEEK", consumer_id=1, message_id=EARLIEST)
    c.subscribe(topic, **SHARED)
    s.note("at once", texts(drained(c, 0.5)))
    s.note("when due", texts(read(c, 1, 5)))


@scenario
def exclusive_consumer_takes_over_a_waiting_subscription(s):
    """The type changed while a message waits: the new consumer has it at once."""
    topic = s.topic()
    a = shared(s, topic)
    later(s, topic, "later", 30)
    a.none()
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    b = s.connect()
    b.subscribe(topic, permits=10, quietly=True)
    s.note("at once", told(drained(b)))


@scenario
def delayed_batch_is_one_entry(s):
    """The time of the entry's metadata counts for all its messages."""
    topic = s.topic()
    a = shared(s, topic)
    c = setup_connection(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    two = dict(command=dict(num_messages=2), num_messages_in_batch=2)
    c.publish(1, 0, batch(b"a", b"b"), deliver_at_time=now_ms(1200), **two)
    c.recv()
    s.lines = keep
    a.none()
    s.note("when due", [f.metadata.num_messages_in_batch for f in read(a, 1, 5)])


@scenario
def delayed_delivery_switched_off_for_the_topic(s):
    topic = s.topic()
    c = shared(s, topic)
    s.http("POST", rest(topic, "/delayedDelivery"), dict(active=False, tickTime=1000), quietly=True)
    time.sleep(1)
    later(s, topic, "later", 30)
    s.note("at once", texts(drained(c)))


@scenario
def delayed_keys_of_key_shared(s):
    """A key's later message may overtake a delayed message of the same key."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, subType="Key_Shared", permits=100, quietly=True, consumer_name="n")
    published(s, topic, [b"later"], 0, partition_key="k", deliver_at_time=now_ms(1500))
    published(s, topic, [b"now"], 1, partition_key="k")
    s.note("order", told(read(c, 2, 5)))


@scenario
def many_delayed_messages_of_one_moment(s):
    topic = s.topic()
    c = shared(s, topic)
    due = now_ms(1800)
    published(s, topic, 50, deliver_at_time=due)
    frames = drained(c, 2.5)
    s.note("all in the order of publication", texts(frames) == [f"m{i}" for i in range(50)])
    s.note("not before they were due", now_ms() > due)


@scenario
def delayed_messages_are_shared_out(s):
    topic = s.topic()
    a, b = shared(s, topic, permits=5), shared(s, topic, permits=5)
    published(s, topic, 10, deliver_at_time=now_ms(1500))
    got = [texts(drained(c, 2)) for c in (a, b)]
    s.note("each", [len(x) for x in got])
    s.note("once", sorted(got[0] + got[1]) == sorted(f"m{i}" for i in range(10)))


@scenario
def cumulative_position_with_delayed_ones_before_it(s):
    """Acknowledged messages behind a waiting message stay acknowledged; the waiting message still comes."""
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.8)
    ids = published(s, topic, 3, 1)
    read(c, 3)
    ack(c, *ids)
    s.note("backlog", backlog(s, topic))
    s.note("came", texts(read(c, 1, 5)))


@scenario
def termination_and_a_waiting_message(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.5)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    c.none()
    (frame,) = read(c, 1, 5)
    s.note("came", texts([frame]))
    c.send("ACK", quietly=True, consumer_id=1, ack_type="Individual", message_id=[frame.message_id])
    c.recv(2)
    c.send("FLOW", consumer_id=1, messagePermits=1)
    c.recv(1)
