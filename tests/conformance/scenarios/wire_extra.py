"""Names the broker gives, old age of a backlog, sharing between namespaces, big and small things at their borders."""

import re
import time

from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    backlog,
    batch,
    drained,
    namespace,
    published,
    read,
    rest,
    setup_connection,
    stats,
    texts,
    told,
)
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


@scenario
def generated_producer_names_tell_the_cluster(s):
    c, topic = s.connect(), s.topic()
    names = [c.producer(topic, i, quietly=True).command.producer_name for i in range(3)]
    s.note("of the form cluster-n-m", [bool(re.fullmatch(r"standalone-\d+-\d+", name)) for name in names])
    numbers = [int(name.rpartition("-")[2]) for name in names]
    s.note("ascending", numbers == sorted(set(numbers)))


@scenario
def consumer_without_a_name_has_one(s):
    c, topic = s.connect(), s.topic()
    c.subscribe(topic)
    name = stats(s, topic)["subscriptions"]["sub"]["consumers"][0]["consumerName"]
    s.note("length", len(name))


@scenario
def producer_and_consumer_in_the_stats(s):
    c, topic = s.connect(), s.topic()
    c.producer(topic, 7, producer_name="me", metadata=[dict(key="k", value="v")])
    c.subscribe(topic, "sub", 8, consumer_name="you", metadata=[dict(key="a", value="b")])
    told_of = stats(s, topic)
    publisher, consumer = told_of["publishers"][0], told_of["subscriptions"]["sub"]["consumers"][0]
    s.note("publisher", {k: publisher.get(k) for k in ("producerName", "producerId", "metadata", "accessMode")})
    s.note("consumer", {k: consumer.get(k) for k in ("consumerName", "metadata")})


@scenario
def age_of_a_backlog_limited(s):
    """limitTime of one second: checked by the age of whole ledgers, so a young ledger stops nobody."""
    ns = namespace(s)
    quota = dict(limitSize=-1, limitTime=1, policy="producer_exception")
    s.http("POST", f"/admin/v2/namespaces/{ns}/backlogQuota?backlogQuotaType=message_age", quota, quietly=True)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [b"x"] * 3)
    c.recv(7)
    c.producer(topic, 2, producer_name="q")


@scenario
def topics_of_one_name_in_two_namespaces(s):
    a, b = namespace(s, "a"), namespace(s, "b")
    c = s.connect()
    c.subscribe(s.topic("t", a), "sub", 1, permits=10, quietly=True)
    c.subscribe(s.topic("t", b), "sub", 2, permits=10, quietly=True)
    published(s, s.topic("t", b), 1)
    c.recv()
    c.none()


@scenario
def persistent_and_non_persistent_topics_of_one_name(s):
    a, b = s.topic(), s.topic(domain="non-persistent")
    c = s.connect()
    c.subscribe(a, "sub", 1, permits=10, quietly=True)
    c.subscribe(b, "sub", 2, permits=10, quietly=True)
    published(s, b, 1)
    c.recv()
    published(s, a, 1)
    c.recv()
    c.none()


@scenario
def batch_of_one_message(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    p = setup_connection(s)
    p.producer(topic, 1, quietly=True, producer_name="p")
    keep, s.lines = s.lines, []
    p.publish(1, 0, batch(b"a"), num_messages_in_batch=1)
    id_ = p.recv().message_id
    s.lines = keep
    c.recv()
    ack(c, id_ | dict(ack_set=[1], batch_size=1))
    s.note("backlog", backlog(s, topic))
    ack(c, id_ | dict(ack_set=[0], batch_size=1))
    s.note("backlog", backlog(s, topic))


@scenario
def batch_with_an_event_time_and_properties_of_each(s):
    """The inside of a batch is the clients' own."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    c.producer(topic, 1, quietly=True, producer_name="p")
    payload = batch(b"a", b"b", event_time=[1, 2], partition_key=["x", "y"], sequence_id=[0, 1])
    more = dict(num_messages_in_batch=2, event_time=9, properties=[dict(key="k", value="v")])
    c.publish(1, 0, payload, command=dict(num_messages=2, highest_sequence_id=1), **more)
    c.recv_sorted(2)


@scenario
def reader_that_seeks_around(s):
    topic = s.topic()
    ids = published(s, topic, 4)
    c = s.connect()
    more = dict(durable=False, permits=10, quietly=True)
    c.subscribe(topic, "r", 1, start_message_id=LATEST, **more)
    for name, id_ in dict(earliest=EARLIEST, third=ids[2], latest=LATEST).items():
        c.ask("SEEK", consumer_id=1, message_id=id_)
        c.subscribe(topic, "r", 1, start_message_id=id_, **more)
        s.note(name, texts(drained(c, 0.5)))


@scenario
def seek_keeps_other_subscriptions_as_they_are(s):
    topic = s.topic()
    c = s.connect()
    for i, name in enumerate("ab"):
        c.subscribe(topic, name, i, permits=10, quietly=True)
    ids = published(s, topic, 2)
    read(c, 4)
    for i in range(2):
        ack(c, ids[1], consumer_id=i, kind="Cumulative")
    c.ask("SEEK", consumer_id=0, message_id=ids[0])
    s.note("backlog", backlog(s, topic))
    c.none()


@scenario
def everything_acked_and_new_messages(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=100, **SHARED)
    for turn in range(3):
        ids = published(s, topic, 3, 3 * turn)
        s.note("came", told(read(c, 3)))
        ack(c, *ids)
    s.note("backlog", backlog(s, topic))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.none()


@scenario
def two_hundred_and_fifty_entries_of_backlog(s):
    """More than one read of the dispatcher brings."""
    topic = s.topic()
    published(s, topic, 250)
    for kind in "Exclusive", "Shared", "Key_Shared":
        c = s.connect(kind)
        c.subscribe(topic, kind, permits=1000, initialPosition="Earliest", subType=kind, quietly=True)
        s.note(kind, texts(drained(c)) == [f"m{i}" for i in range(250)])


@scenario
def permits_given_one_by_one(s):
    """As a client without a queue does."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, **SHARED)
    published(s, topic, 5)
    for _ in range(5):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
        (frame,) = read(c, 1)
        ack(c, frame.message_id)
        s.note("came", texts([frame]))
    c.none()


@scenario
def flow_before_anything_is_published(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=1, quietly=True)
    time.sleep(0.3)
    published(s, topic, 2)
    c.recv()
    c.none()
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def resetting_a_cursor_by_time_over_rest(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    published(s, topic, 3)
    read(c, 3)
    s.http("POST", rest(topic, "/subscription/sub/resetcursor/0"), quietly=True)
    c.recv()
    c.subscribe(topic, permits=10, quietly=True)
    s.note("came", texts(drained(c)))


@scenario
def producers_of_a_partitioned_topic_have_one_name(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 3, quietly=True)
    c = s.connect()
    for i in range(3):
        c.producer(f"{topic}-partition-{i}", i, producer_name="same")
    for i in range(3):
        c.publish(i, 0)
        c.recv()


@scenario
def deleting_a_subscription_frees_the_backlog_quota(s):
    ns = namespace(s)
    quota = dict(limitSize=1000, limitTime=-1, policy="producer_exception")
    s.http("POST", f"/admin/v2/namespaces/{ns}/backlogQuota", quota, quietly=True)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "sub", 1, quietly=True)
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [bytes(1000)] * 3)
    c.recv()
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.producer(topic, 1, producer_name="p")
