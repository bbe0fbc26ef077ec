"""Policies of a topic set over REST while clients are connected; system topics; compaction."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    avro,
    batch,
    drained,
    namespace,
    published,
    rest,
    setup_connection,
    texts,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def policy(s, topic, path, body):
    """Sets the policy and gives the loaded topic a moment to follow."""
    s.http("POST", rest(topic, "/" + path), body, quietly=True)
    time.sleep(1)


@scenario
def topic_policies_make_no_visible_topic(s):
    """The topic in which policies are kept is not listed, and no watcher gets it."""
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic), quietly=True)
    s.lookup(topic)
    w = s.connect("watcher")
    frame = w.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=1, namespace=ns, topics_pattern=".*")
    s.note("at first", list(frame.command.topic))
    policy(s, topic, "maxProducers", 5)
    w.none()
    c = s.connect()
    frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="ALL")
    s.note("listed", list(frame.command.topics))


@scenario
def unacked_limit_of_a_topic_policy(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    policy(s, topic, "maxUnackedMessagesOnConsumer", 2)
    ids = published(s, topic, 6)
    s.note("first", texts(drained(c)))
    ack(c, ids[0])
    s.note("then", texts(drained(c)))


@scenario
def subscription_types_of_a_topic_policy(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    policy(s, topic, "subscriptionTypesEnabled", ["Shared"])
    c.subscribe(topic, "a", 1)
    c.subscribe(topic, "b", 2, subType="Shared")


@scenario
def subscription_types_of_a_topic_policy_that_was_emptied(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    policy(s, topic, "subscriptionTypesEnabled", ["Shared"])
    c.subscribe(topic, "a", 1)
    policy(s, topic, "subscriptionTypesEnabled", [])
    c.subscribe(topic, "a", 2)
    c.subscribe(topic, "b", 3, subType="Shared")


@scenario
def consumers_per_subscription_of_a_topic_policy(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "a", 1, **SHARED)
    policy(s, topic, "maxConsumersPerSubscription", 1)
    c.subscribe(topic, "a", 2, subType="Shared")
    c.subscribe(topic, "b", 3, subType="Shared")


@scenario
def schema_validation_of_a_topic_policy(s):
    topic = s.topic()
    c = s.connect()
    schema = dict(name="s", type="Avro", schema_data=avro(("a", "int")))
    c.producer(topic, 1, quietly=True, schema=schema)
    policy(s, topic, "schemaValidationEnforced", True)
    c.producer(topic, 2, producer_name="plain")
    c.producer(topic, 3, producer_name="typed", schema=schema)


@scenario
def publish_rate_of_a_topic_policy(s):
    """Nothing is refused: the connection is read more slowly."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    policy(s, topic, "publishRate", dict(publishThrottlingRateInMsg=5, publishThrottlingRateInByte=-1))
    start = time.monotonic()
    ids = c.publish_all(1, [b"x"] * 20)
    s.note("all came through", ids.count(None) == 0)
    s.note("slowly", time.monotonic() - start > 1)


@scenario
def backlog_quota_of_a_topic_policy(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, producer_name="p")
    quota = dict(limitSize=1000, limitTime=-1, policy="producer_exception")
    policy(s, topic, "backlogQuota", quota)
    c.publish_all(1, [bytes(1000)] * 3)
    c.recv()
    c.producer(topic, 1, producer_name="p")


@scenario
def policy_taken_back(s):
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    policy(s, topic, "maxProducers", 1)
    c.producer(topic, 2, producer_name="b")
    s.http("DELETE", rest(topic, "/maxProducers"), quietly=True)
    time.sleep(1)
    c.producer(topic, 2, producer_name="b")


def compact(s, topic):
    s.http("PUT", rest(topic, "/compaction"), quietly=True)
    status = rest(topic, "/compaction")
    s.eventually("compacted", lambda: s.http("GET", status, quietly=True)[1]["status"] == "SUCCESS", 15)


def batches(s, topic, *many):
    """Batches of (key, value) pairs."""
    p = setup_connection(s)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines, first = s.lines, [], 0
    for pairs in many:
        n = len(pairs)
        payload = batch(*[v for _, v in pairs], partition_key=[k for k, _ in pairs])
        p.publish(1, first, payload, command=dict(num_messages=n), num_messages_in_batch=n)
        p.recv_quietly()
        first += n
    s.lines = keep


@scenario
def compacted_batches(s):
    """The rest of a batch, some of whose messages were replaced by later messages."""
    topic = s.topic()
    batches(
        s,
        topic,
        [("a", b"1"), ("b", b"1"), ("c", b"1")],
        [("a", b"2"), ("b", b"2")],
        [("a", b"3"), ("d", b"")],
    )
    compact(s, topic)
    c = s.connect()
    c.subscribe(topic, read_compacted=True, initialPosition="Earliest", permits=10)
    for _ in range(4):
        c.recv(1)


@scenario
def last_message_id_of_a_compacted_reader(s):
    topic = s.topic()
    published(s, topic, [b"1"], 0, partition_key="a")
    published(s, topic, [b"2"], 1, partition_key="b")
    published(s, topic, [b"gone"], 2)
    compact(s, topic)
    c = s.connect()
    c.subscribe(topic, "r", durable=False, read_compacted=True, start_message_id=EARLIEST, permits=10, quietly=True)
    s.note("came", texts(drained(c)))
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def compacted_reader_from_the_middle(s):
    topic = s.topic()
    ids = [published(s, topic, [b"%d" % i], i, partition_key="ab"[i % 2])[0] for i in range(4)]
    compact(s, topic)
    for name, id_ in dict(first=ids[0], third=ids[2], last=ids[3]).items():
        c = s.connect(name)
        c.subscribe(topic, name, durable=False, read_compacted=True, start_message_id=id_, permits=10, quietly=True)
        s.note(name, texts(drained(c)))


@scenario
def compaction_leaves_plain_consumers_alone(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    for i in range(3):
        published(s, topic, [b"%d" % i], i, partition_key="a")
    compact(s, topic)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c)))
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def deduplication_over_many_messages_and_an_unload(s):
    """More than the interval of its snapshots."""
    topic = s.topic("t", namespace(s, deduplication=True))
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"x"] * 250)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p")
    for sequence in (0, 249, 250):
        c.publish(1, sequence)
        c.recv()
