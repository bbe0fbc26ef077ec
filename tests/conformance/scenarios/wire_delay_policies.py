"""Delayed delivery beside its policies: ticks, the longest delay, switches at each level, and loads of the topic."""

import time

from harness.consumers import by_types, join
from harness.steps import ack, drained, namespace, now_ms, published, rest, told
from transcript import scenario

HOUR = 3_600_000


def later(s, topic, name, ms=HOUR, first=0, **more):
    return published(s, topic, [name.encode()], first, deliver_at_time=now_ms(ms), **more)


def policy(s, topic, body):
    path = rest(topic, "/delayedDelivery")
    s.call("POST", path, body)
    s.eventually("policy", lambda: s.http("GET", path, quietly=True)[1])
    s.call("GET", path + "?applied=true", keep=True)


@by_types("Shared", "Key_Shared")
def delays_switched_off_by_a_policy_of_the_topic(s, kind):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    policy(s, topic, {"active": False, "tickTime": 1000})
    c = join(s, topic, kind, consumer_name="n")
    later(s, topic, "a")
    s.note("off", told(drained(c, 0.7)))
    policy(s, topic, {"active": True, "tickTime": 100})
    time.sleep(0.5)
    later(s, topic, "b", first=3)
    s.note("on", told(drained(c, 0.7)))
    s.call("DELETE", rest(topic, "/delayedDelivery"))
    s.call("GET", rest(topic, "/delayedDelivery"), keep=True)


@by_types("Shared", "Key_Shared", "Exclusive", "Failover")
def delays_up_to_a_longest_one(s, kind):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    policy(s, topic, {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 30_000})
    time.sleep(0.5)
    c = join(s, topic, kind, consumer_name="n")
    p = s.connect()
    p.producer(topic, 1, quietly=True, producer_name="p")
    for i, ms in enumerate((100, 25_000, 60_000, -5000)):
        (stored,) = p.publish_all(1, [b"m%d" % i], i, deliver_at_time=now_ms(ms))
        s.note(f"sent {ms}", bool(stored))
    s.note("came", told(drained(c, 0.8)))


@scenario
def delays_with_odd_policies(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    path = rest(topic, "/delayedDelivery")
    for body in (
        {"active": True},
        {"tickTime": 5},
        {"active": True, "tickTime": 0},
        {"active": True, "tickTime": -1},
        {"active": True, "tickTime": "x"},
        {"active": True, "tickTime": 10, "maxDeliveryDelayInMillis": -1},
        {"active": True, "tickTime": 10, "maxDeliveryDelayInMillis": 2**62},
        {"active": "yes", "tickTime": 10},
        {},
        None,
    ):
        s.call("POST", path, body)
        s.call("GET", path, keep=True)


@scenario
def delays_of_a_namespace_and_a_topic(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic), quietly=True)
    above = f"/admin/v2/namespaces/{ns}/delayedDelivery"
    s.call("POST", above, {"active": False, "tickTime": 500})
    s.call("GET", above, keep=True)
    s.call("GET", rest(topic, "/delayedDelivery?applied=true"), keep=True)
    policy(s, topic, {"active": True, "tickTime": 100})
    c = join(s, topic, "Shared", consumer_name="n")
    later(s, topic, "a")
    s.note("came", told(drained(c, 0.6)))
    s.call("DELETE", rest(topic, "/delayedDelivery"))
    s.call("GET", rest(topic, "/delayedDelivery?applied=true"), keep=True)
    s.call("DELETE", above)
    s.call("GET", above, keep=True)


@by_types("Shared", "Key_Shared")
def delays_of_messages_over_a_load(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, consumer_name="n")
    later(s, topic, "far")
    later(s, topic, "near", 7000, first=1)
    published(s, topic, [b"now"], 2)
    s.note("came", told(drained(c, 0.5)))
    s.http("PUT", rest(topic, "/unload"))
    c.recv(5)
    s.lookup(topic)
    d = join(s, topic, kind, consumer_name="n")
    s.note("again", told(drained(d, 0.6)))
    s.note("due", told(drained(d, 7)))


@by_types("Shared", "Key_Shared")
def delays_and_a_consumer_that_leaves(s, kind):
    topic = s.topic()
    a = join(s, topic, kind, consumer_name="a")
    ids = later(s, topic, "x", 5000) + later(s, topic, "y", 5000, first=1)
    published(s, topic, [b"now"], 2)
    s.note("a", told(drained(a, 0.5)))
    a.close()
    time.sleep(5)
    b = join(s, topic, kind, consumer_name="b")
    s.note("b", told(drained(b, 0.7)))
    ack(b, ids[0])
    b.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(b, 0.7)))
