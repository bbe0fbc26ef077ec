"""How much a consumer gets: permits, priority levels, epochs, limits of unacknowledged messages."""

import time

from harness.steps import ack, drained, namespace, published, published_batches, read, rest, stats, texts, told
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


@scenario
def priority_levels_of_key_shared(s):
    """The key decides, for any priority level."""
    topic = s.topic()
    for i, name in enumerate(("left", "right")):
        c = s.connect(name)
        c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name=name, priority_level=i, quietly=True)
    for i in range(12):
        published(s, topic, [b"key-%d" % i], i, partition_key=f"key-{i}")
    for c in s.connections:
        if c.name in {"left", "right"}:
            s.note(c.name, sorted(texts(drained(c))))


@scenario
def priority_levels_with_equal_ones(s):
    """Two of the best level share, the third waits."""
    topic = s.topic()
    a, b, c = s.connect(), s.connect(), s.connect()
    for x, level in ((a, 0), (b, 0), (c, 1)):
        x.subscribe(topic, permits=2, priority_level=level, **SHARED)
    for i in range(6):
        published(s, topic, 1, i)
        time.sleep(0.05)
    s.note("each", [len(drained(x, 0.3)) for x in (a, b, c)])


def shares_of_levels(s, *levels, permits=100, domain="persistent"):
    """The messages that Shared consumers of these levels get, in the order of the levels."""
    topic = s.topic(domain=domain)
    consumers = [s.connect() for _ in levels]
    for c, level in zip(consumers, levels, strict=True):
        c.subscribe(topic, permits=permits, priority_level=level, **SHARED)
    for i in range(6):
        published(s, topic, 1, i)
        time.sleep(0.05)
    s.note(f"of {levels}", [texts(drained(c, 0.3)) for c in consumers])


@scenario
def negative_and_large_priority_levels(s):
    """A level below zero is better, but a consumer of level 0 has its turn all the same."""
    for levels in ((2**31 - 1, -5, 0), (-5, 0), (0, -5), (0, 0, -5)):
        shares_of_levels(s, *levels)


@scenario
def priority_levels_that_are_all_below_zero(s):
    for levels in ((-5, -1), (-1, -5), (-1, 1), (-2, -2, -1, -1), (-3, -2, -1, 0, 1)):
        shares_of_levels(s, *levels)


@scenario
def negative_priority_levels_of_few_permits(s):
    for levels in ((-5, -1, 3), (-1, -5, -5), (-5, 0, 5)):
        shares_of_levels(s, *levels, permits=2)


@scenario
def negative_priority_levels_of_a_non_persistent_topic(s):
    for levels in ((-5, -1), (-1, -5), (0, -5), (-3, -2, 0)):
        shares_of_levels(s, *levels, domain="non-persistent")


@scenario
def permits_given_one_by_one(s):
    """As a client without a queue does."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, **SHARED)
    published(s, topic, 5)
    for _ in range(5):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
        (frame,) = read(c, 1)
        ack(c, frame.message_id)
        s.note("came", texts([frame]))
    c.none()


@scenario
def flow_before_anything_is_published(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=1, quietly=True)
    time.sleep(0.3)
    published(s, topic, 2)
    c.recv()
    c.none()
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def unacked_limits_leave_exclusive_alone(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=2, maxUnackedMessagesPerSubscription=3))
    c = s.connect()
    c.subscribe(topic, permits=100, quietly=True)
    published(s, topic, 6)
    s.note("came", texts(drained(c)))


@scenario
def unacked_limit_and_key_shared(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=3))
    c = s.connect()
    c.subscribe(topic, permits=100, subType="Key_Shared", consumer_name="n", quietly=True)
    ids = published(s, topic, 6)
    s.note("came", texts(drained(c)))
    ack(c, *ids[:2])
    s.note("then", texts(drained(c)))


@scenario
def unacked_limit_switched_off(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerConsumer=0, maxUnackedMessagesPerSubscription=0))
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    published(s, topic, 20)
    s.note("came", len(drained(c)))


@scenario
def permits_of_partly_acked_batches_on_exclusive(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=3, quietly=True)
    ids = published_batches(s, topic, [b"a", b"b", b"c"], [b"d", b"e"])
    read(c, 1)
    ack(c, ids[0] | dict(ack_set=[0b100], batch_size=3))
    redeliver(c)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=1)
    s.note("came", [f.command.message_id.entryId for f in drained(c)])
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def first_burst_of_a_dispatch_rate(s):
    """The messages that go out at once, for rates of messages and of bytes, for new messages and redeliveries."""
    rates = (
        dict(dispatchThrottlingRateInMsg=-1, dispatchThrottlingRateInByte=250),
        dict(dispatchThrottlingRateInMsg=-1, dispatchThrottlingRateInByte=900),
        dict(dispatchThrottlingRateInMsg=5, dispatchThrottlingRateInByte=100),
        dict(dispatchThrottlingRateInMsg=3, dispatchThrottlingRateInByte=-1),
    )
    for kind in ("Exclusive", "Shared", "Key_Shared"):
        for i, rate in enumerate(rates):
            topic = s.topic(f"{kind}{i}")
            published(s, topic, [b"x" * 100] * 8)
            c = s.connect()
            c.subscribe(topic, permits=50 if i == 3 else 0, quietly=True, subType=kind, initialPosition="Earliest")
            if i == 3:
                s.note("without a rate", len(drained(c, 0.4)))
            s.http("POST", rest(topic, "/dispatchRate"), rate | {"ratePeriodInSecond": 60}, quietly=True)
            time.sleep(0.5)
            if i == 3:
                c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
            else:
                c.send("FLOW", consumer_id=1, messagePermits=50)
            s.note(f"{kind} {rate}", len(drained(c, 0.6)))
