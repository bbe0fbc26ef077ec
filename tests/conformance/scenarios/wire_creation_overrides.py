"""Automatic creation of topics and subscriptions: overrides of a namespace, and the topics that requests create."""

from harness.steps import LATEST, namespace, rest
from transcript import scenario

OVERRIDES = (
    ("partitioned_3", {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}),
    ("plain", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}),
    ("off", {"allowAutoTopicCreation": False}),
)


def neutral_list(s, ns):
    for domain in ("persistent", "non-persistent"):
        s.call("GET", f"/admin/v2/{domain}/{ns}", keep=sorted)
        s.call("GET", f"/admin/v2/{domain}/{ns}/partitioned", keep=sorted)


def declare(name, override):
    def by_requests(s):
        ns = namespace(s)
        s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", override)
        s.call("GET", f"/admin/v2/namespaces/{ns}/autoTopicCreation", keep=True)
        c = s.connect()
        for domain in ("persistent", "non-persistent"):
            base = f"{domain}://{ns}/"
            c.ask("PARTITIONED_METADATA", topic=base + "asked", metadata_auto_creation_enabled=True)
            c.ask("PARTITIONED_METADATA", topic=base + "not-asked", metadata_auto_creation_enabled=False)
            s.lookup(base + "produced")
            c.producer(base + "produced", 1, producer_name="p")
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
            s.lookup(base + "consumed")
            c.subscribe(base + "consumed", "sub", 1)
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
            c.subscribe(base + "not-forced", "sub", 2, force_topic_creation=False)
            c.subscribe(base + "odd-partition-1", "sub", 3)
            c.subscribe(base + "asked-partition-1", "sub", 4)
            c.subscribe(base + "asked-partition-7", "sub", 5)
        neutral_list(s, ns)
        s.call("DELETE", f"/admin/v2/namespaces/{ns}/autoTopicCreation")
        c.ask("PARTITIONED_METADATA", topic=f"persistent://{ns}/after", metadata_auto_creation_enabled=True)

    def by_routes(s):
        ns = namespace(s)
        s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", override)
        for domain in ("persistent", "non-persistent"):
            base = f"/admin/v2/{domain}/{ns}/"
            s.call("GET", base + "a/partitions?checkAllowAutoCreation=true", keep=True)
            s.call("GET", base + "b/partitions?checkAllowAutoCreation=false", keep=True)
            s.call("GET", base + "c/stats")
            s.call("PUT", base + "d/subscription/sub", LATEST)
            s.call("PUT", base + "e")
            s.call("GET", base + "e/subscriptions", keep=True)
            s.call("GET", f"/lookup/v2/topic/{domain}/{ns}/f", keep=sorted)
            s.call("POST", base + "g/messages" if domain == "persistent" else base + "g/unload")
        neutral_list(s, ns)

    by_requests.__name__ = f"creation_override_{name}_by_requests"
    by_routes.__name__ = f"creation_override_{name}_by_routes"
    if name != "plain":  # whose answers vary in Apache Pulsar
        scenario(by_requests)
    scenario(by_routes)


for each in OVERRIDES:
    declare(*each)


@scenario
def creation_overrides_that_are_refused(s):
    ns = namespace(s)
    path = f"/admin/v2/namespaces/{ns}/autoTopicCreation"
    for body in (
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": -3},
        {"allowAutoTopicCreation": True, "topicType": "partitioned"},
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 3},
        {"allowAutoTopicCreation": True, "topicType": "odd"},
        {"allowAutoTopicCreation": True},
        {"topicType": "partitioned", "defaultNumPartitions": 2},
        {},
        [],
    ):
        s.call("POST", path, body)
        s.call("GET", path, keep=True)


@scenario
def subscriptions_of_a_namespace_without_their_creation(s):
    ns = namespace(s)
    s.call("POST", f"/admin/v2/namespaces/{ns}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic), quietly=True)
    s.lookup(topic)
    c = s.connect()
    c.subscribe(topic, "new", 1)
    c.subscribe(topic, "reader", 2, durable=False, start_message_id=LATEST)
    s.call("PUT", rest(topic, "/subscription/made"), LATEST)
    c.subscribe(topic, "made", 3)
    c.producer(topic, 1, producer_name="p", initial_subscription_name="first")
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)
    s.call("POST", rest(topic, "/autoSubscriptionCreation"), {"allowAutoSubscriptionCreation": True})
    s.eventually("policy", lambda: s.http("GET", rest(topic, "/autoSubscriptionCreation"), quietly=True)[1])
    c.subscribe(topic, "new", 4)
    s.call("GET", rest(topic, "/autoSubscriptionCreation?applied=true"), keep=True)
    s.lookup(f"non-persistent://{ns}/t")
    c.subscribe(f"non-persistent://{ns}/t", "new", 5)


@scenario
def topics_of_a_namespace_up_to_its_limit(s):
    ns = namespace(s)
    s.call("POST", f"/admin/v2/namespaces/{ns}/maxTopicsPerNamespace", 3)
    c = s.connect()
    for i, name in enumerate(("a", "b", "c", "d")):
        s.lookup(f"persistent://{ns}/{name}")
        c.producer(f"persistent://{ns}/{name}", i, producer_name="p")
    s.call("PUT", f"/admin/v2/persistent/{ns}/e")
    s.call("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2)
    s.call("PUT", f"/admin/v2/non-persistent/{ns}/n/partitions", 2)
    c.ask("PARTITIONED_METADATA", topic=f"persistent://{ns}/q", metadata_auto_creation_enabled=True)
    s.call("DELETE", f"/admin/v2/persistent/{ns}/a?force=true")
    c.recv(3)
    s.call("PUT", f"/admin/v2/persistent/{ns}/e")
    neutral_list(s, ns)


@scenario
def names_of_partitions_where_topics_are_created(s):
    ns = namespace(s)
    c = s.connect()
    for name in (
        "a-partition-0",
        "b-partition-",
        "c-partition-x",
        "d-partition--1",
        "e-partition-01",
        "f-partition-0-partition-1",
    ):
        topic = f"persistent://{ns}/{name}"
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
        s.lookup(topic)
        c.subscribe(topic, "sub", 1)
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    neutral_list(s, ns)
