"""Messages that wait for their time beside other features: limits, expiry, deletion, policies, new subscriptions."""

import time

from harness.steps import (
    ack,
    backlog,
    batch,
    drained,
    namespace,
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


def later(s, topic, name, seconds, sequence=0, **more):
    return published(s, topic, [name.encode()], sequence, deliver_at_time=now_ms(int(seconds * 1000)), **more)[0]


def shared(s, topic, name="sub", **more):
    c = s.connect()
    c.subscribe(topic, name, **(SHARED | more))
    return c


@scenario
def delayed_messages_and_the_last_message_id(s):
    """The last id is that of the log, with any waiting messages."""
    topic = s.topic()
    c = shared(s, topic)
    published(s, topic, [b"now"])
    later(s, topic, "later", 60, 1)
    c.recv_quietly()
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def delayed_message_of_a_far_future(s):
    topic = s.topic()
    c = shared(s, topic)
    for i, at in enumerate((2**62, 2**63 - 1, now_ms(10**12))):
        published(s, topic, [b"%d" % i], i, deliver_at_time=at)
    published(s, topic, [b"now"], 9)
    s.note("came", texts(drained(c)))
    s.note("backlog", backlog(s, topic))


@scenario
def delayed_message_of_a_negative_time(s):
    topic = s.topic()
    c = shared(s, topic)
    for i, at in enumerate((-1, -(2**63))):
        published(s, topic, [b"%d" % i], i, deliver_at_time=at)
    s.note("came", texts(drained(c)))


@scenario
def new_subscription_on_waiting_messages(s):
    """A subscription at Earliest finds the messages waiting; a subscription at Latest never gets earlier messages."""
    topic = s.topic()
    later(s, topic, "later", 1.8)
    a, b = shared(s, topic, "a", initialPosition="Earliest"), shared(s, topic, "b")
    s.note("at once", [texts(drained(a, 0.3)), texts(drained(b, 0.1))])
    s.note("when due", [texts(drained(a, 2)), texts(drained(b, 0.1))])


@scenario
def skip_all_drops_waiting_messages(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.2)
    time.sleep(0.3)
    s.http("POST", rest(topic, "/subscription/sub/skip_all"), quietly=True)
    s.note("came", texts(drained(c, 2)))
    s.note("backlog", backlog(s, topic))


@scenario
def unsubscribe_drops_waiting_messages(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.2)
    time.sleep(0.2)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(topic, **SHARED)
    s.note("came", texts(drained(c, 2)))


@scenario
def topic_deleted_with_waiting_messages(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.2)
    time.sleep(0.2)
    s.http("DELETE", rest(topic, "?force=true"), quietly=True)
    c.recv()
    c.subscribe(topic, **SHARED)
    s.note("came", texts(drained(c, 2)))


@scenario
def waiting_messages_and_the_unacked_limit(s):
    """Waiting messages are not counted until they are delivered."""
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=2))
    c = shared(s, topic)
    for i in range(4):
        later(s, topic, f"later {i}", 1.5, i)
    ids = published(s, topic, [b"now"], 9)
    s.note("at once", texts(drained(c, 0.5)))
    s.note("when due", texts(drained(c, 2)))
    ack(c, ids[0])
    s.note("after an ack", texts(drained(c)))


@scenario
def due_message_of_a_consumer_that_leaves_is_not_delayed_again(s):
    topic = s.topic()
    a, b = shared(s, topic), shared(s, topic, permits=0)
    later(s, topic, "later", 1)
    s.note("a", told(read(a, 1, 4)))
    b.send("FLOW", consumer_id=1, messagePermits=5)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    s.note("b at once", told(drained(b, 0.5)))


@scenario
def delay_longer_than_the_policy_allows(s):
    """maxDeliveryDelayInMillis of the topic: refused with an error of that message.

    The delay is deliver_at_time less the publish time that the client wrote.
    """
    topic = s.topic()
    c, d = s.connect(), shared(s, topic)
    c.producer(topic, 1, quietly=True, producer_name="p")
    policy = dict(active=True, tickTime=1000, maxDeliveryDelayInMillis=5000)
    s.http("POST", rest(topic, "/delayedDelivery"), policy, quietly=True)
    time.sleep(1)
    keep, answers = s.lines, []
    s.lines = []
    for i, (delay, age) in enumerate(((60_000, 0), (1000, 0), (1000, 3_600_000), (60_000, -59_000), (-1000, 0))):
        c.publish(1, i, deliver_at_time=now_ms(delay), publish_time=now_ms(-age))
        answers.append(c.recv_quietly())
    s.lines = keep
    s.note("answers", [[f.type, getattr(f.command, "error", None)] for f in answers if f])
    s.note("came", len(drained(d, 2)))


@scenario
def delay_on_partitions(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    for i in range(2):
        c.subscribe(f"{topic}-partition-{i}", "sub", i, **SHARED)
    later(s, topic + "-partition-0", "zero", 1.6)
    later(s, topic + "-partition-1", "one", 1.0)
    s.note("order", texts(read(c, 2, 5)))


@scenario
def delayed_and_partly_acked_batch(s):
    topic = s.topic()
    c, p = shared(s, topic), setup_connection(s)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    two = dict(command=dict(num_messages=2), num_messages_in_batch=2)
    p.publish(1, 0, batch(b"a", b"b"), deliver_at_time=now_ms(1200), **two)
    id_ = p.recv().message_id
    s.lines = keep
    ack(c, id_ | dict(ack_set=[0b10], batch_size=2))
    s.note("when due", [list(f.command.ack_set) for f in read(c, 1, 5)])


@scenario
def delayed_messages_with_priority_levels(s):
    topic = s.topic()
    low, high = shared(s, topic, priority_level=1), shared(s, topic, priority_level=0)
    for i in range(3):
        later(s, topic, f"m{i}", 1, i)
    s.note("high", texts(drained(high, 2)))
    s.note("low", texts(drained(low, 0.1)))


@scenario
def delayed_message_with_deduplication(s):
    topic = s.topic("t", namespace(s, deduplication=True))
    c = shared(s, topic)
    later(s, topic, "later", 1.2)
    later(s, topic, "again", 0.1)
    s.note("came", texts(drained(c, 2)))


@scenario
def delayed_messages_while_nobody_is_connected(s):
    """The messages become due all the same; the first consumer gets them in the order of the log or of their times."""
    topic = s.topic()
    shared(s, topic).ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    later(s, topic, "second", 0.6)
    later(s, topic, "first", 0.3, 1)
    time.sleep(1)
    c = shared(s, topic)
    s.note("came", sorted(texts(read(c, 2))))


@scenario
def delayed_message_due_within_the_tick(s):
    topic = s.topic()
    c = shared(s, topic)
    start = now_ms()
    later(s, topic, "soon", 0.3)
    s.note("came", texts(read(c, 1)))
    s.note("in time", 200 < now_ms() - start < 1500)


@scenario
def stats_of_waiting_messages_go_down(s):
    topic = s.topic()
    c = shared(s, topic)
    for i in range(3):
        later(s, topic, f"m{i}", 1.5, i)

    def waiting():
        return stats(s, topic)["subscriptions"]["sub"]["msgDelayed"]

    s.eventually("three wait", lambda: waiting() == 3, 1)
    s.note("came", len(drained(c, 2)))
    s.note("waiting", waiting())


@scenario
def key_shared_consumers_and_delayed_keys(s):
    topic = s.topic()
    connections = []
    for name in ("left", "right"):
        c = s.connect(name)
        c.subscribe(topic, subType="Key_Shared", permits=100, quietly=True, consumer_name=name)
        connections.append(c)
    for i in range(10):
        later(s, topic, f"key-{i}", 1.5, i, partition_key=f"key-{i}")
    for c in connections:
        s.note(c.name, sorted(texts(drained(c, 2.2))))


@scenario
def seek_by_time_and_waiting_messages(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 2)
    published(s, topic, [b"now"], 1)
    s.note("at once", texts(drained(c, 0.3)))
    c.ask("SEEK", consumer_id=1, message_publish_time=1)
    c.subscribe(topic, **SHARED)
    s.note("after the seek", texts(drained(c, 0.4)))
    s.note("when due", texts(read(c, 1, 4)))


@scenario
def seek_forward_over_waiting_messages(s):
    topic = s.topic()
    c = shared(s, topic)
    later(s, topic, "later", 1.5)
    ids = published(s, topic, [b"now"], 1)
    drained(c, 0.3)
    c.ask("SEEK", consumer_id=1, message_id=ids[0])
    c.subscribe(topic, **SHARED)
    s.note("came", texts(drained(c, 2)))
