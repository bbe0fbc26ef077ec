"""Backlog quotas of each kind and policy at the levels of namespace and topic, and the answers to producers and consumers."""

import time

from harness.consumers import join
from harness.figures import figures
from harness.steps import drained, namespace, published, rest
from transcript import scenario

SIZE, AGE = "destination_storage", "message_age"
POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")


def quota(policy, size=None, seconds=None):
    return (
        {"policy": policy}
        | ({} if size is None else {"limitSize": size})
        | ({} if seconds is None else {"limitTime": seconds})
    )


def producer_refused(s, topic, c, name):
    frame = c.producer(topic, 7, quietly=True, producer_name=name)
    s.note(
        name,
        [
            frame.type,
            getattr(frame.command, "message", "").replace(s.tag, "$"),
            getattr(frame.command, "producer_ready", None),
        ]
        if frame
        else None,
    )
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=7)


def declare(policy, kind, level):
    def quota_reached(s):
        ns = namespace(s) if level == "namespace" else "public/default"
        topic = s.topic(namespace=ns)
        s.http("PUT", rest(topic), quietly=True)
        s.http("PUT", rest(topic, "/subscription/idle"), quietly=True)
        c = join(s, topic, "Shared", consumer_name="n", permits=2)
        p = s.connect()
        p.producer(topic, 1, quietly=True, producer_name="open")
        p.publish_all(1, [b"0123456789" * 5] * 4)
        base = f"/admin/v2/namespaces/{ns}" if level == "namespace" else rest(topic)
        body = quota(policy, size=100) if kind == SIZE else quota(policy, seconds=1)
        s.call("POST", f"{base}/backlogQuota?backlogQuotaType={kind}", body)
        s.call("GET", f"{base}/backlogQuotaMap", keep=True)
        s.call("GET", rest(topic, "/backlogQuotaMap?applied=true"), keep=True)
        time.sleep(4.5)
        frame = p.recv_quietly(0.1)
        s.note("open producer", frame and frame.type)
        producer_refused(s, topic, s.connect(), "new")
        drained(c, 0.3)
        figures(s, topic, "reached", ("earliestMsgPublishTimeInBacklogs", "earliestMsgPublishTimeInBacklog"))
        s.http("POST", rest(topic, "/subscription/idle/skip_all"))
        s.http("POST", rest(topic, "/subscription/sub/skip_all"))
        producer_refused(s, topic, s.connect(), "after")
        s.call("DELETE", f"{base}/backlogQuota?backlogQuotaType={kind}")
        s.call("GET", rest(topic, "/backlogQuotaMap?applied=true"), keep=True)

    quota_reached.__name__ = f"quota_of_{kind}_with_{policy}_of_a_{level}"
    scenario(quota_reached)


for each in POLICIES:
    for which in (SIZE, AGE):
        for where in ("namespace", "topic"):
            declare(each, which, where)


@scenario
def quotas_of_a_topic_in_every_form(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    path = rest(topic, "/backlogQuota")
    for query, body in (
        ("", quota("producer_exception", 1000, 60)),
        ("?backlogQuotaType=message_age", quota("producer_exception", 1000, 60)),
        ("?backlogQuotaType=message_age", quota("producer_exception", 1000)),
        ("?backlogQuotaType=none", quota("producer_exception", 1000)),
        ("?backlogQuotaType=", quota("producer_exception", 1000)),
        ("", {"limit": 500, "policy": "producer_exception"}),
        ("", {"limitSize": 500}),
        ("", {"policy": "producer_exception"}),
        ("", {"policy": "none", "limitSize": 5}),
        ("", {"policy": "producer_exception", "limitSize": 0, "limitTime": 0}),
        ("", {"policy": "producer_exception", "limitSize": -5, "limitTime": -7}),
        ("", None),
    ):
        s.call("POST", path + query, body)
        s.call("GET", rest(topic, "/backlogQuotaMap"), keep=True)
    for query in ("", "?backlogQuotaType=message_age", "?backlogQuotaType=none", ""):
        s.call("DELETE", path + query)
        s.call("GET", rest(topic, "/backlogQuotaMap"), keep=True)


@scenario
def quota_and_retention_of_both_levels_against_each_other(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic), quietly=True)
    upper = f"/admin/v2/namespaces/{ns}"
    s.call("POST", upper + "/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
    s.call("POST", upper + "/backlogQuota", quota("producer_exception", 20 * 2**20))
    s.call("POST", upper + "/backlogQuota", quota("producer_exception", 5 * 2**20))
    s.call("POST", rest(topic, "/backlogQuota"), quota("producer_exception", 20 * 2**20))
    s.call("POST", rest(topic, "/retention"), {"retentionTimeInMinutes": 10, "retentionSizeInMB": 30})
    s.call("POST", rest(topic, "/backlogQuota"), quota("producer_exception", 20 * 2**20))
    s.call("POST", rest(topic, "/retention"), {"retentionTimeInMinutes": 10, "retentionSizeInMB": 15})
    s.call("POST", upper + "/backlogQuota?backlogQuotaType=message_age", quota("producer_exception", seconds=601))
    s.call("POST", upper + "/backlogQuota?backlogQuotaType=message_age", quota("producer_exception", seconds=599))
    s.call("POST", upper + "/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 10})
    s.call("POST", upper + "/retention", {"retentionTimeInMinutes": 20, "retentionSizeInMB": 1})
    for path in (
        upper + "/retention",
        upper + "/backlogQuotaMap",
        rest(topic, "/retention"),
        rest(topic, "/backlogQuotaMap"),
    ):
        s.call("GET", path, keep=True)


@scenario
def quota_that_evicts_batches_and_holes(s):
    topic = s.topic()
    c = join(s, topic, "Shared", consumer_name="n")
    ids = published(s, topic, [b"x" * 100] * 6)
    drained(c, 0.3)
    for i in (1, 3):
        c.ask("ACK", quietly=True, consumer_id=1, ack_type="Individual", message_id=[ids[i]])
    s.call("POST", rest(topic, "/backlogQuota"), quota("consumer_backlog_eviction", 250))
    time.sleep(4.5)
    figures(s, topic, "evicted")
    s.http("GET", rest(topic, "/backlogQuotaMap"), keep=True)
