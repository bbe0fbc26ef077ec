"""Reads that wait for entries while the permits of their consumers go: the next entries wait in the replay queue."""

import time

from harness.steps import ack, drained, published, rest, setup_connection, stats, told
from transcript import scenario

SHARING = ("Shared", "Key_Shared")


def shown(s, topic, what):
    """Note the waiting entries and the reads of the subscription."""
    row = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]["cursors"]["s"]
    figures = {k: stats(s, topic)["subscriptions"]["s"][k] for k in ("msgInReplay", "msgBacklog", "unackedMessages")}
    read = int(row["readPosition"].partition(":")[2])
    s.note(what, figures | {"read": read, "waits": [row["waitingReadOp"], row["subscriptionHavePendingRead"]]})


def joined(s, topic, kind, name, permits):
    c = s.connect(name)
    c.subscribe(topic, "s", 1, permits, quietly=True, subType=kind, consumer_name=name)
    return c


def more(s, topic, *payloads, first, key="k"):
    published(s, topic, list(payloads), first, partition_key=key)
    time.sleep(0.1)


def by_sharing(function):
    for kind in SHARING:

        def run(s, kind=kind):
            function(s, kind)

        run.__name__ = f"{function.__name__}_{kind.lower()}"
        scenario(run)
    return function


@by_sharing
def permits_used_up_by_redeliveries(s, kind):
    topic = s.topic()
    c = joined(s, topic, kind, "a", 3)
    more(s, topic, b"a", b"b", first=0)
    s.note("first", told(drained(c, 0.3)))
    shown(s, topic, "a permit is left")
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(c, 0.3)))
    shown(s, topic, "no permit is left")
    more(s, topic, b"c", first=2)
    shown(s, topic, "a message more")
    more(s, topic, b"d", first=3)
    shown(s, topic, "another message")
    c.send("FLOW", consumer_id=1, messagePermits=2)
    s.note("now", told(drained(c, 0.3)))
    shown(s, topic, "permits")


@by_sharing
def permits_of_a_consumer_that_left(s, kind):
    topic = s.topic()
    a, b = joined(s, topic, kind, "a", 0), joined(s, topic, kind, "b", 5)
    drained(b, 0.2)
    b.close()
    s.eventually("b left", lambda: len(stats(s, topic)["subscriptions"]["s"]["consumers"]) == 1)
    shown(s, topic, "b left")
    for i in range(3):
        more(s, topic, b"m%d" % i, first=i)
        shown(s, topic, f"message {i}")
    a.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("now", told(drained(a, 0.3)))
    shown(s, topic, "permits")


@by_sharing
def waiting_read_ends_with_the_last_consumer(s, kind):
    topic = s.topic()
    c = joined(s, topic, kind, "a", 2)
    more(s, topic, b"a", first=0)
    drained(c, 0.3)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(c, 0.3)))
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    c.subscribe(topic, "s", 1, quietly=True, subType=kind)
    shown(s, topic, "joined again")
    more(s, topic, b"b", first=1)
    shown(s, topic, "a message")


@by_sharing
def waiting_read_and_the_limit_of_unacknowledged_messages(s, kind):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("POST", rest(topic, "/maxUnackedMessagesOnSubscription"), 3, quietly=True)
    time.sleep(0.4)
    c = joined(s, topic, kind, "a", 10)
    setup_connection(s)
    for i in range(6):
        more(s, topic, b"m%d" % i, first=i)
    frames = drained(c, 0.3)
    s.note("limited", told(frames))
    shown(s, topic, "limited")
    for i, frame in enumerate(frames[:3]):
        place = frame.command.message_id
        ack(c, {"ledgerId": place.ledgerId, "entryId": place.entryId}, quietly=True)
        s.note(f"acknowledged {i}", told(drained(c, 0.3)))
        shown(s, topic, f"acknowledged {i}")
