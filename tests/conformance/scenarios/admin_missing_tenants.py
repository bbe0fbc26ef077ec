"""Routes of topics in tenants and namespaces that are missing, by the words of their refusals."""

from harness.steps import rest
from transcript import scenario

PATHS = (
    ("GET", "/maxMessageSize", None), ("POST", "/maxMessageSize", 5), ("DELETE", "/maxMessageSize", None),
    ("GET", "/maxProducers", None), ("GET", "/retention", None), ("GET", "/replication", None),
    ("GET", "/offloadPolicies", None), ("GET", "/entryFilters", None), ("GET", "/shadowTopics", None),
    ("DELETE", "/truncate", None), ("POST", "/trim", None), ("POST", "/terminate", None), ("PUT", "/unload", None),
    ("PUT", "/compaction", None), ("GET", "/compaction", None), ("PUT", "/offload", None), ("GET", "/offload", None),
    ("GET", "/internalStats", None), ("GET", "/stats", None), ("GET", "/lastMessageId", None),
    ("PUT", "/backlogSize", {"ledgerId": 1, "entryId": 1}), ("GET", "/subscriptions", None),
    ("GET", "/partitioned-stats", None), ("GET", "/partitions", None), ("GET", "/permissions", None),
    ("GET", "/properties", None), ("GET", "/messageid/5", None), ("GET", "/examinemessage", None),
    ("POST", "/createMissedPartitions", None),
)  # fmt: skip


@scenario
def routes_of_topics_in_missing_tenants(s):
    for namespace in (f"{s.tag}/ns", f"public/{s.tag}"):
        for topic in ("t", "t-partition-0"):
            for method, path, body in PATHS:
                status, answer = s.http(method, rest(f"persistent://{namespace}/{topic}", path), body, quietly=True)
                s.note(f"{method} {path}", [status, s.neutral(answer)])


@scenario
def bodies_that_do_not_fit_before_missing_namespaces(s):
    for path in ("/offloadPolicies", "/replication", "/retention", "/entryFilters", "/publishRate"):
        status, _ = s.http("POST", rest(f"persistent://public/{s.tag}/t", path), 5, quietly=True)
        s.note(path, status)


@scenario
def persistence_without_a_value(s):
    namespace = s.namespace()
    s.http("PUT", f"/admin/v2/namespaces/{namespace}", {}, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{namespace}/t", quietly=True)
    for path in (f"/admin/v2/namespaces/{namespace}/persistence", f"/admin/v2/persistent/{namespace}/t/persistence"):
        for raw in (b"", b"null"):
            s.note(raw.decode(), s.http("POST", path, raw=raw, quietly=True))


@scenario
def intervals_of_snapshots_below_zero(s):
    namespace = s.namespace()
    s.http("PUT", f"/admin/v2/namespaces/{namespace}", {}, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{namespace}/t", quietly=True)
    for path in (f"namespaces/{namespace}", f"persistent/{namespace}/t"):
        s.note("refused", s.http("POST", f"/admin/v2/{path}/deduplicationSnapshotInterval", -1, quietly=True))


@scenario
def positions_of_messages_beyond_an_int(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
    for number in (1, 2**31 - 1, 2**31, -(2**31) - 1, "x"):
        status, answer = s.http("GET", rest(topic, f"/subscription/s/position/{number}"), quietly=True)
        s.note(f"{number}", [status, answer if isinstance(answer, dict) else "page"])
