"""Chains of requests on cursors: peek, examine, skip, expire, reset, analyze, on plain topics and partitions."""

import re
import time

from harness.consumers import by_type, join
from harness.figures import figures, internal_figures
from harness.steps import EARLIEST, LATEST, ack, drained, now_ms, published, published_batches, rest, setup_connection
from transcript import scenario

SHOWN = (
    "X-Pulsar-Message-ID",
    "X-Pulsar-num-batch-message",
    "X-Pulsar-batch-size",
    "X-Pulsar-PROPERTY-a",
    "X-Pulsar-sequence-id",
)


def shown(s, topic, path):
    status, body = s.http("GET", rest(topic, path), quietly=True)
    found = [s.http_headers.get(name) for name in SHOWN]
    found[0] = found[0] and re.sub(r"^(\d+)", lambda m: s.neutral({"ledgerId": int(m[1])})["ledgerId"], found[0])
    s.note(path, [status, *found, body if isinstance(body, str) else s.neutral(body)])


def analyzed(s, topic, sub="sub", body=None):
    s.call("GET", rest(topic, f"/subscription/{sub}/analyzeBacklog"), keep=_steady)


def _steady(body):
    return {k: v for k, v in body.items() if "osition" not in k and "urMillis" not in k and "imestamp" not in k}


def filled(s, name="t"):
    topic = s.topic(name)
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), EARLIEST, quietly=True)
    ids = published(s, topic, 3, properties=[dict(key="a", value="b")]) + published_batches(
        s, topic, [b"a", b"b"], [b"c"]
    )
    return topic, ids


@scenario
def chain_of_peeks(s):
    topic, _ = filled(s)
    for n in (1, 3, 4, 5, 6):
        shown(s, topic, f"/subscription/sub/position/{n}")
    s.http("POST", rest(topic, "/subscription/sub/skip/2"))
    for n in (1, 2, 3, 4):
        shown(s, topic, f"/subscription/sub/position/{n}")
    shown(s, topic, "/subscription/none/position/1")
    figures(s, topic, "end")


@scenario
def chain_of_examinations(s):
    topic, _ = filled(s)
    for place in ("earliest", "latest", "odd", ""):
        for n in (1, 2, 5, 0):
            shown(s, topic, f"/examinemessage?initialPosition={place}&messagePosition={n}")
    shown(s, topic, "/examinemessage")


@scenario
def chain_of_skips_and_analyses(s):
    topic, _ = filled(s)
    analyzed(s, topic)
    for n in (1, 2, 1, 5):
        s.http("POST", rest(topic, f"/subscription/sub/skip/{n}"))
        analyzed(s, topic)
        figures(s, topic, f"skipped {n}")
    published(s, topic, 2, first=20)
    analyzed(s, topic)
    internal_figures(s, topic, "insides")


@by_type
def chain_of_analyses_beside_a_consumer(s, kind):
    topic, ids = filled(s)
    c = join(s, topic, kind, consumer_name="n", permits=4)
    drained(c, 0.4)
    ack(c, ids[1], ids[3] | dict(ack_set=[0b10]))
    analyzed(s, topic)
    s.http("POST", rest(topic, "/subscription/sub/skip/1"))
    analyzed(s, topic)
    c.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    drained(c, 0.4)
    figures(s, topic, "end")


@scenario
def chain_of_expiries(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for name in ("a", "b", "c"):
        s.http("PUT", rest(topic, f"/subscription/{name}"), EARLIEST, quietly=True)
    old = published(s, topic, 2, publish_time=1_600_000_000_000)
    time.sleep(2.2)
    published(s, topic, 2, first=5, publish_time=now_ms())
    for path in (
        "/subscription/a/expireMessages/1",
        "/all_subscription/expireMessages/3600",
        "/subscription/b/expireMessages/0",
    ):
        s.http("POST", rest(topic, path))
        time.sleep(0.4)
        figures(s, topic, path)
    s.http("POST", rest(topic, "/subscription/c/expireMessages"), old[1])
    time.sleep(0.4)
    figures(s, topic, "by position")
    s.http("POST", rest(topic, "/subscription/none/expireMessages/1"))
    s.http("POST", rest(topic, "/subscription/a/expireMessages/-1"))


@scenario
def chain_of_resets(s):
    topic, ids = filled(s)
    for target in (
        ids[2],
        ids[3] | {"batchIndex": 1},
        ids[4] | {"isExcluded": True},
        LATEST,
        EARLIEST,
        {"ledgerId": 0, "entryId": 0},
    ):
        s.http("POST", rest(topic, "/subscription/sub/resetcursor"), target)
        analyzed(s, topic)
        shown(s, topic, "/subscription/sub/position/1")
    for ms in (0, -1, now_ms(100_000), 2**62):
        s.http("POST", rest(topic, f"/subscription/sub/resetcursor/{ms}"), quietly=True)
        analyzed(s, topic)
    figures(s, topic, "end")


@scenario
def chain_of_resets_of_partitions(s):
    topic = s.topic("p")
    s.http("PUT", rest(topic, "/partitions"), 2, quietly=True)
    for i in range(2):
        part = f"{topic}-partition-{i}"
        s.lookup(part)
        published(s, part, i + 2)
    s.http("PUT", rest(topic, "/subscription/sub"), EARLIEST)
    s.http("POST", rest(topic, "/subscription/sub/skip/1"))
    s.http("POST", rest(topic, "/subscription/sub/resetcursor"), EARLIEST)
    s.http("POST", rest(topic, "/subscription/sub/resetcursor"), LATEST)
    s.http("POST", rest(topic + "-partition-1", "/subscription/sub/skip/1"))
    s.http("POST", rest(topic, "/subscription/sub/expireMessages/1"))
    s.http("POST", rest(topic, "/all_subscription/expireMessages/1"))
    s.http("POST", rest(topic, "/subscription/sub/skip_all"))
    s.http("GET", rest(topic, "/subscription/sub/position/1"))
    s.http("GET", rest(topic, "/subscription/sub/analyzeBacklog"))
    s.http("GET", rest(topic, "/examinemessage"))
    s.http("GET", rest(topic, "/lastMessageId"))
    for i in range(2):
        figures(s, f"{topic}-partition-{i}", f"partition {i}")
    s.http("DELETE", rest(topic, "/subscription/sub"))
    s.http("DELETE", rest(topic, "/subscription/sub"))
    s.http("GET", rest(topic, "/subscriptions"), keep=True)


@scenario
def chain_of_messages_by_position(s):
    topic, ids = filled(s)
    first = ids[0]["ledgerId"]
    for entry in (0, 2, 3, 4, 5, -1):
        status, body = s.http("GET", rest(topic, f"/ledger/{first}/entry/{entry}"), quietly=True)
        s.note(
            f"entry {entry}",
            [
                status,
                s.http_headers.get("X-Pulsar-num-batch-message"),
                body if isinstance(body, str) and len(body) < 30 else type(body).__name__,
            ],
        )
    s.http("DELETE", rest(topic, "/truncate"))
    status, _ = s.http("GET", rest(topic, f"/ledger/{first}/entry/0"), quietly=True)
    s.note("truncated", status)


@scenario
def chain_of_message_ids_by_time(s):
    topic = s.topic()
    moments = []
    for i in range(3):
        moments.append(now_ms())
        time.sleep(0.03)
        published(s, topic, 1, first=i, publish_time=now_ms())
        time.sleep(0.03)
    for name, ms in (
        ("first", moments[0]),
        ("second", moments[1]),
        ("third", moments[2]),
        ("zero", 0),
        ("far", now_ms(10**7)),
    ):
        status, body = s.http("GET", rest(topic, f"/messageid/{ms}"), quietly=True)
        s.note(name, [status, s.neutral(body)])
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    for name, ms in (("first", moments[0]), ("third", moments[2]), ("far", now_ms(10**7))):
        status, body = s.http("GET", rest(topic, f"/messageid/{ms}"), quietly=True)
        s.note(name, [status, s.neutral(body)])


@scenario
def chain_of_sizes_of_the_backlog(s):
    topic, ids = filled(s)
    for target in (*ids, EARLIEST, LATEST, {"ledgerId": 1, "entryId": 0}):
        status, body = s.http("PUT", rest(topic, "/backlogSize"), target, quietly=True)
        s.note("size", [status, body if isinstance(body, int) else "text"])
    s.http("GET", rest(topic, "/backlog"), keep=None)


@scenario
def chain_of_terminations(s):
    topic, ids = filled(s)
    c = setup_connection(s)
    c.subscribe(topic, "sub", 1, quietly=True, permits=2)
    drained(c, 0.3)
    s.http("POST", rest(topic, "/terminate"), keep=True)
    s.http("POST", rest(topic, "/terminate"), keep=True)
    for path in (
        "/subscription/sub/skip/1",
        "/subscription/sub/expireMessages/1",
        "/subscription/sub/resetcursor/0",
        "/subscription/sub/skip_all",
    ):
        s.http("POST", rest(topic, path))
        drained(c, 0.3)
        figures(s, topic, path)
    s.http("PUT", rest(topic, "/subscription/new"), LATEST)
    s.http("PUT", rest(topic, "/subscription/old"), ids[1])
    s.http("DELETE", rest(topic, "/truncate"))
    figures(s, topic, "end")


@scenario
def chain_of_subscriptions_with_properties(s):
    topic, _ = filled(s)
    base = rest(topic, "/subscription/x")
    s.http("PUT", base + "?replicated=true", EARLIEST | {"properties": {"a": "b", "": "c"}})
    s.call("GET", base + "/properties", keep=True)
    s.call("PUT", base + "/properties", {"k": "v"})
    s.call("PUT", base + "/properties", {})
    s.call("GET", base + "/properties", keep=True)
    s.call("GET", base + "/replicatedSubscriptionStatus", keep=lambda found: sorted(found.values()))
    s.call("POST", base + "/replicatedSubscriptionStatus", False)
    s.call("GET", base + "/replicatedSubscriptionStatus", keep=lambda found: sorted(found.values()))
    c = setup_connection(s)
    c.subscribe(topic, "x", 1, subscription_properties=[dict(key="n", value="m")], replicate_subscription_state=True)
    figures(s, topic, "end")
    s.http("PUT", rest(topic, "/unload"), quietly=True)
    s.lookup(topic)
    s.call("GET", base + "/properties", keep=True)
