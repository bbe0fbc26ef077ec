"""Requests of an administrator on a subscription in use: all figures of the topic after each of them."""

import time

from harness.consumers import by_type, by_types, join
from harness.figures import figures, internal_figures
from harness.steps import ack, drained, now_ms, published, published_batches, read, rest, told
from transcript import scenario

FOUR = [b"a", b"b", b"c", b"d"]


def in_use(s, kind, **how):
    topic = s.topic(**how)
    c = join(s, topic, kind, consumer_name="n")
    ids = published(s, topic, 3) + published_batches(s, topic, FOUR) + published(s, topic, 1, first=9, producer="r")
    s.note("came", told(read(c, 5)))
    return topic, c, ids


@by_type
def subscription_in_use_is_skipped(s, kind):
    topic, c, ids = in_use(s, kind)
    ack(c, ids[1])
    for n in (1, 1, 2, 100):
        s.http("POST", rest(topic, f"/subscription/sub/skip/{n}"))
        figures(s, topic, f"skipped {n}")
    internal_figures(s, topic, "insides")
    published(s, topic, 1, first=20)
    s.note("came", told(drained(c, 0.4)))


@by_type
def subscription_in_use_is_cleared(s, kind):
    topic, c, ids = in_use(s, kind)
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    figures(s, topic, "cleared")
    ack(c, ids[0])
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", told(drained(c, 0.4)))
    figures(s, topic, "acknowledged")
    internal_figures(s, topic, "insides")


@by_type
def subscription_in_use_is_reset_to_times(s, kind):
    topic, c, ids = in_use(s, kind)
    for offset in (-3_600_000, 3_600_000):
        s.http("POST", rest(topic, f"/subscription/sub/resetcursor/{now_ms(offset)}"), quietly=True)
        while c.recv(0.4):
            pass
        figures(s, topic, f"reset to {offset}")
        c.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="n")
        s.note("came", told([f for f in drained(c, 1.3) if f.type == "MESSAGE"]))
        figures(s, topic, "joined again")


@by_types("Exclusive", "Failover")
def topic_in_use_is_truncated(s, kind):
    topic, c, ids = in_use(s, kind)
    s.http("DELETE", rest(topic, "/truncate"))
    figures(s, topic, "truncated")
    published(s, topic, 2, first=30)
    s.note("came", told(drained(c, 0.4)))
    ack(c, ids[0])
    internal_figures(s, topic, "insides")


@by_type
def topic_in_use_is_terminated(s, kind):
    topic, c, ids = in_use(s, kind)
    s.http("POST", rest(topic, "/terminate"), keep=True)
    figures(s, topic, "terminated")
    ack(c, *ids)
    c.recv(1)
    figures(s, topic, "acknowledged")
    internal_figures(s, topic, "insides")
    s.http("POST", rest(topic, "/subscription/sub/skip/1"))
    s.http("POST", rest(topic, "/subscription/sub/resetcursor"), ids[2])
    while c.recv(0.5):
        pass
    figures(s, topic, "reset")


@by_type
def topic_in_use_is_unloaded(s, kind):
    topic, c, _ = in_use(s, kind)
    s.http("PUT", rest(topic, "/unload"))
    c.recv()
    s.lookup(topic)
    figures(s, topic, "loaded")
    c.subscribe(topic, permits=100, quietly=True, subType=kind, consumer_name="n")
    s.note("came", [f.command.message_id.entryId for f in drained(c, 1.3) if f.type == "MESSAGE"][-4:])
    internal_figures(s, topic, "insides")


@by_type
def subscription_without_consumers_moves(s, kind):
    topic, c, ids = in_use(s, kind)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    figures(s, topic, "left")
    for path in ("skip/1", "resetcursor", "skip_all"):
        s.http("POST", rest(topic, f"/subscription/sub/{path}"), ids[1] if path == "resetcursor" else None)
        figures(s, topic, path)
    s.http("PUT", rest(topic, "/subscription/sub/properties"), {"a": "b"})
    figures(s, topic, "properties")
    s.http("POST", rest(topic, "/subscription/sub/replicatedSubscriptionStatus"), True)
    figures(s, topic, "replicated")
    s.http("DELETE", rest(topic, "/subscription/sub"))
    figures(s, topic, "deleted")


@scenario
def quota_of_age_reached_by_each_policy(s):
    for policy in ("producer_request_hold", "producer_exception"):
        topic = s.topic(policy)
        join(s, topic, "Shared", consumer_name="n", permits=0)
        published(s, topic, 4)
        s.http("POST", rest(topic, "/backlogQuota?backlogQuotaType=message_age"), {"limitTime": 1, "policy": policy})
        s.http("GET", rest(topic, "/backlogQuotaMap"), keep=True)
        time.sleep(4)
        d = s.connect()
        d.producer(topic, 1, producer_name="new")
        d.close()
        s.http("DELETE", rest(topic, "/backlogQuota?backlogQuotaType=message_age"))
        s.http("GET", rest(topic, "/backlogQuotaMap"), keep=True)
