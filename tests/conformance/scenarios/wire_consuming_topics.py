"""Consumers of every type while their topic ends, is unloaded, emptied, deleted, or is not persistent at all."""

import time

from harness.consumers import by_type, join
from harness.steps import (
    EARLIEST,
    LATEST,
    ack,
    drained,
    namespace,
    published,
    published_batches,
    read,
    rest,
    stats,
    texts,
    told,
)
from transcript import scenario


def types_of(c, seconds=0.6):
    """The frames that come until nothing does for so long, by name."""
    return [f.type for f in iter(lambda: c.recv_quietly(seconds), None)]


def entries(frames):
    return [[f.command.message_id.entryId, f.metadata.num_messages_in_batch] for f in frames]


@by_type
def end_of_an_emptied_topic_is_told_once(s, kind):
    """Waiting consumers get the notice, consumers with new permits do not, acknowledging consumers get it again."""
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 2)
    read(c, 2)
    ack(c, *ids)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("terminated", sorted(set(types_of(c))))  # waiting consumers may get it twice
    c.send("FLOW", consumer_id=1, messagePermits=1)
    s.note("asked for more", types_of(c))
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    s.note("acknowledged again", types_of(c))


@by_type
def end_of_a_topic_and_no_permits(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, permits=0)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("terminated", types_of(c))
    for what in ("first", "second"):
        c.send("FLOW", consumer_id=1, messagePermits=1)
        s.note(what, types_of(c))


@by_type
def end_of_a_topic_with_a_backlog_that_is_dropped(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    published(s, topic, 3)
    read(c, 3)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("terminated", types_of(c))
    s.call("POST", rest(topic, "/subscription/sub/skip_all"))
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[LATEST])
    s.note("dropped", sorted(set(types_of(c))))


@by_type
def end_of_a_topic_and_who_comes_next(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 1)
    read(c, 1)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    s.note("terminated", types_of(c))
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    s.note("acknowledged", types_of(c))
    c.ask("CLOSE_CONSUMER", consumer_id=1)
    other = join(s, topic, kind, name="other")
    types_of(other, 1.5)  # answered or not: Apache Pulsar does both
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    s.note("unloaded", types_of(other))
    anew = join(s, topic, kind, name="anew")
    s.note("anew", types_of(anew, 1.5))


@scenario
def end_of_a_topic_and_a_long_wait(s):
    """No consumer is notified again when the broker reads at the end once more, after 15 seconds."""
    waiting, late = s.topic("waiting"), s.topic("late")
    consumers = [join(s, waiting, "Exclusive"), join(s, waiting, "Shared", subscription="shared")]
    for topic in (waiting, late):
        s.http("POST", rest(topic, "/terminate"), quietly=True)
    consumers += [join(s, late, "Exclusive"), join(s, late, "Shared", subscription="shared")]
    for c in consumers:
        s.note(c.name, sorted(set(types_of(c))))  # waiting consumers may get it twice
    time.sleep(17)
    for c in consumers:
        s.note(f"{c.name} later", types_of(c, 0.1))


@by_type
def end_of_a_topic_without_durable_subscriptions(s, kind):
    """Published messages stay for present and for later readers."""
    topic = s.topic()
    c = join(s, topic, kind, permits=2, durable=False)
    ids = published(s, topic, 4)
    drained(c)
    s.http("POST", rest(topic, "/terminate"), quietly=True)
    ack(c, ids[0], ids[3])
    s.http("POST", rest(topic, "/trim"), quietly=True)
    c.none()
    late = s.connect("late")
    late.subscribe(topic, "late", durable=False, start_message_id=EARLIEST, permits=10, quietly=True)
    s.note("late", texts(drained(late)))
    late.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@by_type
def unload_with_everything_pending(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, permits=3)
    ids = published(s, topic, 5)
    read(c, 3)
    ack(c, ids[1])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[ids[0]])
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    c.recv()
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[ids[2]], request_id=79)
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.none()
    s.lookup(topic)
    c = join(s, topic, kind, name="anew")
    s.note("anew", told(drained(c)))


@by_type
def deletion_by_force_under_a_consumer(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    published(s, topic, 2)
    read(c, 2)
    s.call("DELETE", rest(topic))
    s.call("DELETE", rest(topic, "?force=true"))
    c.recv()
    c.none()
    s.lookup(topic)
    c.subscribe(topic, subType=kind, initialPosition="Earliest")
    c.send("FLOW", consumer_id=1, messagePermits=5)
    s.note("came", [x for x in types_of(c, 1.5) if x == "MESSAGE"])


@by_type
def subscription_deleted_under_a_consumer(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    published(s, topic, 2)
    read(c, 2)
    s.call("DELETE", rest(topic, "/subscription/sub"))
    s.call("DELETE", rest(topic, "/subscription/sub?force=true"))
    c.recv()
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.none()
    c.ask("CLOSE_CONSUMER", consumer_id=1)


@by_type
def cursor_reset_over_rest_under_a_consumer(s, kind):
    topic = s.topic()
    c = join(s, topic, kind)
    ids = published(s, topic, 4)
    read(c, 4)
    ack(c, *ids)
    where = {"ledgerId": ids[2]["ledgerId"], "entryId": ids[2]["entryId"], "partitionIndex": -1}
    status, _ = s.http("POST", rest(topic, "/subscription/sub/resetcursor"), where, quietly=True)
    s.note("status", status)
    c.recv()
    c.none()
    c = join(s, topic, kind, name="anew")
    s.note("anew", told(drained(c)))


@by_type
def skipped_and_cleared_under_a_consumer(s, kind):
    """Pending messages that are skipped are not delivered again; permits stay as they were."""
    topic = s.topic()
    c = join(s, topic, kind, permits=3)
    published(s, topic, 6)
    read(c, 3)
    s.call("POST", rest(topic, "/subscription/sub/skip/2"))
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.none()
    c.send("FLOW", consumer_id=1, messagePermits=2)
    s.note("came", told(drained(c)))
    s.call("POST", rest(topic, "/subscription/sub/skip_all"))
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.none()
    published(s, topic, 1, 6)
    s.note("new", told(drained(c)))
    sub = stats(s, topic)["subscriptions"]["sub"]
    s.note("figures", [sub["msgBacklog"], sub["unackedMessages"], sub["msgOutCounter"]])
    s.note("consumer", [[x["availablePermits"], x["unackedMessages"]] for x in sub["consumers"]])


@by_type
def expired_under_a_consumer(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, permits=2)
    published(s, topic, 4)
    read(c, 2)
    time.sleep(1.2)
    s.http("POST", rest(topic, "/subscription/sub/expireMessages/1"), quietly=True)
    s.eventually("expired", lambda: stats(s, topic)["subscriptions"]["sub"]["msgBacklog"] == 0)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.none()
    published(s, topic, 1, 4)
    s.note("new", told(drained(c)))


@by_type
def messages_of_odd_metadata(s, kind):
    """Null values, no key, an empty key, ordering keys, event times: all as they were sent."""
    topic = s.topic()
    c = join(s, topic, kind)
    for i, more in enumerate(
        (
            dict(null_value=True),
            dict(partition_key="", null_partition_key=True),
            dict(ordering_key=b"\x00\xff", partition_key="k"),
            dict(event_time=5, properties=[dict(key="a", value=""), dict(key="a", value="b")]),
            dict(replicate_to=["__local__"], schema_version=b"\x01"),
            dict(num_messages_in_batch=1),
        )
    ):
        published(s, topic, [b"" if i == 0 else b"x"], i, **more)
    for _ in range(6):
        c.recv()


@by_type
def batches_larger_than_the_permits(s, kind):
    topic = s.topic()
    c = join(s, topic, kind, permits=1)
    published_batches(s, topic, [b"a"] * 150, [b"b"] * 30, [b"c"])
    s.note("first", entries(drained(c)))
    for permits in (100, 49, 1, 29, 1):
        c.send("FLOW", consumer_id=1, messagePermits=permits)
        s.note("came", entries(drained(c, 0.4)))
    s.note("permits", [x["availablePermits"] for x in stats(s, topic)["subscriptions"]["sub"]["consumers"]])


@by_type
def without_broker_entry_metadata(s, kind):
    """A client without the feature gets no broker entry metadata; a client with the feature gets them on the same
    subscription.
    """
    topic = s.topic()
    old = s.connect("old", feature_flags=dict(supports_broker_entry_metadata=False))
    old.subscribe(topic, permits=10, quietly=True, subType=kind)
    drained(old, 1.3)
    published(s, topic, 1)
    old.recv()
    old.ask("CLOSE_CONSUMER", consumer_id=1)
    new = join(s, topic, kind, name="new")
    new.recv()


@by_type
def names_and_metadata_of_a_consumer_in_the_stats(s, kind):
    topic = s.topic()
    c = s.connect(client_version="client 7")
    more = dict(
        metadata=[dict(key="a", value="b")], subscription_properties=[dict(key="x", value="y")], priority_level=2
    )
    c.subscribe(topic, subType=kind, consumer_name="me", replicate_subscription_state=False, **more)
    sub = stats(s, topic)["subscriptions"]["sub"]
    s.note("sub", [sub["type"], sub["isReplicated"], sub["isDurable"], sub["subscriptionProperties"]])
    s.note("consumer", [[x["consumerName"], x["metadata"], x["clientVersion"]] for x in sub["consumers"]])


@by_type
def non_persistent_consumers_share_what_comes(s, kind):
    topic = s.topic("t", domain="non-persistent")
    a, b = s.connect("a"), s.connect("b")
    for i, c in enumerate((a, b)):
        c.subscribe(topic, subType=kind, consumer_name=c.name, priority_level=i, consumer_epoch=4)
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=3 - i)
    for i in range(4):
        published(s, topic, 1, i)
        time.sleep(0.05)
    frames = drained(a) + drained(b)
    s.note("came", sorted([f.payload.decode(), f.command.HasField("consumer_epoch")] for f in frames))
    sub = stats(s, topic)["subscriptions"]["sub"]
    s.note("sub", [sub["type"], sub["msgBacklog"], sub.get("activeConsumerName")])
    a.ask("CLOSE_CONSUMER", consumer_id=1)
    published(s, topic, 1, 5)
    s.note("then", texts(drained(b)))


@by_type
def partitions_one_by_one(s, kind):
    """The parent may not be subscribed to; each partition has its own subscription and its number in every message."""
    topic = s.topic("p")
    s.call("PUT", rest(topic, "/partitions"), 2)
    c = s.connect()
    c.subscribe(topic, "sub", 9, subType=kind)
    for k in (1, 0):
        name = f"{topic}-partition-{k}"
        s.lookup(name)
        c.subscribe(name, "sub", k + 1, subType=kind, consumer_name="c")
        drained(c, 1.3)
        c.send("FLOW", consumer_id=k + 1, messagePermits=5)
        published(s, name, 1)
        c.recv()
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=k + 1)


@by_type
def limits_of_the_namespace_on_consumers(s, kind):
    ns = namespace(s, maxConsumersPerTopic=2, maxConsumersPerSubscription=1, maxUnackedMessagesPerConsumer=2)
    topic = s.topic("t", ns)
    c, d = s.connect(), s.connect()
    c.subscribe(topic, "one", 1, subType=kind)
    d.subscribe(topic, "one", 1, subType=kind, priority_level=1)
    drained(c, 1.3)
    c.subscribe(topic, "two", 2, subType=kind)
    drained(c, 1.3)
    d.subscribe(topic, "three", 3, subType=kind)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    published(s, topic, 5)
    frames = drained(c)
    s.note("came", told(frames))
    ack(c, frames[0].message_id)
    s.note("then", told(drained(c)))
