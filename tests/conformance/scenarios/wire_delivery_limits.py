"""Who gets how much: priority levels, epochs, limits of unacked messages."""

from harness.steps import (
    ack,
    drained,
    namespace,
    published,
    stats,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def got(s, c, what="messages", seconds=0.7):
    s.note(what, told(drained(c, seconds)))


def redeliver(c, *ids, consumer_id=1, **more):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=consumer_id, message_ids=list(ids), **more)


@scenario
def consumer_epoch_of_exclusive(s):
    """A redelivery request with an epoch raises it; MESSAGE carries it from then on."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True, permits=100, consumer_epoch=3)
    published(s, topic, 1)
    c.recv()
    for epoch in (4, 2, 9):
        redeliver(c, consumer_epoch=epoch)
        c.recv()
    redeliver(c)
    c.recv()


@scenario
def consumer_epoch_of_shared(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, consumer_epoch=3, **SHARED)
    published(s, topic, 1)
    c.recv()
    redeliver(c, consumer_epoch=4)
    c.recv()


@scenario
def priority_levels_of_shared(s):
    """The best level gets all while it has permits, then the next."""
    topic = s.topic()
    a, b = s.connect(), s.connect()
    b.subscribe(topic, permits=100, priority_level=1, **SHARED)
    a.subscribe(topic, permits=5, priority_level=0, **SHARED)
    published(s, topic, 8)
    got(s, a, "level 0")
    got(s, b, "level 1")
    a.send("FLOW", consumer_id=1, messagePermits=100)
    published(s, topic, 2, 8)
    got(s, a, "level 0")
    got(s, b, "level 1")


@scenario
def unacked_limit_of_a_consumer(s):
    """At the limit it gets no more; permits are parked until half of it is acked."""
    ns = namespace(s, maxUnackedMessagesPerConsumer=4)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    ids = published(s, topic, 10)
    got(s, c)
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0])
    c.none()
    ack(c, ids[1])
    got(s, c)
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def unacked_limit_of_a_subscription(s):
    ns = namespace(s, maxUnackedMessagesPerSubscription=4)
    topic = s.topic("t", ns)
    a, b = s.connect(), s.connect()
    a.subscribe(topic, permits=100, **SHARED)
    ids = published(s, topic, 10)
    first = drained(a)
    s.note("at least the limit", 4 <= len(first) < 10 or len(first))
    b.subscribe(topic, permits=100, **SHARED)
    b.none()
    s.note("blocked", stats(s, topic)["subscriptions"]["sub"]["blockedSubscriptionOnUnackedMsgs"])
    ack(a, *ids)
    s.eventually("released", lambda: not stats(s, topic)["subscriptions"]["sub"]["blockedSubscriptionOnUnackedMsgs"])
