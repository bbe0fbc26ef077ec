"""Requests about subscriptions over REST: positions, bodies and queries of every form, counts beyond the backlog, partitions."""

from harness.steps import published, rest
from transcript import scenario


def new(s, n=5, name="t", partitions=0):
    topic = s.topic(name)
    s.http("PUT", rest(topic) + ("/partitions" if partitions else ""), partitions or None, quietly=True)
    ids = published(s, topic, n) if n else []
    return topic, rest(topic), ids


def calls(s, *steps, keep=True):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=keep)


def left(s, path):
    found = s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"]
    s.note("left", {k: v["msgBacklog"] for k, v in sorted(found.items())})


@scenario
def subscriptions_created_at_odd_positions(s):
    _, path, ids = new(s)
    first = ids[0]["ledgerId"]
    for i, body in enumerate(({}, {"ledgerId": first}, {"ledgerId": first, "entryId": -1}, {"ledgerId": first, "entryId": 99}, {"ledgerId": first, "entryId": 2, "partitionIndex": 3}, {"ledgerId": first, "entryId": 2, "batchIndex": 1},
                              {"ledgerId": first, "entryId": 1, "properties": {"a": "b"}}, {"ledgerId": -1, "entryId": 5}, {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}, {"ledgerId": first, "entryId": 2, "isExcluded": True}, {"ledgerId": first, "entryId": 2, "excluded": True},
                              {"ledgerId": "x"}, "middle", "EARLIEST", "", 5, [], {"entryId": 3})):  # fmt: skip
        s.call("PUT", f"{path}/subscription/s{i:02}", body)
    left(s, path)


@scenario
def subscriptions_with_blank_names(s):
    for partitions in (0, 2):
        topic, path, _ = new(s, 0, f"t{partitions}", partitions)
        if not partitions:
            published(s, topic, 2)
        calls(
            s,
            ("PUT", path + "/subscription/%20", "earliest"),
            ("PUT", path + "/subscription/%20", "earliest"),
            ("PUT", path + "/subscription/%09", {}),
            ("GET", path + "/subscriptions"),
            ("POST", path + "/subscription/%20/expireMessages/1"),
            ("GET", path + "/subscription/%20/properties"),
            ("POST", path + "/subscription/%20/skip_all"),
            ("POST", path + "/subscription/%20/resetcursor/0"),
            ("DELETE", path + "/subscription/%20"),
            ("DELETE", path + "/subscription/%20"),
            ("POST", path + "/subscription/%20/skip_all"),
            ("GET", path + "/subscriptions"),
        )


@scenario
def subscriptions_created_with_odd_queries(s):
    _, path, _ = new(s, 2)
    for i, query in enumerate(
        ("", "?replicated=true", "?replicated=x", "?authoritative=true", "?messageId=earliest", "?createTopic=false")
    ):
        s.call("PUT", f"{path}/subscription/s{i}{query}")
        s.call("PUT", f"{path}-none{i}/subscription/s{query}", "earliest")
    s.call(
        "GET",
        path + "/stats",
        keep=lambda x: {k: [v["isReplicated"], v["msgBacklog"]] for k, v in sorted(x["subscriptions"].items())},
    )


@scenario
def subscriptions_skipped_beyond_the_end(s):
    _, path, _ = new(s)
    s.call("PUT", path + "/subscription/s", "earliest")
    for n in (0, 2, -3, 100, 1):
        s.call("POST", f"{path}/subscription/s/skip/{n}")
        left(s, path)
    s.call("POST", path + "/subscription/s/skip_all")
    s.call("POST", path + "/subscription/none/skip_all")
    s.call("POST", path + "/subscription/none/skip/1")


@scenario
def subscriptions_reset_to_odd_messages(s):
    _, path, ids = new(s)
    first = ids[0]["ledgerId"]
    s.call("PUT", path + "/subscription/s", "latest")
    for body in ({"ledgerId": first, "entryId": 3}, {"ledgerId": first, "entryId": 1, "isExcluded": True}, {"ledgerId": first, "entryId": 1, "excluded": True}, {"ledgerId": first, "entryId": -1}, {"ledgerId": -1, "entryId": -1}, {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1},
                 {"ledgerId": first, "entryId": 77}, {"ledgerId": first + 5000, "entryId": 0}, {"ledgerId": first, "entryId": 2, "batchIndex": 0}, {"ledgerId": first, "entryId": 2, "partitionIndex": 4}, {}, [], "earliest", {"ledgerId": "x"}):  # fmt: skip
        s.call("POST", path + "/subscription/s/resetcursor", body)
        left(s, path)
    s.call("POST", path + "/subscription/none/resetcursor", {"ledgerId": first, "entryId": 1})
    for t in ("0", "-1", "1", "99999999999999"):
        s.call("POST", path + "/subscription/s/resetcursor/" + t)
        left(s, path)


@scenario
def subscriptions_reset_while_used(s):
    topic, path, ids = new(s)
    c = s.connect()
    c.subscribe(topic, "s", quietly=True, initialPosition="Earliest")
    s.call("POST", path + "/subscription/s/resetcursor", {"ledgerId": ids[0]["ledgerId"], "entryId": 2})
    c.recv()
    left(s, path)
    s.call("DELETE", path + "/subscription/s")


@scenario
def subscriptions_of_partitions_moved(s):
    topic, path, _ = new(s, 0, partitions=2)
    s.call("PUT", path + "/subscription/s", "earliest")
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
        published(s, f"{topic}-partition-{i}", 3)
    both = lambda: [left(s, f"{path}-partition-{i}") for i in range(2)]  # noqa: E731
    both()
    s.call("POST", path + "/subscription/s/skip/1")
    s.call("POST", path + "-partition-0/subscription/s/skip/1")
    both()
    s.call("POST", path + "/subscription/s/skip_all")
    both()
    s.call("POST", path + "/subscription/s/resetcursor/0")
    both()
    s.call("POST", path + "/subscription/s/resetcursor", {"ledgerId": 0, "entryId": 0})
    s.call("GET", path + "/subscription/s/position/1")
    s.call("POST", path + "/subscription/s/expireMessages", {"ledgerId": 0, "entryId": 0})
    s.call("POST", path + "/subscription/none/expireMessages/1")
    s.call(
        "GET",
        path + "/partitioned-stats",
        keep=lambda x: {k: [v["msgBacklog"], v["type"]] for k, v in x["subscriptions"].items()},
    )
    s.call("GET", path + "/partitioned-stats?perPartition=false", keep=lambda x: x["partitions"])
    s.call("DELETE", path + "/subscription/s?force=true")
    s.call("GET", path + "/subscriptions", keep=True)


@scenario
def subscriptions_with_odd_properties(s):
    _, path, _ = new(s, 1)
    s.call("PUT", path + "/subscription/s", "earliest")
    p = path + "/subscription/s/properties"
    for body in ({"a": "1"}, {"b": 2}, {}, None, [], "x", {"c": True}, {"d": {"e": 1}}):
        s.call("PUT", p, body)
        s.call("GET", p, keep=True)
    calls(
        s, ("GET", path + "/subscription/none/properties"), ("PUT", path + "/subscription/none/properties", {"a": "b"})
    )


@scenario
def subscriptions_peeked_at(s):
    _, path, _ = new(s, 3)
    s.call("PUT", path + "/subscription/s", "earliest")
    names = (
        "X-Pulsar-num-batch-message",
        "X-Pulsar-batch-size",
        "X-Pulsar-producer-name",
        "X-Pulsar-sequence-id",
        "Content-Type",
    )
    for n in ("1", "3", "4", "0", "-1", "x"):
        s.call("GET", f"{path}/subscription/s/position/{n}", keep=True, show=names)
    s.call("GET", path + "/subscription/new/position/2", keep=True)
    s.call("GET", path + "/subscriptions", keep=sorted)
    for query in (
        "",
        "?initialPosition=earliest",
        "?initialPosition=earliest&messagePosition=2",
        "?initialPosition=latest&messagePosition=3",
        "?initialPosition=x",
        "?messagePosition=0",
        "?messagePosition=-1",
        "?messagePosition=9",
        "?initialPosition=earliest&messagePosition=9",
    ):
        s.call("GET", path + "/examinemessage" + query, keep=True)


@scenario
def subscriptions_analyzed_once_more(s):
    topic, path, ids = new(s)
    s.call("PUT", path + "/subscription/s", "earliest")
    kept = ("entries", "messages", "filterAcceptedEntries", "filterRejectedEntries", "aborted")
    s.call("POST", path + "/subscription/s/analyzeBacklog", keep=kept)
    s.call("POST", path + "/subscription/s/skip/2")
    s.call("POST", path + "/subscription/s/analyzeBacklog", keep=kept)
    for body in ({"ledgerId": ids[0]["ledgerId"], "entryId": 3}, {"ledgerId": -1, "entryId": -1}, {}, "earliest"):
        s.call("POST", path + "/subscription/s/analyzeBacklog", body, keep=kept)


@scenario
def subscriptions_with_reserved_names(s):
    _, path, _ = new(s, 0)
    for name in ("pulsar.repl", "pulsar.repl.remote", "pulsar.dedup", "pulsar.other"):
        s.call("PUT", f"{path}/subscription/{name}")
    s.note("kept", sorted(s.http("GET", path + "/subscriptions", quietly=True)[1]))
