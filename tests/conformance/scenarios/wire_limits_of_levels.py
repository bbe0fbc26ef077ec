"""Limits of producers, consumers and subscriptions from the namespace, the topic and both, felt by clients and routes."""

import time

from harness.consumers import join
from harness.figures import figures
from harness.steps import namespace, published, rest
from transcript import scenario

BOTH = ((2, None), (None, 2), (1, 3), (3, 1), (0, 2), (2, 0))


def limited(s, name, of_namespace, of_topic, of_namespace_name=None):
    """A loaded topic with limits of that name at two levels."""
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic), quietly=True)
    if of_namespace is not None:
        s.http("POST", f"/admin/v2/namespaces/{ns}/{of_namespace_name or name}", of_namespace)
    if of_topic is not None:
        s.http("POST", rest(topic, "/" + name), of_topic)
    s.http("GET", rest(topic, f"/{name}?applied=true"), keep=True)
    time.sleep(0.7)
    return ns, topic


def at(levels):
    """One scenario for each pair of limits, of the namespace and of the topic."""

    def decorate(function):
        for pair in levels:

            def run(s, pair=pair):
                function(s, *pair)

            run.__name__ = f"{function.__name__}_{pair[0]}_and_{pair[1]}"
            scenario(run)

    return decorate


@at(BOTH)
def producers_limited_by_levels(s, of_namespace, of_topic):
    ns, topic = limited(s, "maxProducers", of_namespace, of_topic, "maxProducersPerTopic")
    c = s.connect()
    for i in range(4):
        c.producer(topic, i, producer_name=f"p{i}")
    c.ask("CLOSE_PRODUCER", producer_id=0)
    c.producer(topic, 9, producer_name="p9")
    s.http("DELETE", rest(topic, "/maxProducers"))
    time.sleep(0.7)
    c.producer(topic, 10, producer_name="p10")
    c.producer(topic, 11, producer_name="p11", producer_access_mode="Exclusive")


@at(BOTH)
def consumers_limited_by_levels(s, of_namespace, of_topic):
    ns, topic = limited(s, "maxConsumers", of_namespace, of_topic, "maxConsumersPerTopic")
    c = s.connect()
    for i in range(4):
        c.subscribe(topic, f"s{i % 2}", i, subType="Shared", consumer_name=f"n{i}")
    c.subscribe(topic, "reader", 8, durable=False)
    c.ask("CLOSE_CONSUMER", consumer_id=0)
    c.subscribe(topic, "s0", 9, subType="Shared", consumer_name="n9")
    s.http("DELETE", rest(topic, "/maxConsumers"))
    time.sleep(0.7)
    c.subscribe(topic, "s0", 10, subType="Shared", consumer_name="n10")


@at([pair for pair in BOTH if pair != (3, 1)])
def consumers_of_a_subscription_limited_by_levels(s, of_namespace, of_topic):
    ns, topic = limited(s, "maxConsumersPerSubscription", of_namespace, of_topic)
    c = s.connect()
    for first, kind in ((0, "Shared"), (20, "Key_Shared")):
        for i in range(4):
            c.subscribe(topic, kind, first + i, subType=kind, consumer_name=f"n{i}")
    c.ask("CLOSE_CONSUMER", consumer_id=0)
    c.subscribe(topic, "Shared", 30, subType="Shared", consumer_name="n9")


@at(BOTH)
def subscriptions_limited_by_levels(s, of_namespace, of_topic):
    ns, topic = limited(s, "maxSubscriptionsPerTopic", of_namespace, of_topic)
    c = s.connect()
    for i in range(3):
        c.subscribe(topic, f"s{i}", i)
    s.http("PUT", rest(topic, "/subscription/rest"), {})
    c.subscribe(topic, "reader", 8, durable=False)
    c.producer(topic, 1, initial_subscription_name="first")
    s.http("DELETE", rest(topic, "/subscription/s0?force=true"))
    c.recv(1)
    c.subscribe(topic, "s9", 9)
    s.http("GET", rest(topic, "/subscriptions"), keep=None)


@scenario
def limits_of_a_non_persistent_topic(s):
    ns = namespace(s)
    for name, value in (("maxProducersPerTopic", 1), ("maxConsumersPerTopic", 1), ("maxSubscriptionsPerTopic", 1)):
        s.http("POST", f"/admin/v2/namespaces/{ns}/{name}", value)
    topic = s.topic(namespace=ns, domain="non-persistent")
    c = s.connect()
    for i in range(2):
        c.producer(topic, i, producer_name=f"p{i}")
        c.subscribe(topic, f"s{i}", i, subType="Shared", consumer_name=f"n{i}")
        c.subscribe(topic, "s0", 10 + i, subType="Shared", consumer_name=f"m{i}")
    figures(s, topic, "end")


@scenario
def limits_of_partitions(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for name in ("maxProducers", "maxConsumers", "maxSubscriptionsPerTopic"):
        s.http("POST", rest(topic, "/" + name), 1)
    c = s.connect()
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
    time.sleep(0.7)
    for i in range(2):
        part = f"{topic}-partition-{i}"
        for j in range(2):
            c.producer(part, 10 * i + j, producer_name=f"p{j}")
            c.subscribe(part, f"s{j}", 10 * i + j, subType="Shared", consumer_name=f"n{j}")


@scenario
def topics_of_a_namespace_limited(s):
    ns = namespace(s, maxTopicsPerNamespace=3)
    c = s.connect()
    s.http("PUT", f"/admin/v2/persistent/{ns}/a")
    s.http("PUT", f"/admin/v2/persistent/{ns}/b/partitions", 3)
    s.http("PUT", f"/admin/v2/persistent/{ns}/b/partitions", 2)
    s.http("PUT", f"/admin/v2/persistent/{ns}/c")
    for name in ("a", "d"):
        s.lookup(f"persistent://{ns}/{name}")
        c.producer(f"persistent://{ns}/{name}", 1, producer_name="p")
        c.subscribe(f"persistent://{ns}/{name}", "sub", 1)
        c.ask("PARTITIONED_METADATA", topic=f"persistent://{ns}/{name}")
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
    s.lookup(f"non-persistent://{ns}/n")
    c.producer(f"non-persistent://{ns}/n", 5, producer_name="p")
    s.http("POST", f"/admin/v2/persistent/{ns}/b/partitions", 3)
    s.http("DELETE", f"/admin/v2/persistent/{ns}/a?force=true")
    c.recv(1)
    s.http("PUT", f"/admin/v2/persistent/{ns}/e")
    s.http("PUT", f"/admin/v2/persistent/{ns}/f")


@scenario
def publish_rate_of_a_topic_in_messages(s):
    topic = s.topic()
    published(s, topic, 1)
    s.http("POST", rest(topic, "/publishRate"), {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 0})
    s.http("GET", rest(topic, "/publishRate?applied=true"), keep=True)
    s.http("POST", rest(topic, "/publishRate"), {"publishThrottlingRateInMsg": -5, "publishThrottlingRateInByte": -7})
    s.http("GET", rest(topic, "/publishRate"), keep=True)
    published(s, topic, 3)
    figures(s, topic, "end")


@scenario
def dispatch_rates_of_each_level(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    rates = dict(dispatchThrottlingRateInByte=-1, ratePeriodInSecond=30, relativeToPublishRate=False)
    s.http("POST", f"/admin/v2/namespaces/{ns}/subscriptionDispatchRate", rates | dict(dispatchThrottlingRateInMsg=2))
    c = join(s, topic, "Shared", consumer_name="n")
    d = join(s, topic, "Exclusive", consumer_name="m", subscription="other")
    time.sleep(0.5)
    published(s, topic, 1)
    published(s, topic, 8, first=1)
    for each in (c, d):
        frames = 0
        while each.recv_quietly(1):
            frames += 1
        s.note(f"{each.name} is throttled", frames < 9)
    s.http("POST", rest(topic, "/subscriptionDispatchRate"), rates | dict(dispatchThrottlingRateInMsg=-1))
    s.http("GET", rest(topic, "/subscriptionDispatchRate?applied=true"), keep=True)
    s.http("DELETE", rest(topic, "/subscriptionDispatchRate"))
    s.http("GET", rest(topic, "/subscriptionDispatchRate?applied=true"), keep=True)
