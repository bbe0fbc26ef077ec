"""Limits and policies switched while clients are connected; codes of refusals and their order."""

import time

from harness.steps import EARLIEST, drained, namespace, now_ms, published, rest, stats, texts
from transcript import scenario


def policy(s, topic, path, body, method="POST"):
    s.http(method, rest(topic, path), body, quietly=True)
    time.sleep(0.6)


@scenario
def limits_lowered_beneath_what_is_connected(s):
    topic = s.topic()
    c = s.connect()
    for i in range(3):
        c.producer(topic, i, quietly=True, producer_name=f"p{i}")
        c.subscribe(topic, "s", 10 + i, quietly=True, subType="Shared")
    for path in ("maxProducers", "maxConsumers", "maxConsumersPerSubscription"):
        policy(s, topic, "/" + path, 1)
    c.none(0.3)
    c.producer(topic, 1, producer_name="p1")
    c.producer(topic, 5, producer_name="p5")
    c.subscribe(topic, "s", 11, subType="Shared")
    c.subscribe(topic, "s", 15, subType="Shared")
    c.subscribe(topic, "t", 16, subType="Shared")
    c.publish(0, 0)
    c.recv()
    for path in ("maxProducers", "maxConsumers", "maxConsumersPerSubscription"):
        policy(s, topic, "/" + path, None, "DELETE")
    c.producer(topic, 5, producer_name="p5")
    c.subscribe(topic, "s", 15, subType="Shared")


@scenario
def limits_of_zero_and_odd_values(s):
    topic = s.topic()
    s.call("PUT", rest(topic))
    for path in (
        "maxProducers",
        "maxConsumers",
        "maxConsumersPerSubscription",
        "maxSubscriptionsPerTopic",
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnSubscription",
        "maxMessageSize",
        "messageTTL",
        "compactionThreshold",
        "deduplicationSnapshotInterval",
    ):
        for v in (0, -1, -2, 1.5, "x", True, None, 2**31, [], {}):
            st, body = s.http("POST", rest(topic, "/" + path), v, quietly=True)
            s.note(f"{path} {v!r}", st)


@scenario
def deduplication_switched_while_producing(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    for i in (0, 1, 0):
        c.publish(1, i)
        c.recv()
    policy(s, topic, "/deduplicationEnabled", True)
    for i in (1, 2, 2, 0):
        c.publish(1, i)
        c.recv()
    policy(s, topic, "/deduplicationEnabled", False)
    for i in (2, 0, 3):
        c.publish(1, i)
        c.recv()
    policy(s, topic, "/deduplicationEnabled", True)
    for i in (2, 0, 3, 4):
        c.publish(1, i)
        c.recv()
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")


@scenario
def quotas_of_time_for_producers(s):
    ns = namespace(s)
    s.http(
        "POST",
        f"/admin/v2/namespaces/{ns}/backlogQuota?backlogQuotaType=message_age",
        {"limitTime": 1, "limitSize": -1, "policy": "producer_exception"},
        quietly=True,
    )
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish(1, 0)
    c.recv()
    f = c.recv_quietly(8)
    s.note("closed", f and f.type)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "another", 2)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    st = stats(s, topic)
    s.note(
        "stats",
        [st["backlogQuotaLimitTime"], st["backlogQuotaLimitSize"], sorted(k for k in st if k.startswith("oldest"))],
    )


@scenario
def quota_exceeded_and_its_ends(s):
    for how in ("producer_exception", "producer_request_hold"):
        ns = namespace(s, how)
        s.http(
            "POST",
            f"/admin/v2/namespaces/{ns}/backlogQuota",
            {"limitSize": 1000, "limitTime": -1, "policy": how},
            quietly=True,
        )
        topic = s.topic("t", ns)
        c = s.connect()
        c.subscribe(topic, quietly=True)
        c.producer(topic, 1, quietly=True, producer_name="p")
        c.publish_all(1, [bytes(1000)] * 3)
        f = c.recv_quietly(6)
        s.note("closed", f and f.type)
        for mode in ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"):
            d = s.connect(mode)
            d.send("PRODUCER", topic=topic, producer_id=1, request_id=3, producer_name=mode, producer_access_mode=mode)
            d.recv(0.4)
            d.close()
        s.call("POST", rest(topic, "/subscription/sub/skip_all"))


@scenario
def subscriptions_limit_and_kinds(s):
    ns = namespace(s, maxSubscriptionsPerTopic=2)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "a", 1)
    c.subscribe(topic, "r", 2, durable=False, start_message_id=EARLIEST)
    c.subscribe(topic, "b", 3)
    c.subscribe(topic, "c", 4)
    c.subscribe(topic, "a2", 5, durable=False, start_message_id=EARLIEST)
    s.call("PUT", rest(topic, "/subscription/d"))
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.subscribe(topic, "c", 6)
    c.producer(topic, 1, producer_name="p", initial_subscription_name="init")
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)


@scenario
def delays_by_strict_modes_and_far_ahead(s):
    topic = s.topic()
    s.call("PUT", rest(topic))
    policy(s, topic, "/delayedDelivery", {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 2000})
    s.call("GET", rest(topic, "/delayedDelivery"), keep=True)
    c = s.connect()
    c.subscribe(topic, permits=9, quietly=True, subType="Shared")
    c.producer(topic, 1, quietly=True, producer_name="p")
    for i, d in enumerate((100, 1900, 2100, 100000, 10**12)):
        keep, s.lines = s.lines, []
        c.publish(1, i, b"%d" % i, deliver_at_time=now_ms(d))
        f = c.recv_quietly(3)
        while f and f.type == "MESSAGE":
            f = c.recv_quietly(3)
        s.lines = keep
        s.note(str(d), f and [f.type, f.command.error if f.type == "SEND_ERROR" else None])
    s.note("came", texts(drained(c, 3)))


@scenario
def delays_of_each_type_of_subscription(s):
    for kind in ("Exclusive", "Failover", "Shared", "Key_Shared"):
        topic = s.topic(kind)
        c = s.connect()
        c.subscribe(topic, permits=9, quietly=True, subType=kind)
        if kind == "Failover":
            c.recv_quietly(3)
        published(s, topic, [b"late"], 0, deliver_at_time=now_ms(1500), partition_key="a")
        published(s, topic, [b"now"], 1, partition_key="a")
        s.note(kind, texts(drained(c, 0.5)))
        f = c.recv_quietly(4)
        s.note("later", f and f.payload.decode())
