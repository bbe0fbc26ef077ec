"""The effect of policies set over REST on clients: quotas, expiry, limits, rates, compaction."""

import time

from harness.steps import (
    EARLIEST,
    ack,
    backlog,
    drained,
    namespace,
    now_ms,
    published,
    read,
    rest,
    texts,
)
from transcript import scenario


def size_quota(policy, limit=1000):
    return dict(limitSize=limit, limitTime=-1, policy=policy)


def quota_namespace(s, policy):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/backlogQuota", size_quota(policy), quietly=True)
    return ns


def filled(s, policy):
    """A topic over its quota: three kilobytes behind a subscription that reads nothing."""
    topic = s.topic("t", quota_namespace(s, policy))
    c = s.connect("reader")
    c.subscribe(topic, quietly=True)
    return topic, c


@scenario
def backlog_quota_that_throws_at_producers(s):
    topic, _ = filled(s, "producer_exception")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [bytes(1000)] * 3)
    c.recv()
    c.producer(topic, 1, producer_name="p")
    c.producer(topic, 2, producer_name="q")


@scenario
def backlog_quota_that_holds_producers(s):
    topic, _ = filled(s, "producer_request_hold")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [bytes(1000)] * 3)
    c.recv()
    c.producer(topic, 1, producer_name="p")


@scenario
def backlog_quota_released_by_acks(s):
    topic, r = filled(s, "producer_exception")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    ids = c.publish_all(1, [bytes(1000)] * 3)
    c.recv()
    r.ask("ACK", quietly=True, consumer_id=1, ack_type="Cumulative", message_id=[ids[-1]])
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 3)
    c.recv()


@scenario
def backlog_quota_that_evicts(s):
    """Eviction of whole entries down to nine tenths of the limit; the last entry is over it and stays."""
    topic, _ = filled(s, "consumer_backlog_eviction")
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.publish_all(1, [bytes(1000)] * 5)
    s.eventually("evicted but for one", lambda: backlog(s, topic)["sub"] == 1)
    c.publish(1, 5)
    c.recv()


@scenario
def expiry_by_rest_skips_for_consumers(s):
    """expireMessages drops messages older than so many seconds from the backlog."""
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 2)
    time.sleep(2.2)
    published(s, topic, 1, 2)
    s.http("POST", rest(topic, "/subscription/sub/expireMessages/1"))
    s.eventually("expired", lambda: backlog(s, topic)["sub"] == 1)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c)))


@scenario
def skipped_and_cleared_messages_do_not_come(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 4)
    s.http("POST", rest(topic, "/subscription/sub/skip/2"))
    c.send("FLOW", consumer_id=1, messagePermits=1)
    s.note("after a skip", texts(drained(c)))
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    published(s, topic, 1, 4)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("after skip_all", texts(drained(c)))


@scenario
def cursor_reset_by_rest_closes_consumers(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    ids = published(s, topic, 3)
    read(c, 3)
    s.http("POST", rest(topic, "/subscription/sub/resetcursor"), ids[1] | dict(partitionIndex=-1), quietly=True)
    c.recv()
    c.subscribe(topic, permits=10)
    s.note("came", texts(drained(c)))


@scenario
def subscription_made_by_rest(s):
    topic = s.topic()
    ids = published(s, topic, 3)
    for name, position in dict(first="earliest", last="latest", second=ids[1]).items():
        s.http("PUT", rest(topic, f"/subscription/{name}"), position, quietly=True)
        c = s.connect(name)
        c.subscribe(topic, name, permits=10, quietly=True)
        s.note(name, texts(drained(c, 0.4)))


@scenario
def limits_of_a_topic_policy(s):
    """maxProducers, maxConsumers and maxSubscriptionsPerTopic set on the topic itself."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="a")
    for path in "maxProducers", "maxConsumers", "maxSubscriptionsPerTopic":
        s.http("POST", rest(topic, "/" + path), 1, quietly=True)
    time.sleep(1)
    c.producer(topic, 2, producer_name="b")
    c.subscribe(topic, "one", 1, subType="Shared")
    c.subscribe(topic, "one", 2, subType="Shared")
    c.subscribe(topic, "two", 3)


@scenario
def compacted_reader_sees_the_last_of_each_key(s):
    topic = s.topic()
    for i, key in enumerate("abab"):
        published(s, topic, [b"%d" % i], i, partition_key=key)
    published(s, topic, [b"no key"], 4)
    published(s, topic, [b""], 5, partition_key="a")
    s.http("PUT", rest(topic, "/compaction"), quietly=True)

    def done():
        return s.http("GET", rest(topic, "/compaction"), quietly=True)[1]["status"] == "SUCCESS"

    s.eventually("compacted", done, 15)
    for name, compacted in ("compacted", True), ("plain", False):
        c = s.connect(name)
        c.subscribe(topic, name, read_compacted=compacted, initialPosition="Earliest", permits=10, quietly=True)
        s.note(name, [[f.payload.decode(), f.command.message_id.entryId] for f in drained(c)])
    published(s, topic, [b"new"], 6, partition_key="b")
    for c in s.connections[-2:]:
        s.note(c.name, texts(drained(c)))


@scenario
def compacted_read_without_a_compaction(s):
    topic = s.topic()
    for i, key in enumerate("aba"):
        published(s, topic, [b"%d" % i], i, partition_key=key)
    c = s.connect()
    c.subscribe(topic, read_compacted=True, initialPosition="Earliest", permits=10, quietly=True)
    s.note("all", texts(drained(c)))
    d = s.connect()
    d.subscribe(topic, "r", durable=False, read_compacted=True, start_message_id=EARLIEST, permits=10, quietly=True)
    s.note("reader", texts(drained(d)))
    d.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def subscribe_rate_of_a_namespace(s):
    """One SUBSCRIBE of a consumer name per period."""
    ns = namespace(s, subscribeRate=dict(subscribeThrottlingRatePerConsumer=1, ratePeriodInSecond=30))
    topic = s.topic("t", ns)
    c = s.connect()
    for _ in range(3):
        c.subscribe(topic, "sub", 1, consumer_name="n")
        c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def dispatch_rate_of_a_namespace(s):
    """Three messages in a period of 30 seconds, the rest waits."""
    rate = dict(dispatchThrottlingRateInMsg=3, dispatchThrottlingRateInByte=-1, ratePeriodInSecond=30)
    ns = namespace(s, dispatchRate=rate)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, permits=1, quietly=True)
    published(s, topic, 10)
    for _ in range(9):
        c.send("FLOW", quietly=True, consumer_id=1, messagePermits=1)
        time.sleep(0.1)
    s.note("some, not all", 0 < len(drained(c)) < 10)


@scenario
def namespace_unload_and_deletion_close_everything(s):
    ns = namespace(s)
    topic = s.topic("t", ns)
    c = s.connect()
    c.producer(topic, 1, quietly=True)
    c.subscribe(topic, "sub", 1, quietly=True)
    s.http("PUT", f"/admin/v2/namespaces/{ns}/unload")
    c.recv_sorted(2)
    s.lookup(topic)
    c.producer(topic, 1, producer_name="p")
    s.http("DELETE", f"/admin/v2/namespaces/{ns}?force=true")
    c.recv()
    c.ask("LOOKUP", topic=topic)


@scenario
def partitioned_topic_deleted_under_its_clients(s):
    topic = s.topic()
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    c = s.connect()
    c.producer(topic + "-partition-0", 1, quietly=True)
    c.subscribe(topic + "-partition-1", "sub", 1, quietly=True)
    s.http("DELETE", rest(topic, "/partitions"))
    s.http("DELETE", rest(topic, "/partitions?force=true"))
    c.recv_sorted(2)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)


@scenario
def message_ttl_drops_old_messages_when_asked(s):
    """The TTL is only looked at every few minutes; until then old messages are delivered."""
    ns = namespace(s, messageTTL=1)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 2)
    time.sleep(2)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c)))


@scenario
def index_of_message_by_time_and_seek(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    published(s, topic, 2)
    time.sleep(0.1)
    middle = now_ms()
    time.sleep(0.1)
    ids = published(s, topic, 2, 2)
    status, found = s.http("GET", rest(topic, f"/messageid/{middle}"), quietly=True)
    s.note("found", [found["ledgerId"] == ids[0]["ledgerId"], found["entryId"]])
    read(c, 4)
    ack(c, ids[0])
    s.note("backlog", backlog(s, topic))


@scenario
def eviction_by_size_stops_where_less_than_an_entry_has_to_go(s):
    topic = f"persistent://{namespace(s, backlogQuota=dict(limitSize=200, policy='consumer_backlog_eviction'))}/t"
    s.lookup(topic)
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, [b"x" * 100] * 5)
    s.eventually("two messages are left", lambda: backlog(s, topic)["sub"] == 2)
    time.sleep(2.5)
    s.note("and stay", backlog(s, topic))
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.recv()
    c.recv()
    c.none()
