"""Delayed delivery: the statistics of waiting messages beside policies, moves of the cursor and changes of consumers."""

import time

from harness import figures as harness_figures
from harness.consumers import by_type, by_types, join
from harness.figures import internal_figures
from harness.steps import (
    ack,
    batch,
    drained,
    now_ms,
    published,
    read,
    rest,
    setup_connection,
    told,
)
from transcript import scenario

HOUR = 3_600_000
BEFORE_TIME = ("msgDelayed", "msgBacklogNoDelayed", "lastConsumedTimestamp")
"""Figures that Apache Pulsar moves when it reads a message before its time, which Magnetar does not."""


def figures(s, topic, what):
    harness_figures.figures(s, topic, what, BEFORE_TIME)


def later(s, topic, *names, ms=HOUR, first=0, **more):
    """Messages that are due after so many milliseconds; their ids."""
    return published(s, topic, [n.encode() for n in names], first, deliver_at_time=now_ms(ms), **more)


@by_types("Exclusive", "Failover")
def waiting_messages_in_the_statistics(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    later(s, topic, "a", "b")
    published(s, topic, [b"now"], 5)
    s.note("came", told(drained(c, 0.5)))
    figures(s, topic, "waiting")
    later(s, topic, "soon", ms=4000, first=9)
    s.note("came", told(drained(c, 0.5)))
    figures(s, topic, "waiting for another")
    s.note("came", told(drained(c, 4.2)))
    figures(s, topic, "due")
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(c, 0.5)))
    figures(s, topic, "after redelivery")


@by_types("Exclusive")
def waiting_messages_redelivered_by_id(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = later(s, topic, "a", "b", ms=700)
    s.note("came", told(read(c, 2)))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[1]])
    s.note("again", told(drained(c, 0.5)))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    d = join(s, topic, kind, consumer_name="m")
    s.note("next consumer", told(drained(d, 0.8)))
    figures(s, topic, "end")


@by_types("Failover", "Key_Shared")
def waiting_messages_skipped_and_cleared(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n", permits=0)
    later(s, topic, "a", "b", "c")
    published(s, topic, [b"now"], 5)
    s.http("POST", rest(topic, "/subscription/sub/skip/2"))
    figures(s, topic, "two skipped")
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", told(drained(c, 0.5)))
    figures(s, topic, "with permits")
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    figures(s, topic, "cleared")
    later(s, topic, "d", ms=600, first=7)
    s.note("came", told(drained(c, 1.4)))
    figures(s, topic, "end")


@by_types("Failover", "Shared")
def waiting_messages_over_an_unload(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    later(s, topic, "a")
    published(s, topic, [b"b"], 1)
    s.note("came", told(drained(c, 0.4)))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    figures(s, topic, "loaded")
    c.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="n")
    s.note("came", [f.payload.decode() for f in drained(c, 1.3) if f.type == "MESSAGE"])
    figures(s, topic, "served")


@by_type
def waiting_messages_and_an_ack_of_all(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    ids = later(s, topic, "a", "b", "c")
    s.note("came", told(drained(c, 0.4)))
    ack(c, ids[1])
    figures(s, topic, "second acknowledged")
    ack(c, ids[2], kind="Cumulative", quietly=False)
    figures(s, topic, "all acknowledged cumulatively")
    ack(c, *ids)
    figures(s, topic, "all acknowledged")
    internal_figures(s, topic, "insides")


@by_types("Exclusive", "Failover")
def waiting_batches_acknowledged_in_part(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    p = setup_connection(s)
    p.producer(topic, 5, quietly=True, producer_name="q")
    three = batch(b"a", b"b", b"c")
    ids = p.publish_all(5, [three], 0, num_messages_in_batch=3, deliver_at_time=now_ms(4000))
    s.note("at once", len(drained(c, 0.4)))
    ack(c, ids[0] | dict(ack_set=[0b101]))
    figures(s, topic, "part acknowledged early")
    frames = drained(c, 4.5)
    s.note("came", [[list(f.command.ack_set), f.command.redelivery_count] for f in frames])
    figures(s, topic, "end")


@scenario
def waiting_messages_of_a_topic_policy_that_comes_and_goes(s):
    topic = s.topic()
    c = join(s, topic, "Shared", consumer_name="n")
    path = rest(topic, "/delayedDelivery")
    s.http("POST", path, dict(active=False, tickTime=100, maxDeliveryDelayInMillis=0))
    time.sleep(1)
    later(s, topic, "off")
    s.note("came", told(drained(c, 0.5)))
    s.http("POST", path, dict(active=True, tickTime=100, maxDeliveryDelayInMillis=5000))
    time.sleep(1)
    later(s, topic, "too long", first=1)
    ids = later(s, topic, "short", ms=1000, first=2)
    s.note("stored", ids)
    s.note("came", told(drained(c, 0.5)))
    s.http("DELETE", path)
    time.sleep(1)
    s.note("came", told(drained(c, 1)))
    later(s, topic, "long", first=3)
    s.note("came", told(drained(c, 0.5)))
    figures(s, topic, "end")


@scenario
def longest_delay_of_a_topic_against_each_send(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("POST", rest(topic, "/delayedDelivery"), dict(active=True, tickTime=100, maxDeliveryDelayInMillis=5000))
    time.sleep(1)
    for i, ms in enumerate((0, 1000, 4000, 60_000, HOUR)):
        s.note(f"delay {ms}", [bool(x) for x in later(s, topic, "x", ms=ms, first=i, producer=f"p{i}")])
    figures(s, topic, "end")


@scenario
def waiting_messages_of_two_subscriptions_of_different_types(s):
    topic = s.topic()
    a = join(s, topic, "Shared", consumer_name="a", subscription="shared")
    b = join(s, topic, "Exclusive", consumer_name="b", subscription="exclusive")
    c = join(s, topic, "Key_Shared", consumer_name="c", subscription="keys")
    ids = later(s, topic, "x", "y", partition_key="k") + published(s, topic, [b"z"], 3, partition_key="k")
    for each in (a, b, c):
        s.note(each.name, told(drained(each, 0.4)))
    figures(s, topic, "waiting")
    for each in (a, b, c):
        ack(each, *ids[1:])
    figures(s, topic, "acknowledged")
    for each, sub in ((a, "shared"), (b, "exclusive"), (c, "keys")):
        each.ask("UNSUBSCRIBE", consumer_id=1)
        figures(s, topic, f"without {sub}")


@scenario
def waiting_messages_on_a_non_persistent_topic(s):
    topic = s.topic(domain="non-persistent")
    c = join(s, topic, "Shared", consumer_name="n")
    p = s.connect()
    p.producer(topic, 1, quietly=True, producer_name="p")
    p.publish_all(1, [b"a"], deliver_at_time=now_ms(HOUR))
    s.note("came", told(drained(c, 0.5)))
    figures(s, topic, "end")


@scenario
def waiting_messages_and_compaction(s):
    topic = s.topic()
    later(s, topic, "a", partition_key="k")
    published(s, topic, [b"b"], 1, partition_key="k")
    later(s, topic, "c", first=2, partition_key="l")
    s.http("PUT", rest(topic, "/compaction"), quietly=True)
    s.eventually("compacted", lambda: s.http("GET", rest(topic, "/compaction"), quietly=True)[1]["status"] == "SUCCESS")
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True, read_compacted=True, initialPosition="Earliest")
    s.note("compacted", told(drained(c, 0.5)))
    figures(s, topic, "end")
