"""Topics and partitions that do not exist and may not be created, and the order in which limits and names are checked."""

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
def clients_of_unknown_places(s):
    c = s.connect()
    for i, place in enumerate((f"public/{s.tag}", f"{s.tag}/default")):
        for domain in "persistent", "non-persistent":
            topic = f"{domain}://{place}/t"
            c.ask("LOOKUP", topic=topic)
            c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=i == 0)
            c.ask("GET_SCHEMA", topic=topic)
            if domain == "persistent":
                c.producer(topic, 1)
                c.subscribe(topic, "sub", 1)


@scenario
def partitions_of_nothing_where_no_topic_may_be_made(s):
    ns, c = namespace(s, autoTopicCreation={"allowAutoTopicCreation": False}), s.connect()
    topic = f"persistent://{ns}/t-partition-0"
    s.lookup(topic)
    c.producer(topic)
    c.subscribe(topic)
    c.ask("PARTITIONED_METADATA", topic=topic)
    s.note("status", s.http("PUT", rest(topic, "/subscription/a"), "latest", quietly=True)[0])


@scenario
def partitions_that_were_deleted_by_themselves(s):
    for i, allowed in enumerate((True, False)):
        ns = namespace(
            s, f"ns{i}", autoTopicCreation={"allowAutoTopicCreation": allowed, "topicType": "non-partitioned"}
        )
        topic, c = s.topic("p", ns), s.connect()
        s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
        s.lookup(topic + "-partition-0")
        part = topic + "-partition-1"

        def deleted(part=part):
            s.note("deleted", s.http("DELETE", rest(part, "?force=true"), quietly=True)[0])

        deleted()
        everything(s, c, part)
        c.subscribe(part, "sub", 1, durable=False, start_message_id=EARLIEST, force_topic_creation=False)
        s.note("topics", len(s.http("GET", f"/admin/v2/persistent/{ns}", quietly=True)[1]))
        c.ask("PARTITIONED_METADATA", topic=part)
        c.producer(part, 1, producer_name="p")
        deleted()
        s.connect().subscribe(part, "sub", 3)
        deleted()
        s.note("subscription", s.http("PUT", rest(part, "/subscription/a"), "latest", quietly=True)[0])
        deleted()


@scenario
def non_persistent_topics_where_none_may_be_created(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", dict(allowAutoTopicCreation=False), quietly=True)
    topic = s.topic("t", ns, "non-persistent")
    c = s.connect()
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)


@scenario
def full_namespace_is_told_before_partitions(s):
    """Without room for a topic, a name that belongs to partitions is refused for the limit."""
    ns, c = namespace(s), s.connect()
    path = f"/admin/v2/persistent/{ns}"
    s.http("PUT", path + "/p/partitions", 2, quietly=True)
    s.http("PUT", path + "/t", quietly=True)
    s.http("POST", f"/admin/v2/namespaces/{ns}/maxTopicsPerNamespace", 3, quietly=True)
    names = ("p", "p-partition-0", "p-partition-5", "q-partition-0", "q", "t")
    for i, name in enumerate(names):
        topic = f"persistent://{ns}/{name}"
        s.lookup(topic)
        c.producer(topic, i)
        c.subscribe(topic, "s", 20 + i)
        c.ask("PARTITIONED_METADATA", topic=topic)
    s.http("DELETE", path + "/p-partition-1", quietly=True)
    s.http("PUT", path + "/u", quietly=True)
    topic = f"persistent://{ns}/p-partition-1"
    s.lookup(topic)
    c.producer(topic, 30)
    c.subscribe(topic, "s", 31)
    for name in ("p-partition-1", "p-partition-5", "q-partition-0", "q", "p", "p-partition-1/subscription/s"):
        s.call("PUT", f"{path}/{name}")
    s.call("POST", path + "/p/createMissedPartitions")
    s.call("GET", path, keep=sorted)


@scenario
def subscription_that_some_partitions_refuse(s):
    """A partition at a limit of its namespace counts as a partition that has the subscription."""
    ns = namespace(s)
    path = f"/admin/v2/persistent/{ns}"
    s.http("PUT", path + "/p/partitions", 2, quietly=True)
    s.lookup(f"persistent://{ns}/p-partition-0")
    s.http("POST", f"/admin/v2/namespaces/{ns}/maxSubscriptionsPerTopic", 1, quietly=True)
    s.call("PUT", path + "/p-partition-0/subscription/a")
    s.call("PUT", path + "/p/subscription/s")
    for i in range(2):
        s.call("GET", f"{path}/p-partition-{i}/subscriptions", keep=True)
    s.call("PUT", path + "/p/subscription/b")
    s.call("PUT", path + "/p/subscription/s")
    s.http("DELETE", path + "/p-partition-1", quietly=True)
    s.http("POST", f"/admin/v2/namespaces/{ns}/maxTopicsPerNamespace", 1, quietly=True)
    s.call("PUT", path + "/p/subscription/a")
    s.call("PUT", path + "/p-partition-1/subscription/a")
    s.call("PUT", path + "/p/subscription/c")
    s.call("GET", path, keep=sorted)
