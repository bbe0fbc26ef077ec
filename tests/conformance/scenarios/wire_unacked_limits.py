"""A subscription whose consumers together hold more unacknowledged messages than it may: when it stops, when it
continues, and for which consumers.
"""

import time

from harness.steps import ack, drained, namespace, published, rest, stats, texts, told
from transcript import encode_send, scenario

SHARED = dict(subType="Shared", quietly=True)
KEY_SHARED = dict(subType="Key_Shared", quietly=True)
SECONDS = 0.7


def blocked(s, topic):
    return stats(s, topic)["subscriptions"]["sub"]["blockedSubscriptionOnUnackedMsgs"]


def members(s, topic, count, permits=100, **kind):
    """Consumers of connections of their own."""
    out = []
    for _ in range(count):
        c = s.connect()
        c.subscribe(topic, permits=permits, **(kind or SHARED))
        out.append(c)
    return out


def burst(s, topic, count):
    """So many messages in one write."""
    p = s.connect("burst")
    p.producer(topic, 1, quietly=True, producer_name="burst")
    p._write(b"".join(encode_send(1, i, b"m%d" % i) for i in range(count)))


def ids_of(frames):
    ids = (f.command.message_id for f in frames)
    return [dict(ledgerId=each.ledgerId, entryId=each.entryId) for each in ids]


def rounds(s, topic, consumers, acks_of, later=0, most=12):
    """Until no message is left: notes the messages of all consumers, then one consumer acknowledges as many of them as
    `acks_of` computes. After the first round `later` more messages wait.
    """
    held, got = [], []
    for turn in range(most):
        new = [f for c in consumers for f in drained(c, SECONDS)]
        held += new
        got += texts(new)
        s.note(f"turn {turn}", [len(new), blocked(s, topic)])
        if turn == 0 and later:
            published(s, topic, later, 100)
        if not held:
            break
        done, held = held[: acks_of(held)], held[acks_of(held) :]
        ack(consumers[0], *ids_of(done))
    s.note("all", sorted(got, key=lambda text: int(text[1:])))


@scenario
def one_of_two_acknowledges_what_both_hold(s):
    """All at once; then the waiting messages come at once."""
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=4))
    consumers = members(s, topic, 2)
    burst(s, topic, 10)
    rounds(s, topic, consumers, len, later=10)


@scenario
def one_of_three_acknowledges_two_at_a_time(s):
    """Dispatch goes on when less than half of the limit is left: here when nothing is, two are not enough."""
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=4))
    consumers = members(s, topic, 3)
    burst(s, topic, 10)
    rounds(s, topic, consumers, lambda held: min(2, len(held)), later=1)


@scenario
def one_of_two_acknowledges_one_at_a_time(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=9))
    consumers = members(s, topic, 2)
    burst(s, topic, 10)
    rounds(s, topic, consumers, lambda held: min(1, len(held)), later=1)


@scenario
def a_backlog_is_read_under_a_limit(s):
    """The messages are there before the consumers: one read goes beyond the limit."""
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=4))
    c = s.connect()
    c.subscribe(topic, consumer_id=9, **SHARED)
    burst(s, topic, 20)
    s.eventually("stored", lambda: stats(s, topic)["msgInCounter"] == 20)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=9)
    rounds(s, topic, members(s, topic, 2), len)


@scenario
def a_limit_of_one(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=1))
    consumers = members(s, topic, 2)
    burst(s, topic, 3)
    rounds(s, topic, consumers, len, later=2)


@scenario
def a_limit_and_key_shared(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=4))
    consumers = members(s, topic, 1, **KEY_SHARED)
    burst(s, topic, 10)
    rounds(s, topic, consumers, lambda held: min(2, len(held)), later=1)


@scenario
def a_consumer_leaves_a_subscription_that_is_blocked(s):
    topic = s.topic("t", namespace(s, maxUnackedMessagesPerSubscription=4))
    [a] = members(s, topic, 1)
    burst(s, topic, 10)
    s.note("first", [len(drained(a, SECONDS)), blocked(s, topic)])
    [b] = members(s, topic, 1)
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    rounds(s, topic, [b], len)


def limited(s, per_subscription, per_consumer=None):
    """A topic with these limits as its policies."""
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("POST", rest(topic, "/maxUnackedMessagesOnSubscription"), per_subscription, quietly=True)
    if per_consumer is not None:
        s.http("POST", rest(topic, "/maxUnackedMessagesOnConsumer"), per_consumer, quietly=True)
    time.sleep(0.5)
    return topic


def both(function):
    """One scenario for Shared, one for Key_Shared."""
    for kind in ("Shared", "Key_Shared"):

        def run(s, kind=kind):
            function(s, kind)

        run.__name__ = f"{function.__name__}_{kind.lower()}"
        scenario(run)
    return function


def member(s, topic, kind, name, permits):
    c = s.connect(name)
    how = dict(initialPosition="Earliest", consumer_name=name, quietly=True)
    c.subscribe(topic, permits=permits, subType=kind, **how)
    return c


def state(s, topic):
    found = stats(s, topic)["subscriptions"]["sub"]
    rows = [[each["consumerName"], each["unackedMessages"], each["availablePermits"]] for each in found["consumers"]]
    s.note("state", [found["unackedMessages"], found["blockedSubscriptionOnUnackedMsgs"], found["msgInReplay"], rows])


@both
def redelivery_while_the_subscription_is_blocked(s, kind):
    topic = limited(s, 4)
    ids = published(s, topic, 12)
    c = member(s, topic, kind, "c", 6)
    s.note("first", told(drained(c, SECONDS)))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=ids[:2])
    s.note("without permits", told(drained(c, SECONDS)))
    c.send("FLOW", consumer_id=1, messagePermits=20)
    s.note("with permits", told(drained(c, SECONDS)))
    state(s, topic)
    d = member(s, topic, kind, "d", 20)
    s.note("new consumer", told(drained(d, SECONDS)))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=ids[1:3])
    s.note("d", told(drained(d, SECONDS)))
    s.note("c", told(drained(c, SECONDS)))
    state(s, topic)


@both
def waiting_entries_while_the_subscription_is_blocked(s, kind):
    """Entries that a read brought, and that no consumer below its own limit could take, go out in spite of the limit
    of the subscription.
    """
    topic = limited(s, 5, per_consumer=3)
    ids = published(s, topic, 14)
    c = member(s, topic, kind, "c", 20)
    s.note("c", told(drained(c, SECONDS)))
    d = member(s, topic, kind, "d", 20)
    s.note("d", told(drained(d, SECONDS)))
    for i in ids[:3]:
        ack(c, i)
        s.note("c", told(drained(c, SECONDS)))
        state(s, topic)
