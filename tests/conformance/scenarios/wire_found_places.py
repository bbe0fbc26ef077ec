"""Topics that may not be made, partitions of nothing, and the order in which limits and names are looked at."""

from harness.steps import EARLIEST, namespace, rest
from transcript import scenario

STRING = {"name": "s", "type": "String", "schema_data": b""}


def everything(s, c, topic):
    """Each command and REST call that wants the topic, none of which may make it."""
    s.note("topic", topic)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    c.subscribe(topic, consumer_id=8, force_topic_creation=False)
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=STRING)
    c.ask("END_TXN_ON_PARTITION", topic=topic)
    for method, path in (
        ("GET", "/stats"),
        ("GET", "/lastMessageId"),
        ("POST", "/subscription/s/skip/1"),
        ("GET", "/compaction"),
        ("GET", "/maxProducers"),
        ("GET", "/ledger/1/entry/1"),
        ("DELETE", ""),
    ):
        status, _ = s.http(method, rest(topic, path), quietly=True)
        s.note(method + path, "done" if status in {200, 204} else status)


@scenario
def partitions_of_no_topic_may_not_be_used(s):
    ns, c = namespace(s), s.connect()
    s.lookup(f"persistent://{ns}/t")
    everything(s, c, f"persistent://{ns}/t-partition-0")


@scenario
def non_persistent_partitions_of_no_topic_may_not_be_used(s):
    ns, c = namespace(s), s.connect()
    s.lookup(f"non-persistent://{ns}/t-partition-0")
    everything(s, c, f"non-persistent://{ns}/t-partition-0")
    c.producer(f"non-persistent://{ns}/t-partition-0")


@scenario
def other_domain_of_partitions_may_not_be_used(s):
    topic, c = s.topic(), s.connect()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    other = topic.replace("persistent://", "non-persistent://") + "-partition-0"
    s.lookup(other)
    everything(s, c, other)


@scenario
def partitions_beyond_the_last_may_not_be_used(s):
    for domain in ("persistent", "non-persistent"):
        topic, c = s.topic(domain=domain), s.connect()
        s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
        s.lookup(topic + "-partition-5")
        everything(s, c, topic + "-partition-5")


@scenario
def plain_topics_that_are_not_there(s):
    for domain in ("persistent", "non-persistent"):
        everything(s, s.connect(), s.topic(domain=domain))


@scenario
def base_of_partitions_where_no_topic_may_be_made(s):
    for i, allowed in enumerate((False, True)):
        ns = namespace(
            s,
            f"ns{i}",
            autoTopicCreation={
                "allowAutoTopicCreation": allowed,
                "topicType": "partitioned",
                "defaultNumPartitions": 2,
            },
        )
        for domain in ("persistent", "non-persistent"):
            topic, c = s.topic("p", ns, domain), s.connect()
            s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
            s.lookup(topic + "-partition-0")
            c.producer(topic, 1)
            c.subscribe(topic, "sub", 1)
            c.subscribe(topic, "sub", 1, force_topic_creation=False)
            c.subscribe(topic, "sub", 1, durable=False, start_message_id=EARLIEST)
            c.ask("PARTITIONED_METADATA", topic=topic)
            c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=STRING)
            c.producer(topic + "-partition-0", 2, producer_name="p")
            c.producer(topic + "-partition-7", 3, producer_name="p")
            c.subscribe(topic + "-partition-7", "sub", 3)


@scenario
def subscriptions_made_over_rest_where_they_are_refused(s):
    ns = namespace(s, maxSubscriptionsPerTopic=1)
    topic = s.topic("t", ns)
    s.http("PUT", rest(topic), quietly=True)
    for name in ("a", "b", "a"):
        s.call("PUT", rest(topic, f"/subscription/{name}"), "latest")
    part = s.topic("p", ns)
    s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
    s.lookup(part + "-partition-0")
    for name in ("a", "b", "a"):
        s.call("PUT", rest(part, f"/subscription/{name}"), "latest")
        s.call("PUT", rest(part + "-partition-0", f"/subscription/{name}"), "latest")
    s.call("PUT", rest(part + "-partition-5", "/subscription/a"), "latest")
    s.call("PUT", rest(topic + "-none-partition-5", "/subscription/a"), "latest")
    s.call("PUT", rest(topic + "-none", "/subscription/a"), "latest")
    s.call("PUT", rest(topic.replace("persistent://", "non-persistent://"), "/subscription/a"), "latest")
    s.call(
        "PUT", rest(topic.replace("persistent://", "non-persistent://") + "-partition-0", "/subscription/a"), "latest"
    )


@scenario
def replicated_flag_of_readers_and_non_persistent_topics(s):
    for domain in ("persistent", "non-persistent"):
        for durable in (True, False):
            for kind in ("Shared", "Key_Shared"):
                topic, c = s.topic(f"{domain}{durable}{kind}", domain=domain), s.connect()
                c.subscribe(
                    topic,
                    subType=kind,
                    durable=durable,
                    replicate_subscription_state=True,
                    keySharedMeta={"keySharedMode": "AUTO_SPLIT", "allowOutOfOrderDelivery": True},
                )
                sub = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]
                s.note(
                    "subscription",
                    {
                        k: sub.get(k)
                        for k in (
                            "isReplicated",
                            "replicated",
                            "isDurable",
                            "durable",
                            "keySharedMode",
                            "allowOutOfOrderDelivery",
                            "type",
                        )
                    },
                )
                status, _ = s.http(
                    "POST", rest(topic, "/subscription/sub/replicatedSubscriptionStatus"), False, quietly=True
                )
                s.note("status", status)


@scenario
def sticky_and_automatic_split_in_the_stats(s):
    for domain in ("persistent", "non-persistent"):
        for i, meta in enumerate(
            (
                {"keySharedMode": "STICKY", "hashRanges": [{"start": 0, "end": 65535}]},
                {"keySharedMode": "AUTO_SPLIT"},
                None,
            )
        ):
            topic, c = s.topic(f"{domain}{i}", domain=domain), s.connect()
            more = {"keySharedMeta": meta} if meta else {}
            c.subscribe(topic, subType="Key_Shared", consumer_name="c", **more)
            keys = ("keySharedMode", "allowOutOfOrderDelivery", "type")
            body = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"]["sub"]
            s.note(
                "subscription",
                {k: body.get(k) for k in keys}
                | {"consumer": {k: body["consumers"][0].get(k) for k in ("keyHashRangeArrays", "keyHashRanges")}},
            )


@scenario
def subscriptions_in_the_order_of_a_hash(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for name in ("sub", "a", "zz", "sub-1", "b", "my-subscription", "sub-2", "c", "x", "other", "s1", "s2", "s10"):
        s.http("PUT", rest(topic, "/subscription/" + name), "latest", quietly=True)
        s.call("GET", rest(topic, "/subscriptions"), keep=True)
    part = s.topic("p")
    s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
    for name in ("sub", "a", "zz", "sub-1", "b", "my-subscription"):
        s.http("PUT", rest(part, "/subscription/" + name), "latest", quietly=True)
        s.call("GET", rest(part, "/subscriptions"), keep=True)
