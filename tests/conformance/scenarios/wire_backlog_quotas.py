"""Backlogs over their quota: producers held and refused, and the ways back under it."""

import time

from harness.consumers import join
from harness.figures import figures
from harness.quotas import CHECK_SECONDS, EVICT, REFUSE, WITHOUT, by_refusal, limit, limit_namespace, plain_topic, tried
from harness.steps import (
    EARLIEST,
    ack,
    backlog,
    batch,
    compact,
    namespace,
    published,
    published_batches,
    read,
    rest,
    stats,
)

WRITTEN_SECONDS = 1.3  # Apache Pulsar orders cursors by the positions it has written, at most one a second


@by_refusal
def way_under_the_quota_by_acks(s, policy):
    topic = plain_topic(s)
    c = join(s, topic, "Shared", consumer_name="n")
    d = join(s, topic, "Exclusive", subscription="other", consumer_name="m")
    p = s.connect()
    p.producer(topic, 1, producer_name="open")
    ids = p.publish_all(1, [bytes(50)] * 6)
    limit_namespace(s, topic, policy, 300)
    p.recv(6)
    tried(p, topic)
    p.publish(1, 6, b"late")
    p.none()
    read(c, 6)
    read(d, 6)
    ack(c, *ids[:4])
    time.sleep(WRITTEN_SECONDS)
    tried(p, topic)
    ack(d, ids[2], kind="Cumulative")
    time.sleep(WRITTEN_SECONDS)
    tried(p, topic)
    figures(s, topic, "end", WITHOUT)


@by_refusal
def way_under_the_quota_by_requests(s, policy):
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 5)
    limit_namespace(s, topic, policy, 200)
    p = s.connect()
    tried(p, topic)
    for request, body in (
        ("/subscription/a/skip/2", None),
        ("/subscription/a/resetcursor", EARLIEST | {"partitionIndex": -1}),
        ("/subscription/a/skip_all", None),
    ):
        s.http("POST", rest(topic, request), body, quietly=True)
        s.note("backlog", [backlog(s, topic), stats(s, topic)["backlogSize"]])
        tried(p, topic)
    limit_namespace(s, topic, policy, 10**6)
    published(s, topic, [bytes(50)] * 5, 10)
    limit_namespace(s, topic, policy, 200)
    tried(p, topic)
    s.http("PUT", rest(topic, "/subscription/b"), quietly=True)
    s.http("DELETE", rest(topic, "/subscription/a"), quietly=True)
    s.note("backlog", [backlog(s, topic), stats(s, topic)["backlogSize"]])
    tried(p, topic)


@by_refusal
def way_under_the_quota_by_policies(s, policy):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 5)
    p = s.connect()
    tried(p, topic)
    limit(s, ns, policy, 100)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == 100)
    tried(p, topic)
    limit(s, topic, policy, 1000)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == 1000)
    tried(p, topic)
    limit(s, topic, EVICT, 290)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == 290)
    tried(p, topic)
    s.http("DELETE", rest(topic, "/backlogQuota"), quietly=True)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == 100)
    tried(p, topic)
    s.http("DELETE", f"/admin/v2/namespaces/{ns}/backlogQuota", quietly=True)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == -1)
    tried(p, topic)
    figures(s, topic, "end", WITHOUT)


@by_refusal
def producers_of_each_kind_over_the_quota(s, policy):
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 5)
    limit_namespace(s, topic, policy, 100)
    p = s.connect()
    for mode in ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"):
        tried(p, topic, producer_access_mode=mode)
    tried(p, topic, encrypted=True)
    tried(p, topic, schema=dict(name="s", schema_data=b"", type="String"))
    tried(p, topic, initial_subscription_name="first")
    tried(p, topic, name="")
    s.note("subscriptions", sorted(backlog(s, topic)))
    c = s.connect()
    c.ask("GET_SCHEMA", topic=topic)
    c.subscribe(topic, "b", 1, subType="Shared")
    for version in (5, 9, 10, 21):
        old = s.connect(protocol_version=version)
        tried(old, topic)
    s.http("POST", rest(topic, "/subscription/a/skip_all"), quietly=True)
    tried(p, topic, producer_access_mode="ExclusiveWithFencing")
    tried(p, topic, producer_access_mode="Exclusive")


@by_refusal
def claims_beside_the_quota(s, policy):
    """Exclusive producers lose their place when the quota closes them."""
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    p, q = s.connect(), s.connect()
    p.producer(topic, 1, producer_name="holder", producer_access_mode="Exclusive")
    q.producer(topic, 1, producer_name="waiter", producer_access_mode="WaitForExclusive")
    p.publish_all(1, [bytes(60)] * 3)
    limit_namespace(s, topic, policy, 100)
    p.recv(6)
    q.recv(1)
    p.producer(topic, 2, producer_name="holder", producer_access_mode="Exclusive", topic_epoch=0)
    s.http("POST", rest(topic, "/subscription/a/skip_all"), quietly=True)
    p.producer(topic, 2, producer_name="holder", producer_access_mode="Exclusive", topic_epoch=0)
    figures(s, topic, "end", WITHOUT)


@by_refusal
def quota_without_a_durable_subscription(s, policy):
    topic = plain_topic(s)
    p = s.connect()
    p.producer(topic, 1, producer_name="open")
    p.publish_all(1, [bytes(50)] * 5)
    limit_namespace(s, topic, policy, 100)
    s.note("size", stats(s, topic)["backlogSize"])
    p.none(CHECK_SECONDS)
    c = s.connect()
    c.subscribe(topic, "reader", durable=False, start_message_id=EARLIEST, quietly=True)
    p.publish_all(1, [bytes(50)] * 2, 5)
    s.note("size", stats(s, topic)["backlogSize"])
    p.recv(CHECK_SECONDS + 1)
    tried(p, topic)
    c.close()
    s.eventually("gone", lambda: not backlog(s, topic))
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)


@by_refusal
def quota_of_batches_and_their_parts(s, policy):
    topic = plain_topic(s)
    c = join(s, topic, "Shared", consumer_name="n", permits=1000)
    ids = published_batches(s, topic, *[[bytes(10)] * 10 for _ in range(3)])
    limit_namespace(s, topic, policy, 400)
    p = s.connect()
    tried(p, topic)
    read(c, 3)
    for at in range(3):
        ack(c, ids[at] | {"ack_set": [0b11111]})
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)
    ack(c, ids[1])
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)
    ack(c, ids[0])
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)
    figures(s, topic, "end", WITHOUT)


@by_refusal
def quota_of_partitions(s, policy):
    ns = namespace(s)
    limit(s, ns, policy, 150)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    parts = [f"{topic}-partition-{i}" for i in range(2)]
    p = s.connect()
    for part in parts:
        s.lookup(part)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    p.producer(parts[0], 1, producer_name="open")
    p.producer(parts[1], 2, producer_name="open")
    p.publish_all(1, [bytes(50)] * 4)
    p.recv(6)
    for part in parts:
        tried(p, part)
    p.publish(2, 0)
    p.recv()
    s.http("POST", rest(topic, "/subscription/a/skip_all"), quietly=True)
    for part in parts:
        tried(p, part)


@by_refusal
def quota_held_by_the_cursor_of_compaction(s, policy):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    published(s, topic, [bytes(50)] * 2, partition_key="k")
    compact(s, topic)
    limit(s, ns, policy, 100)
    published(s, topic, [bytes(50)] * 5, 10, partition_key="k")
    p = s.connect()
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)
    time.sleep(CHECK_SECONDS)
    tried(p, topic)
    compact(s, topic)
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)


@by_refusal
def rest_produce_over_the_quota(s, policy):
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 5)
    limit_namespace(s, topic, policy, 100)
    tried(s.connect(), topic)
    path = topic.replace("persistent://", "/topics/persistent/")
    schema = '{"name":"","schema":"","type":"STRING","properties":{}}'
    body = {"valueSchema": schema, "messages": [{"payload": "x"}]}
    status, answer = s.http("POST", path, body, quietly=True)
    rows = answer.get("messagePublishResults", []) if isinstance(answer, dict) else answer
    s.note("answer", [status, [r.get("errorCode") for r in rows] if isinstance(rows, list) else str(rows)])
    s.note("backlog", backlog(s, topic))


@by_refusal
def quotas_of_both_kinds_and_both_levels(s, policy):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    published(s, topic, [bytes(50)] * 5)
    limit(s, ns, policy, 10**6)
    limit(s, ns, EVICT, seconds=1000)
    limit(s, topic, REFUSE, seconds=500)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitTime"] == 500)
    keys = ("backlogQuotaLimitSize", "backlogQuotaLimitTime")
    s.note("limits", [stats(s, topic)[k] for k in keys])
    s.http("GET", rest(topic, "/backlogQuotaMap?applied=true"), keep=True)
    s.http("GET", f"/admin/v2/namespaces/{ns}/backlogQuotaMap", keep=True)
    p = s.connect()
    tried(p, topic)
    s.http("DELETE", rest(topic, "/backlogQuota?backlogQuotaType=message_age"), quietly=True)
    limit(s, topic, policy, 200)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == 200)
    s.note("limits", [stats(s, topic)[k] for k in keys])
    tried(p, topic)


@by_refusal
def open_batches_at_the_quota(s, policy):
    """SENDs under way when the quota closes their producer, and its next id."""
    topic = plain_topic(s)
    s.http("PUT", rest(topic, "/subscription/a"), quietly=True)
    p = s.connect()
    p.producer(topic, 1, producer_name="a")
    p.producer(topic, 2, producer_name="b")
    payload = batch(*[bytes(20)] * 5)
    for i in range(3):
        p.publish(1, 5 * i, payload, command=dict(num_messages=5), num_messages_in_batch=5)
        p.recv()
    limit_namespace(s, topic, policy, 200)
    p.recv_sorted(2, 6)
    p.publish(2, 0)
    p.ask("CLOSE_PRODUCER", producer_id=1)
    p.none(0.3)
    s.note("publishers", len(stats(s, topic)["publishers"]))
    s.note("backlog", backlog(s, topic))


@by_refusal
def quota_held_by_the_cursor_of_deduplication(s, policy):
    ns = namespace(s, deduplication=True)
    limit(s, ns, policy, 150)
    topic = s.topic(namespace=ns)
    p = s.connect()
    p.producer(topic, 1, producer_name="open")
    p.publish_all(1, [bytes(50)] * 5)
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)
    p.none(CHECK_SECONDS + 1)
    s.note("size", stats(s, topic)["backlogSize"])
    tried(p, topic)


@by_refusal
def age_of_the_backlog_of_compaction(s, policy):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    published(s, topic, 2, partition_key="k")
    compact(s, topic)
    published(s, topic, 2, 10, partition_key="k")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    p = s.connect()
    p.producer(topic, 1, producer_name="open")
    p.publish_all(1, [b"x"], 20, partition_key="k")
    time.sleep(1.2)
    limit(s, ns, policy, seconds=1)
    p.recv(2 * CHECK_SECONDS)
    tried(p, topic)
    compact(s, topic)
    time.sleep(CHECK_SECONDS)
    tried(p, topic)


@by_refusal
def age_of_the_backlog_of_deduplication(s, policy):
    ns = namespace(s, deduplication=True)
    topic = s.topic(namespace=ns)
    published(s, topic, 2)
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    p = s.connect()
    p.producer(topic, 1, producer_name="open")
    p.publish_all(1, [b"x"], 20)
    time.sleep(1.2)
    limit(s, ns, policy, seconds=1)
    p.recv(2 * CHECK_SECONDS)
    tried(p, topic)
