"""The backlog of a subscription: expired, skipped, cleared, limited by age, and counted after each of these."""

import time

from harness.steps import LATEST, ack, backlog, drained, namespace, published, read, rest, stats, texts, told
from transcript import scenario

SHARED = dict(subType="Shared", quietly=True)


def redeliver(c, *ids):
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=list(ids))


@scenario
def statistics_after_redelivery(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 4)
    read(c, 4)
    c.ask("CONSUMER_STATS", consumer_id=1)
    redeliver(c, ids[0], ids[1])
    read(c, 2)
    c.ask("CONSUMER_STATS", consumer_id=1)
    ack(c, ids[0])
    c.ask("CONSUMER_STATS", consumer_id=1)


@scenario
def expiry_up_to_a_position(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    ids = published(s, topic, 4)
    body = ids[1] | dict(partitionIndex=-1, batchIndex=-1)
    s.http("POST", rest(topic, "/subscription/sub/expireMessages"), body, quietly=True)
    s.eventually("expired", lambda: backlog(s, topic)["sub"] == 2)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c)))


@scenario
def skip_over_holes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=6, **SHARED)
    ids = published(s, topic, 6)
    read(c, 6)
    ack(c, ids[1], ids[2])
    s.http("POST", rest(topic, "/subscription/sub/skip/2"), quietly=True)
    s.note("backlog", backlog(s, topic))
    redeliver(c)
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", told(drained(c)))


@scenario
def clear_backlog_of_a_namespace(s):
    ns = namespace(s)
    topic = s.topic("t", ns)
    c = s.connect()
    c.subscribe(topic, "a", 1, quietly=True)
    c.subscribe(topic, "b", 2, quietly=True)
    published(s, topic, 3)
    s.http("POST", f"/admin/v2/namespaces/{ns}/clearBacklog")
    s.note("backlog", backlog(s, topic))
    c.send("FLOW", consumer_id=1, messagePermits=10)
    c.none()


@scenario
def peeking_takes_nothing_away(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    published(s, topic, 2)
    s.http("GET", rest(topic, "/subscription/sub/position/1"))
    s.note("backlog", backlog(s, topic))
    c.send("FLOW", consumer_id=1, messagePermits=10)
    s.note("came", told(drained(c)))


@scenario
def mark_delete_jumps_over_holes(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, permits=10, **SHARED)
    ids = published(s, topic, 5)
    read(c, 5)
    for i in (1, 2, 4, 0, 3):
        ack(c, ids[i])
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def latest_subscription_between_publishes(s):
    topic = s.topic()
    published(s, topic, 2)
    c = s.connect()
    c.subscribe(topic, permits=10, quietly=True)
    published(s, topic, 2, 2)
    s.note("came", texts(drained(c)))
    d = s.connect()
    d.subscribe(topic, "reader", durable=False, start_message_id=LATEST, permits=10, quietly=True)
    published(s, topic, 1, 4)
    s.note("reader", texts(drained(d)))


@scenario
def subscription_without_consumers_keeps_its_backlog(s):
    topic = s.topic()
    c = s.connect()
    c.subscribe(topic, quietly=True)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
    published(s, topic, 3)
    s.note("backlog", backlog(s, topic))
    s.note("type", stats(s, topic)["subscriptions"]["sub"].get("type"))
    c.subscribe(topic, permits=10, **SHARED)
    s.note("came", texts(drained(c)))


@scenario
def age_of_a_backlog_limited(s):
    """limitTime of one second: checked by the age of whole ledgers, so a young ledger stops no producer."""
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


def quota_without_room(level, quota):
    def run(s):
        for policy in ("producer_request_hold", "producer_exception", "consumer_backlog_eviction"):
            ns = namespace(s, policy[:12])
            topic = f"persistent://{ns}/t"
            s.http("PUT", rest(topic), quietly=True)
            s.lookup(topic)
            where = rest(topic) if level == "topic" else f"/admin/v2/namespaces/{ns}"
            s.http("POST", where + "/backlogQuota", quota | {"policy": policy})
            c = s.connect()

            def answer(c=c, topic=topic):
                found = c.ask("PRODUCER", quietly=True, topic=topic, producer_id=9, producer_name="p")
                if found.type == "PRODUCER_SUCCESS":
                    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=9)
                return [found.type, getattr(found.command, "error", None)]

            if policy != "consumer_backlog_eviction" and quota.get("limitSize", 0) == 0:
                s.eventually("refused", lambda answer=answer: answer()[0] == "ERROR")
            s.note(policy, answer())

    run.__name__ = f"quota_without_room_{level}_{'_'.join(quota) or 'empty'}_{quota.get('limitSize', 0)}"
    return scenario(run)


for level in ("topic", "namespace"):
    for quota in ({"limitTime": 70}, {"limitSize": 0}, {"limitSize": 1}, {"limitSize": -1}, {}):
        globals()[f"quota_{level}_{quota}"] = quota_without_room(level, quota)


@scenario
def eviction_by_age_takes_closed_ledgers_alone(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = s.connect()
    c.subscribe(topic, quietly=True)
    quota = {"limitTime": 1, "policy": "consumer_backlog_eviction"}
    s.call("POST", f"/admin/v2/namespaces/{ns}/backlogQuota?backlogQuotaType=message_age", quota)
    published(s, topic, 3)
    time.sleep(4.5)
    s.note("in the open ledger", backlog(s, topic))
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    published(s, topic, 1, 3)
    s.eventually("evicted", lambda: backlog(s, topic) == {"sub": 1}, 9)
    time.sleep(2.5)
    s.note("in the open ledger", backlog(s, topic))


@scenario
def place_of_the_cursors_after_an_eviction_by_age(s):
    """Before the first entry of the next ledger: the evicted ledgers go at once, acknowledgements behind them stay."""
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    c = s.connect()
    c.subscribe(topic, "a", 1, subType="Shared", quietly=True)
    c.subscribe(topic, "b", 2, subType="Shared", quietly=True)
    for first in 0, 3:
        published(s, topic, 3, first)
        s.http("PUT", rest(topic, "/unload"), quietly=True)
        s.lookup(topic)
    published(s, topic, 2, 6)
    time.sleep(1.2)
    quota = {"limitTime": 1, "policy": "consumer_backlog_eviction"}
    s.call("POST", f"/admin/v2/namespaces/{ns}/backlogQuota?backlogQuotaType=message_age", quota)
    s.eventually("evicted", lambda: backlog(s, topic) == {"a": 2, "b": 2}, 9)
    s.eventually("one ledger is left", lambda: stats(s, topic)["storageSize"] == 78, 5)

    def are_before_its_first_entry():
        found = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]
        first = found["ledgers"][0]["ledgerId"]
        places = [(each["markDeletePosition"], each["readPosition"]) for each in found["cursors"].values()]
        return places == [(f"{first}:-1", f"{first}:0")] * 2

    s.eventually("the cursors are before its first entry", are_before_its_first_entry, 5)


@scenario
def eviction_by_size_of_small_messages(s):
    """The size of a backlog is that of its entries alone."""
    ns = namespace(s)
    topic = s.topic("t", ns)
    c = s.connect()
    for consumer_id, name in enumerate(("a", "b")):
        c.subscribe(topic, name, consumer_id, quietly=True)
    ids = published(s, topic, [b"x" * 50] * 10)
    ack(c, ids[3], consumer_id=1, kind="Cumulative")
    quota = {"limitSize": 400, "policy": "consumer_backlog_eviction"}
    s.http("POST", f"/admin/v2/namespaces/{ns}/backlogQuota", quota)
    s.eventually("evicted", lambda: backlog(s, topic) == {"a": 5, "b": 5})
    s.note("left", backlog(s, topic))
    time.sleep(2.5)
    s.note("and after another check", [backlog(s, topic), stats(s, topic)["backlogSize"]])
