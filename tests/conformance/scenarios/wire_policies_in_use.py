"""Policies that change while producers and consumers are open."""

import time

from harness.steps import ack, avro, backlog, batch, drained, namespace, now_ms, published, rest, schema, stats, texts
from transcript import scenario

NAMESPACES = "/admin/v2/namespaces/"


def new_topic(s, name="t"):
    """A topic in a namespace of its own, a connection, and the REST path of the namespace."""
    ns = namespace(s)
    topic = f"persistent://{ns}/{name}"
    s.http("PUT", rest(topic), quietly=True)
    s.lookup(topic)
    return topic, s.connect(), NAMESPACES + ns


def change(s, path, body=None):
    """Set a policy, or remove it without a body; return when it is in force."""
    s.call("DELETE" if body is None else "POST", path, body)
    time.sleep(0.7)


@scenario
def producers_beyond_a_lowered_limit(s):
    topic, c, ns = new_topic(s)
    for i in range(3):
        c.producer(topic, i, producer_name=f"p{i}", quietly=True)
    change(s, ns + "/maxProducersPerTopic", 2)
    c.none(0.3)
    c.publish(0, 0)
    c.recv()
    c.producer(topic, 5, producer_name="late")
    c.ask("CLOSE_PRODUCER", producer_id=0)
    c.producer(topic, 5, producer_name="late")
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 5, producer_name="late")
    change(s, rest(topic, "/maxProducers"), 1)
    c.producer(topic, 6, producer_name="later")
    change(s, rest(topic, "/maxProducers"))
    change(s, ns + "/maxProducersPerTopic")
    c.producer(topic, 6, producer_name="later")


@scenario
def consumers_beyond_lowered_limits(s):
    topic, c, ns = new_topic(s)
    for i in range(3):
        c.subscribe(topic, "s", i, subType="Shared", quietly=True)
    change(s, ns + "/maxConsumersPerSubscription", 2)
    c.subscribe(topic, "s", 7, subType="Shared")
    c.subscribe(topic, "s2", 8, subType="Shared")
    change(s, ns + "/maxConsumersPerTopic", 3)
    c.subscribe(topic, "s3", 9, subType="Shared")
    c.ask("CLOSE_CONSUMER", consumer_id=0)
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    c.subscribe(topic, "s3", 9, subType="Shared")
    change(s, ns + "/maxSubscriptionsPerTopic", 2)
    c.subscribe(topic, "s4", 10, subType="Shared")
    s.call("PUT", rest(topic, "/subscription/s5"))
    change(s, rest(topic, "/maxConsumersPerSubscription"), 1)
    c.subscribe(topic, "s", 12, subType="Shared")


@scenario
def types_forbidden_while_in_use(s):
    topic, c, ns = new_topic(s)
    c.subscribe(topic, "s", 1, 10, subType="Shared", quietly=True)
    c.subscribe(topic, "e", 2, 10, subType="Exclusive", quietly=True)
    change(s, ns + "/subscriptionTypesEnabled", ["Exclusive"])
    c.none(0.3)
    c.subscribe(topic, "s", 3, 10, subType="Shared")
    c.subscribe(topic, "f", 4, 10, subType="Failover")
    published(s, topic, 1)
    c.recv_sorted(2)
    change(s, rest(topic, "/subscriptionTypesEnabled"), ["Shared", "Key_Shared"])
    c.subscribe(topic, "s", 3, 10, subType="Shared")
    c.subscribe(topic, "k", 5, 10, subType="Key_Shared")
    c.subscribe(topic, "e2", 6, 10, subType="Exclusive")
    change(s, rest(topic, "/subscriptionTypesEnabled"))
    c.subscribe(topic, "k2", 8, 10, subType="Key_Shared")
    change(s, ns + "/subscriptionTypesEnabled")
    c.subscribe(topic, "k2", 8, 10, subType="Key_Shared")


@scenario
def size_of_messages_limited_under_a_producer(s):
    """A topic's limit counts metadata and payload, but no chunks."""
    topic, c, _ = new_topic(s)
    c.producer(topic, 1, producer_name="p", quietly=True)

    def send(number, payload, **more):
        c.publish(1, number, payload, **more)
        c.recv()

    send(0, bytes(500))
    change(s, rest(topic, "/maxMessageSize"), 200)
    send(1, bytes(500))
    send(2, bytes(100))
    send(3, batch(bytes(90), bytes(90)), command=dict(num_messages=2), num_messages_in_batch=2)
    send(5, bytes(150), properties=[dict(key="k", value="v" * 200)])
    chunk = dict(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=600)
    send(6, bytes(300), command=dict(is_chunk=True), **chunk)
    send(7, bytes(300), **chunk)
    change(s, rest(topic, "/maxMessageSize"), 0)
    send(8, bytes(500))
    change(s, rest(topic, "/maxMessageSize"))
    send(9, bytes(500))


@scenario
def size_of_messages_limited_under_a_producer_of_a_non_persistent_topic(s):
    ns = namespace(s)
    topic = f"non-persistent://{ns}/t"
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1, producer_name="p", quietly=True)
    change(s, rest(topic, "/maxMessageSize"), 200)
    c.publish(1, 0, bytes(100))
    c.recv()
    c.publish(1, 1, bytes(300))
    c.recv()
    c.publish(1, 2, bytes(300), command=dict(is_chunk=True), uuid="u", chunk_id=0, num_chunks_from_msg=2)
    c.recv()


@scenario
def deduplication_switched_under_a_producer(s):
    topic, c, ns = new_topic(s)
    c.producer(topic, 1, producer_name="p", quietly=True)

    def send(*numbers):
        for number in numbers:
            c.publish(1, number)
            c.recv()

    send(5, 5)
    change(s, ns + "/deduplication", True)
    send(5, 6, 6)
    change(s, rest(topic, "/deduplicationEnabled"), False)
    send(6)
    change(s, rest(topic, "/deduplicationEnabled"))
    send(6, 7)
    d = s.connect()
    d.producer(topic, 1, producer_name="q")
    for _ in range(2):
        d.publish(1, 0)
        d.recv()
    s.note("status", stats(s, topic)["deduplicationStatus"])


@scenario
def rules_of_schemas_switched_under_clients(s):
    topic, c, ns = new_topic(s)
    one, two = schema("Avro", avro(("a", "int"))), schema("Avro", avro(("a", "int"), ("b", "string")))
    other = schema("Avro", avro(("c", "int")))
    c.producer(topic, 1, producer_name="a", schema=one)
    c.producer(topic, 2, producer_name="b")
    change(s, ns + "/schemaValidationEnforced", True)
    c.none(0.3)
    c.publish(2, 0, b"raw")
    c.recv()
    c.producer(topic, 3, producer_name="c")
    c.subscribe(topic, "s", 1)
    s.call("PUT", ns + "/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    time.sleep(0.7)
    c.producer(topic, 4, producer_name="d", schema=two)
    change(s, ns + "/isAllowAutoUpdateSchema", False)
    c.producer(topic, 5, producer_name="e", schema=other)
    c.producer(topic, 6, producer_name="f", schema=one)
    c.subscribe(topic, "s2", 2, schema=other)
    s.call("PUT", ns + "/schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
    time.sleep(0.7)
    c.producer(topic, 7, producer_name="g", schema=one)
    c.subscribe(topic, "s3", 3, schema=one)
    change(s, rest(topic, "/schemaValidationEnforced"), False)
    c.producer(topic, 8, producer_name="h")


@scenario
def quota_of_the_backlog_lowered_under_a_producer(s):
    topic, c, _ = new_topic(s)
    c.subscribe(topic, "s", quietly=True)
    c.producer(topic, 1, producer_name="p", quietly=True)
    c.publish(1, 0, bytes(1000))
    c.recv()
    s.call("POST", rest(topic, "/backlogQuota"), {"limitSize": 100, "policy": "producer_exception"})
    c.recv(10)
    c.none(0.5)
    c.producer(topic, 2, producer_name="q")
    c.producer(topic, 3, producer_name="r", initial_subscription_name="new")
    s.call("POST", rest(topic, "/subscription/s/skip_all"))
    s.eventually("no backlog", lambda: backlog(s, topic)["s"] == 0)
    c.producer(topic, 4, producer_name="u")
    c.publish(4, 0, bytes(1000))
    c.recv()
    c.recv(10)


@scenario
def limit_of_unacknowledged_messages_set_under_a_consumer(s):
    topic, c, _ = new_topic(s)
    c.subscribe(topic, "s", 1, 3, subType="Shared", quietly=True)
    published(s, topic, 3)
    got = drained(c)
    s.note("first", texts(got))
    change(s, rest(topic, "/maxUnackedMessagesOnConsumer"), 3)
    c.send("FLOW", consumer_id=1, messagePermits=2)
    published(s, topic, 4, first=3)
    s.note("blocked", texts(drained(c)))
    ack(c, *[f.message_id for f in got])
    s.note("after acks", texts(drained(c)))
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("with permits", texts(drained(c)))


@scenario
def delayed_delivery_switched_off_for_a_namespace_and_on_for_a_topic(s):
    topic, c, ns = new_topic(s)
    c.subscribe(topic, "s", 1, 100, subType="Shared", quietly=True)
    change(s, ns + "/delayedDelivery", {"active": False, "tickTime": 1000})
    published(s, topic, 1, first=1, deliver_at_time=now_ms(60000))
    s.note("off", texts(drained(c, 1)))
    change(s, rest(topic, "/delayedDelivery"), {"active": True, "tickTime": 100})
    published(s, topic, 1, first=2, deliver_at_time=now_ms(60000))
    s.note("on", texts(drained(c, 1)))
    change(s, rest(topic, "/delayedDelivery"))
    published(s, topic, 1, first=3)
    s.note("without a policy of the topic", [t for t in texts(drained(c, 1)) if t != "m2"])


@scenario
def longest_delay_limited_under_a_producer(s):
    topic, c, _ = new_topic(s)
    c.producer(topic, 1, quietly=True, producer_name="p")
    body = {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 5000}
    change(s, rest(topic, "/delayedDelivery"), body)
    s.call("GET", rest(topic, "/delayedDelivery"), keep=True)
    for number, delay in enumerate((60_000, 1_000, 5_000, -1)):
        now = now_ms()
        s.lines, kept = [], s.lines
        c.publish(1, number, b"x", publish_time=now, deliver_at_time=now + delay)
        frame = c.recv_quietly()
        s.lines = kept
        s.note("delay", [delay, frame.type])
    change(s, rest(topic, "/delayedDelivery"), body | {"maxDeliveryDelayInMillis": -1})


@scenario
def expiry_of_all_subscriptions_of_every_kind_of_topic(s):
    topic, _, ns = new_topic(s)
    base = topic.replace("persistent://", "/admin/v2/persistent/").removesuffix("/t")
    for name in "abc":
        s.http("PUT", rest(topic, f"/subscription/{name}"), quietly=True)
    published(s, topic, 3)
    time.sleep(2.2)
    published(s, topic, 2, first=3)
    s.call("POST", rest(topic, "/all_subscription/expireMessages/1"))
    s.eventually("old messages expired", lambda: backlog(s, topic) == dict.fromkeys("abc", 2), 3)
    for seconds in ("x", "99999999999"):
        s.call("POST", rest(topic, f"/all_subscription/expireMessages/{seconds}"))
    s.http("PUT", base + "/p/partitions", 2, quietly=True)
    s.call("POST", base + "/p/all_subscription/expireMessages/1")
    s.http("PUT", base + "/p/subscription/z", quietly=True)
    s.call("POST", base + "/p/subscription/z/expireMessages/1")
    s.call("POST", base + "/p/subscription/none/expireMessages/1")
    s.call("POST", base.replace("/persistent/", "/non-persistent/") + "/n/all_subscription/expireMessages/1")
