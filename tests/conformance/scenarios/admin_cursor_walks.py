"""Peeks, examinations, skips, expiries and resets of a subscription at odd places, with the figures behind each."""

from harness.consumers import by_type, join
from harness.steps import ack, drained, namespace, now_ms, published, published_batches, rest, texts
from transcript import scenario


def _position(s, text):
    ledger, _, entry = text.partition(":")
    return f"{s.neutral({'ledgerId': int(ledger)})['ledgerId']}:{entry}"


def place(s, topic, what, sub="sub"):
    """Note where the subscription stands."""
    inside = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]
    found = s.http("GET", rest(topic, "/stats"), quietly=True)[1]["subscriptions"].get(sub)
    if found is None:
        s.note(what, "no subscription")
        return
    cursor = inside["cursors"][sub]
    s.note(
        what,
        [
            found["msgBacklog"],
            found["unackedMessages"],
            _position(s, cursor["markDeletePosition"]),
            _position(s, cursor["readPosition"]),
            cursor["messagesConsumedCounter"],
            cursor["individuallyDeletedMessages"] if cursor["individuallyDeletedMessages"] == "[]" else "ranges",
        ],
    )


def told(s, method, path, body=None):
    """Note the status of a request, and the reason of a refusal that is no page of the web server."""
    status, answer = s.http(method, path, body, quietly=True)
    reason = answer.get("reason") if isinstance(answer, dict) else answer
    reason = "" if status < 300 or not reason or reason.startswith("<html>") else reason.replace(s.tag, "$")
    s.note(f"{method} {path.replace(s.tag, '$')}", [status, reason])


def filled(s, count=5):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    return topic, published(s, topic, count)


@scenario
def skips_of_every_number(s):
    topic, _ = filled(s, 8)
    for n in (0, 1, -1, 2, 2147483647, 1, "x", ""):
        told(s, "POST", rest(topic, f"/subscription/sub/skip/{n}"))
        place(s, topic, f"after {n}")


@scenario
def skips_over_batches_and_holes(s):
    topic, _ = filled(s, 1)
    ids = published_batches(s, topic, (b"a", b"b", b"c"), (b"d",), (b"e", b"f"))
    c = join(s, topic, "Shared", 10)
    drained(c, 0.3)
    ack(c, ids[1])
    c.ask("CLOSE_CONSUMER", True, consumer_id=1)
    for n in (1, 1, 1, 1):
        told(s, "POST", rest(topic, f"/subscription/sub/skip/{n}"))
        place(s, topic, f"after {n}")


@by_type
def skips_beside_a_consumer_that_has_messages(s, kind):
    topic, ids = filled(s, 6)
    c = join(s, topic, kind, 3)
    s.note("came", texts(drained(c, 0.4)))
    told(s, "POST", rest(topic, "/subscription/sub/skip/2"))
    place(s, topic, "skipped")
    ack(c, ids[2], kind="Individual")
    place(s, topic, "acknowledged")
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c, 0.4)))
    place(s, topic, "end")


@by_type
def expiry_beside_a_consumer_that_has_messages(s, kind):
    topic, ids = filled(s, 6)
    c = join(s, topic, kind, 3)
    s.note("came", texts(drained(c, 0.4)))
    body = {"ledgerId": ids[3]["ledgerId"], "entryId": ids[3]["entryId"], "partitionIndex": -1}
    told(s, "POST", rest(topic, "/subscription/sub/expireMessages"), body)
    s.until(lambda: False, 0.3)
    place(s, topic, "expired")
    c.send("FLOW", quietly=True, consumer_id=1, messagePermits=10)
    s.note("came", texts(drained(c, 0.4)))
    place(s, topic, "end")


@scenario
def expiries_at_odd_positions(s):
    topic, ids = filled(s, 5)
    first = ids[0]["ledgerId"]
    for ledger, entry, more in (
        (first, -1, {}), (first, -2, {}), (first, 100, {}), (first + 1000, 0, {}), (-1, -1, {}), (0, 0, {}), (first, 0, {"batchIndex": 3}),
        (first, 1, {"partitionIndex": 2}), (first, 2, {"isExcluded": True}), (first, 2, {"isExcluded": "x"}), (first, 4, {}), (first, 4, {}),
    ):  # fmt: skip
        body = {"ledgerId": ledger, "entryId": entry} | more
        status, answer = s.http("POST", rest(topic, "/subscription/sub/expireMessages"), body, quietly=True)
        s.note(f"{s.neutral({'ledgerId': ledger})} {entry} {more}", status)
        s.until(lambda: False, 0.2)
        place(s, topic, "then")


@scenario
def resets_in_all_forms(s):
    topic, ids = filled(s, 5)
    first = ids[0]["ledgerId"]
    base = rest(topic, "/subscription/sub/resetcursor")
    for body in (
        {"ledgerId": first, "entryId": 2, "partitionIndex": -1},
        {"ledgerId": first, "entryId": 2, "partitionIndex": -1, "isExcluded": True},
        {"ledgerId": first, "entryId": 99},
        {"ledgerId": first, "entryId": -1},
        {"ledgerId": first, "entryId": -5},
        {"ledgerId": first - 1, "entryId": 0},
        {"ledgerId": first + 1000, "entryId": 0},
        {"ledgerId": -1, "entryId": -1},
        {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1},
        {"ledgerId": first, "entryId": 4, "isExcluded": True},
        {"ledgerId": first, "entryId": 3, "other": 1},
        {"ledgerId": str(first), "entryId": "1"},
        {"ledgerId": first},
        {},
    ):
        status, _ = s.http("POST", base, body, quietly=True)
        s.note(
            {
                k: s.neutral({"ledgerId": int(v)})["ledgerId"] if k == "ledgerId" else v for k, v in body.items()
            }.__repr__(),
            status,
        )
        place(s, topic, "then")


@scenario
def resets_to_times(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    for i in range(4):
        published(s, topic, 1, i, publish_time=1_700_000_000_000 + i * 1000)
    for at in (
        0,
        1,
        -1,
        1_700_000_000_000,
        1_700_000_001_500,
        1_700_000_003_000,
        1_700_000_003_001,
        4_000_000_000_000,
        2**63 - 1,
    ):
        told(s, "POST", rest(topic, f"/subscription/sub/resetcursor/{at}"))
        place(s, topic, f"after {at}")


@scenario
def resets_of_a_subscription_that_is_missing_or_of_a_missing_topic(s):
    topic, ids = filled(s, 2)
    body = {"ledgerId": ids[0]["ledgerId"], "entryId": 0}
    for path in ("/subscription/none/resetcursor", "/subscription/none/resetcursor/1", "/subscription/none/skip/1", "/subscription/none/skip_all",
                 "/subscription/none/expireMessages/1", "/subscription/none/expireMessages"):  # fmt: skip
        told(s, "POST", rest(topic, path), body if path.endswith(("resetcursor", "expireMessages")) else None)
    for path in ("/subscription/sub/resetcursor", "/subscription/sub/skip/1"):
        told(s, "POST", rest(topic + "-none", path), body if path.endswith("resetcursor") else None)


@scenario
def peeks_at_every_position(s):
    topic, _ = filled(s, 3)
    published_batches(s, topic, (b"x", b"y"))
    for n in (0, 1, 3, 4, 5, 6, -1, 100, "x"):
        status, answer = s.http("GET", rest(topic, f"/subscription/sub/position/{n}"), quietly=True)
        headers = s.http_headers
        s.note(
            f"peek {n}",
            [
                status,
                answer if isinstance(answer, str) and status < 300 else None,
                headers.get("X-Pulsar-num-batch-message"),
                headers.get("X-Pulsar-batch-size"),
            ],
        )
    told(s, "POST", rest(topic, "/subscription/sub/skip/2"))
    for n in (1, 2, 3):
        status, answer = s.http("GET", rest(topic, f"/subscription/sub/position/{n}"), quietly=True)
        s.note(f"peek {n}", [status, answer if isinstance(answer, str) and status < 300 else None])
    place(s, topic, "end")


@scenario
def examinations_of_every_position(s):
    topic, _ = filled(s, 3)
    for query in ("", "?initialPosition=earliest", "?initialPosition=latest", "?initialPosition=Latest", "?initialPosition=other",
                  "?messagePosition=1", "?messagePosition=3", "?messagePosition=4", "?messagePosition=0", "?messagePosition=-1",
                  "?initialPosition=earliest&messagePosition=2", "?initialPosition=latest&messagePosition=3", "?initialPosition=&messagePosition=1",
                  "?initialPosition=earliest&messagePosition=99"):  # fmt: skip
        status, answer = s.http("GET", rest(topic, "/examinemessage" + query), quietly=True)
        s.note(query, [status, answer if isinstance(answer, str) and status < 300 else None])


@scenario
def analyses_of_a_backlog(s):
    topic, _ = filled(s, 3)
    ids = published_batches(s, topic, (b"a", b"b", b"c"), (b"d",))

    def analyzed(what, body=None):
        status, found = s.http("GET", rest(topic, "/subscription/sub/analyzeBacklog"), body, quietly=True)
        if status != 200:
            s.note(what, status)
            return
        found = {k: v for k, v in found.items() if "Position" not in k and "essageId" not in k}
        s.note(what, found)

    analyzed("full")
    c = join(s, topic, "Shared", 10)
    drained(c, 0.3)
    analyzed("delivered")
    ack(c, ids[0] | {"ack_set": [0b101], "batch_size": 3})
    analyzed("a part of a batch")
    ack(c, ids[1])
    analyzed("an entry")
    c.ask("CLOSE_CONSUMER", True, consumer_id=1)
    analyzed("without a consumer")
    s.http("POST", rest(topic, "/subscription/sub/skip/2"), quietly=True)
    analyzed("skipped")
    s.http("POST", rest(topic, "/subscription/sub/skip_all"), quietly=True)
    analyzed("empty")


@scenario
def clears_of_subscriptions_that_compact_or_read(s):
    topic, _ = filled(s, 3)
    c = s.connect()
    c.subscribe(topic, "reader-1", 1, quietly=True, durable=False, start_message_id={"ledgerId": 0, "entryId": 0})
    for sub in ("reader-1", "sub", "sub"):
        told(s, "POST", rest(topic, f"/subscription/{sub}/skip_all"))
        place(s, topic, "then", sub)
    for path in (
        "/subscription/reader-1/skip/1",
        "/subscription/reader-1/resetcursor/0",
        "/subscription/reader-1/expireMessages/1",
    ):
        told(s, "POST", rest(topic, path))
    told(s, "DELETE", rest(topic, "/subscription/reader-1"))
    told(s, "DELETE", rest(topic, "/subscription/reader-1?force=true"))
    c.recv(0.5)


@scenario
def expiries_by_age_of_every_number(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    published(s, topic, 2)
    for age in (0, -1, 1, 100000000, 2147483647, 2147483648, "x"):
        told(s, "POST", rest(topic, f"/subscription/sub/expireMessages/{age}"))
    for age in (0, -1, 100000000, "x"):
        told(s, "POST", rest(topic, f"/all_subscription/expireMessages/{age}"))
    s.until(lambda: False, 0.3)
    place(s, topic, "end")


@scenario
def steps_of_an_administrator_in_the_figures(s):
    ns = namespace(s)
    topic = s.topic("t", ns)
    s.http("PUT", rest(topic), quietly=True)
    for sub in ("a", "b"):
        s.http("PUT", rest(topic, f"/subscription/{sub}"), quietly=True)
    published(s, topic, 4)
    place(s, topic, "a", "a")
    told(s, "POST", f"/admin/v2/namespaces/{ns}/clearBacklog/a")
    place(s, topic, "a", "a")
    place(s, topic, "b", "b")
    told(s, "POST", f"/admin/v2/namespaces/{ns}/clearBacklog")
    place(s, topic, "b", "b")
    published(s, topic, 2, 4)
    told(s, "POST", f"/admin/v2/namespaces/{ns}/unsubscribe/a")
    told(s, "POST", f"/admin/v2/namespaces/{ns}/unsubscribe/none")
    place(s, topic, "a", "a")
    place(s, topic, "b", "b")
    s.http("POST", rest(topic, f"/subscription/b/resetcursor/{now_ms(-60000)}"), quietly=True)
    place(s, topic, "b", "b")
