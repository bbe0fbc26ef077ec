"""Topics over REST in each state: created twice, deleted, grown, terminated, truncated, with a partition missing."""

from harness.steps import EARLIEST, backlog, drained, published, rest, texts
from transcript import scenario

PARTITIONED = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}


def calls(s, *steps, keep=True):
    for method, path, *body in steps:
        s.call(method, path, body[0] if body else None, keep=keep)


def new(s, name="t", partitions=0, domain="persistent"):
    topic = s.topic(name, domain=domain)
    s.http("PUT", rest(topic) + ("/partitions" if partitions else ""), partitions or None, quietly=True)
    return topic, rest(topic)


@scenario
def topics_created_with_odd_bodies(s):
    for i, body in enumerate(({}, {"a": "b"}, {"a": 1}, [], "x", 5, {"a": {"b": 1}})):
        path = rest(s.topic(f"t{i}"))
        s.call("PUT", path, body)
        s.call("GET", path + "/properties", keep=lambda x: {k: v for k, v in x.items() if k != "index"})
    for i, raw in enumerate((b"2", b'"2"', b"0", b"-1", b"null", b"", b"true", b"[]", b"{}", b'{"partitions":2}')):
        path = rest(s.topic(f"p{i}"))
        status, _ = s.http("PUT", path + "/partitions", raw=raw, quietly=True)
        s.note(str(raw), status)
        status, _ = s.http("PUT", path + "x/partitions", raw=raw, headers=PARTITIONED, quietly=True)
        s.note("as metadata", status)
        s.call("GET", path + "/partitions", keep=True)


@scenario
def topics_created_twice_in_every_way(s):
    _, plain = new(s, "plain")
    _, parts = new(s, "parts", 2)
    calls(s, ("PUT", plain), ("PUT", plain + "/partitions", 2), ("PUT", parts), ("PUT", parts + "/partitions", 2), ("PUT", parts + "/partitions", 3), ("PUT", parts + "-partition-0"), ("PUT", parts + "-partition-1/partitions", 2),
          ("PUT", parts + "-partition-2"), ("PUT", plain + "-partition-0"), ("PUT", plain + "?createLocalTopicOnly=true"), ("PUT", parts + "x/partitions?createLocalTopicOnly=true", 2), ("GET", parts + "x/partitions"))  # fmt: skip


@scenario
def topics_deleted_in_every_way(s):
    _, plain = new(s, "plain")
    _, parts = new(s, "parts", 2)
    calls(s, ("DELETE", plain + "/partitions"), ("DELETE", parts), ("DELETE", parts + "-partition-1"), ("GET", parts + "/partitions"), ("DELETE", parts + "-partition-1"), ("DELETE", parts + "-partition-9"), ("GET", parts + "/partitioned-stats?perPartition=false"),
          ("DELETE", parts + "/partitions"), ("DELETE", parts + "/partitions"), ("DELETE", plain), ("DELETE", plain), ("DELETE", plain + "?force=true"), ("DELETE", plain + "/partitions?force=true"), keep=None)  # fmt: skip


@scenario
def topics_grown_in_every_way(s):
    _, parts = new(s, "parts", 2)
    for raw in (b"3", b"3", b"2", b"0", b"-1", b"null", b"x", b'"4"'):
        status, _ = s.http("POST", parts + "/partitions", raw=raw, quietly=True)
        s.note(str(raw), status)
    for query in ("updateLocalTopicOnly=true", "force=true", "updateLocalTopicOnly=false"):
        s.call("POST", f"{parts}/partitions?{query}", 5)
    s.call("GET", parts + "/partitions", keep=True)
    s.call("POST", parts + "-partition-0/partitions", 6)


@scenario
def topics_with_a_partition_missing(s):
    _, parts = new(s, "parts", 3)
    s.call("PUT", parts + "/subscription/s", "earliest")
    s.call("DELETE", parts + "-partition-1")
    calls(s, ("GET", parts + "/partitions"), ("GET", parts + "/subscriptions"), ("PUT", parts + "/subscription/s2", "latest"), ("POST", parts + "/subscription/s/skip_all"), ("POST", parts + "/subscription/s/expireMessages/1"), ("GET", parts + "/subscription/s/properties"),
          ("DELETE", parts + "/subscription/s"), ("PUT", parts + "/unload"), ("GET", parts + "-partition-1/stats"), ("POST", parts + "/createMissedPartitions"), ("GET", parts + "-partition-1/subscriptions"), keep=lambda x: sorted(x or ())[:3])  # fmt: skip


@scenario
def topics_terminated_and_used(s):
    topic, path = new(s)
    published(s, topic, 2)
    s.call("PUT", path + "/subscription/s", "earliest")
    calls(
        s,
        ("POST", path + "/terminate"),
        ("POST", path + "/terminate"),
        ("PUT", path + "/subscription/s2", "earliest"),
        ("POST", path + "/subscription/s/skip/1"),
        ("GET", path + "/subscription/s/position/1"),
        ("DELETE", path + "/truncate"),
        ("PUT", path + "/unload"),
        ("GET", path + "/lastMessageId"),
    )
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1)
    s.call("DELETE", path)
    s.call("GET", path + "/stats")
    _, parts = new(s, "parts", 2)
    calls(
        s,
        ("POST", parts + "/terminate"),
        ("POST", parts + "/terminate/partitions"),
        ("POST", path + "x/terminate/partitions"),
        ("POST", parts + "-partition-0/terminate"),
        ("POST", parts + "-partition-0/terminate/partitions"),
    )


@scenario
def topics_truncated_and_trimmed(s):
    topic, path = new(s)
    s.call("PUT", path + "/subscription/s", "earliest")
    published(s, topic, 3)
    left = lambda: s.note("left", s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"]["s"]["msgBacklog"])  # noqa: E731
    left()
    s.call("DELETE", path + "/truncate")
    left()
    s.call("POST", path + "/trim")
    _, parts = new(s, "parts", 2)
    calls(
        s,
        ("DELETE", parts + "/truncate"),
        ("POST", parts + "/trim"),
        ("POST", parts + "-partition-0/trim"),
        ("DELETE", parts + "-partition-0/truncate"),
        ("DELETE", parts + "-partition-9/truncate"),
        ("POST", parts + "x/trim"),
    )


@scenario
def truncated_topics_keep_the_open_ledger(s):
    topic, path = new(s)

    def shown(what):
        found = s.http("GET", path + "/internalStats", quietly=True)[1]
        s.note(what, [found["numberOfEntries"], found["currentLedgerEntries"], len(found["ledgers"])])
        r = s.connect()
        r.subscribe(topic, "r", durable=False, start_message_id=EARLIEST, permits=10, quietly=True)
        s.note(what, texts(drained(r)))
        r.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)

    s.call("PUT", path + "/subscription/s", "earliest")
    s.call("DELETE", path + "/truncate")
    shown("empty")
    published(s, topic, 3)
    s.call("PUT", path + "/unload")
    s.lookup(topic)
    published(s, topic, 2, 3)
    s.call("DELETE", path + "/truncate")
    shown("two ledgers")
    published(s, topic, 1, 5)
    s.note("backlog", backlog(s, topic))
    shown("again")
    s.call("POST", path + "/terminate")
    s.call("DELETE", path + "/truncate")
    shown("terminated")
    s.note("backlog", backlog(s, topic))


@scenario
def topics_compacted_and_offloaded(s):
    _, path = new(s)
    _, parts = new(s, "parts", 2)
    for p in (path, parts, parts + "-partition-0", path + "-gone"):
        calls(
            s,
            ("GET", p + "/compaction"),
            ("PUT", p + "/compaction"),
            ("GET", p + "/offload"),
            ("PUT", p + "/offload", {"ledgerId": 0, "entryId": 0}),
            ("GET", p + "/offloadPolicies"),
            ("GET", p + "/offloadPolicies?applied=true"),
            ("GET", p + "/backlogSize"),
            keep=lambda x: x.get("status") if isinstance(x, dict) and "status" in x else x,
        )


@scenario
def topics_non_persistent_once_more(s):
    topic, path = new(s, domain="non-persistent")
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, "s", quietly=True)
    fields = lambda x: sorted(x) if isinstance(x, dict) else x  # noqa: E731
    calls(s, ("GET", path + "/stats"), ("GET", path + "/internalStats"), ("GET", path + "/subscriptions"), ("GET", path + "/partitions"), ("PUT", path + "/unload"), ("GET", path + "/subscriptions"), ("GET", path + "/lastMessageId"),
          ("POST", path + "/subscription/s/skip_all"), ("POST", path + "/subscription/s/skip/1"), ("POST", path + "/subscription/s/expireMessages/1"), ("GET", path + "/subscription/s/position/1"), ("DELETE", path + "/subscription/s"),
          ("PUT", path + "/subscription/s2", "latest"), ("GET", path + "/properties"), ("PUT", path + "/properties", {"a": "b"}), ("POST", path + "/terminate"), ("PUT", path + "/compaction"), ("DELETE", path + "/truncate"), ("GET", path + "/backlog"),
          ("GET", path + "/internal-info"), ("GET", path + "/permissions"), ("GET", path + "/retention"), ("POST", path + "/maxProducers", 1), ("GET", path + "/maxProducers"), ("DELETE", path), ("DELETE", path + "?force=true"), keep=fields)  # fmt: skip


@scenario
def topics_partitions_asked_for(s):
    _, path = new(s, "plain")
    gone = rest(s.topic("gone"))
    for query in (
        "",
        "?checkAllowAutoCreation=true",
        "?checkAllowAutoCreation=false",
        "?authoritative=true",
        "?metadataAutoCreationEnabled=true",
    ):
        for p in (path, gone + query[1:6]):
            s.call("GET", p + "/partitions" + query, keep=True)
            s.call("GET", p + "/stats", keep=lambda x: "yes")


@scenario
def topics_stats_asked_for_in_parts(s):
    topic, path = new(s)
    published(s, topic, 3)
    s.call("PUT", path + "/subscription/s", "earliest")

    def kept(x):
        return [
            len(x["publishers"]),
            x["subscriptions"]["s"]["backlogSize"] > 0,
            x["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] > 0,
            x["subscriptions"]["s"]["msgBacklog"],
        ]

    for query in (
        "",
        "?getPreciseBacklog=true",
        "?subscriptionBacklogSize=true",
        "?subscriptionBacklogSize=false",
        "?getEarliestTimeInBacklog=true",
        "?excludePublishers=true",
        "?excludeConsumers=true",
        "?getPreciseBacklog=x",
        "?subscriptionBacklogSize=",
    ):
        s.call("GET", path + "/stats" + query, keep=kept)
    for query in ("?metadata=true", "?metadata=x", "?authoritative=true"):
        s.call("GET", path + "/internalStats" + query, keep=["numberOfEntries", "state"])


@scenario
def topics_properties_once_more(s):
    _, path = new(s)
    kept = lambda x: {k: v for k, v in x.items() if k != "index"} if isinstance(x, dict) else x  # noqa: E731
    calls(s, ("PUT", path + "/properties", {"a": "1"}), ("PUT", path + "/properties", {"c": 3}), ("PUT", path + "/properties", []), ("PUT", path + "/properties", {}), ("GET", path + "/properties"),
          ("DELETE", path + "/properties?key=a"), ("DELETE", path + "/properties?key=none"), ("DELETE", path + "/properties?key="), ("DELETE", path + "/properties"), ("GET", path + "/properties"), keep=kept)  # fmt: skip
    _, parts = new(s, "parts", 2)
    calls(s, ("PUT", parts + "/properties", {"a": "1"}), ("GET", parts + "/properties"), ("GET", parts + "-partition-0/properties"), ("PUT", parts + "-partition-0/properties", {"z": "1"}), ("GET", parts + "-partition-0/properties"), ("GET", parts + "/properties"),
          ("GET", parts + "/partitions"), ("DELETE", parts + "/properties?key=a"), ("GET", parts + "/properties"), keep=kept)  # fmt: skip


@scenario
def topics_looked_up(s):
    topic, path = new(s)
    base = "/lookup/v2/topic/" + topic.replace("://", "/")
    parts = lambda x: sorted(x) if isinstance(x, dict) else isinstance(x, str)  # noqa: E731
    for p in (
        base,
        base + "-gone",
        base + "/bundle",
        base + "?listenerName=none",
        base + "?authoritative=true",
        base.replace("persistent", "non-persistent"),
        base.replace("persistent", "x"),
        base.replace("public", "none"),
        base.replace("default", "none"),
        base + "/x",
    ):
        s.call("GET", p, keep=parts)
    s.call("POST", base)
    s.call("PUT", base)


@scenario
def topics_backlog_sizes(s):
    topic, path = new(s)
    ids = published(s, topic, 3)
    for body in (
        {"ledgerId": ids[0]["ledgerId"], "entryId": 0, "partitionIndex": -1},
        {"ledgerId": ids[0]["ledgerId"], "entryId": 2},
        {"ledgerId": ids[0]["ledgerId"], "entryId": 99},
        {"ledgerId": -1, "entryId": -1},
        {},
        None,
        [],
    ):
        s.call("PUT", path + "/backlogSize", body, keep=lambda x: x == 0)
    _, parts = new(s, "parts", 2)
    s.call("PUT", parts + "/backlogSize", {"ledgerId": 0, "entryId": 0})
