"""Refusals of each family of routes: missing tenants, namespaces and topics, and bad bodies."""

from transcript import scenario

MESSAGE = {"ledgerId": 0, "entryId": 0, "partitionIndex": -1}
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
READS = (
    "stats", "internalStats", "partitioned-stats", "partitioned-internalStats", "partitions", "subscriptions",
    "lastMessageId", "messageid/1", "examinemessage", "ledger/1/entry/1", "compaction", "offload", "properties",
    "permissions", "shadowTopics", "subscription/s/position/1", "subscription/s/properties", "getMessageIdByIndex?index=1",
)  # fmt: skip
CHANGES = (
    ("PUT", "unload", None),
    ("POST", "terminate", None),
    ("DELETE", "truncate", None),
    ("PUT", "properties", {"k": "v"}),
    ("DELETE", "properties?key=k", None),
    ("PUT", "compaction", None),
    ("POST", "permissions/r", ["produce"]),
    ("DELETE", "permissions/r", None),
    ("DELETE", "subscription/s", None),
    ("POST", "subscription/s/skip/1", None),
    ("POST", "subscription/s/skip_all", None),
    ("POST", "subscription/s/resetcursor/1", None),
    ("POST", "subscription/s/resetcursor", MESSAGE),
    ("POST", "subscription/s/expireMessages/1", None),
    ("POST", "all_subscription/expireMessages/1", None),
    ("POST", "partitions", 3),
    ("DELETE", "partitions", None),
    ("POST", "retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
    ("GET", "retention", None),
    ("DELETE", "retention", None),
)
OF_NAMESPACES = (
    "", "/topics", "/retention", "/persistence", "/permissions", "/properties", "/bundles", "/backlogQuotaMap",
    "/dispatchRate", "/replication", "/antiAffinity", "/offloadThreshold", "/subscriptionAuthMode", "/maxTopicsPerNamespace",
)  # fmt: skip


def missing(kind, s):
    """A topic's path whose tenant, namespace or own name is unknown."""
    return {
        "tenant": f"{s.tag}/n/t",
        "namespace": f"public/{s.tag}/t",
        "topic": f"public/default/{s.tag}",
    }[kind]


def _of_topics(domain, kind, changes):
    def run(s):
        base = f"/admin/v2/{domain}/{missing(kind, s)}"
        if changes:
            for method, path, body in CHANGES:
                s.call(method, f"{base}/{path}", body)
        else:
            for path in READS:
                s.call("GET", f"{base}/{path}")

    what = "changed" if changes else "read"
    run.__name__ = run.__qualname__ = f"{domain.replace('-', '_')}_of_unknown_{kind}_{what}"
    scenario(run)


for _domain in ("persistent", "non-persistent"):
    for _kind in ("tenant", "namespace", "topic"):
        for _changes in (False, True):
            if (_domain, _kind, _changes) not in (("non-persistent", "namespace", True), ("persistent", "topic", True)):
                _of_topics(_domain, _kind, _changes)


@scenario
def namespace_of_unknown_tenant_or_name_read(s):
    for base in (f"/admin/v2/namespaces/{s.tag}/n", f"/admin/v2/namespaces/public/{s.tag}"):
        for path in OF_NAMESPACES:
            s.call("GET", base + path, keep=True)


@scenario
def namespace_of_unknown_tenant_or_name_changed(s):
    for base in (f"/admin/v2/namespaces/{s.tag}/n", f"/admin/v2/namespaces/public/{s.tag}"):
        s.call("DELETE", base)
        s.call("DELETE", base + "?force=true")
        s.call("POST", base + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})
        s.call("DELETE", base + "/retention")
        s.call("POST", base + "/messageTTL", 1)
        s.call("POST", base + "/permissions/r", ["produce"])
        s.call("DELETE", base + "/permissions/r")
        s.call("POST", base + "/clearBacklog")
        s.call("POST", base + "/unsubscribe/s")
        s.call("POST", base + "/entryFilters", {"entryFilterNames": "none"})
        s.call("POST", base + "/replication", ["standalone"])
        s.call("DELETE", base + "/removeOffloadPolicies")


@scenario
def schema_of_unknown_places(s):
    for kind in ("tenant", "namespace", "topic"):
        base = "/admin/v2/schemas/" + missing(kind, s)
        s.call("GET", base + "/schema")
        s.call("GET", base + "/schema/0")


@scenario
def lookup_of_unknown_places(s):
    for kind in ("tenant", "namespace", "topic"):
        s.call("GET", "/lookup/v2/topic/persistent/" + missing(kind, s))
        s.call("GET", f"/lookup/v2/topic/persistent/{missing(kind, s)}/bundle", keep=len)


@scenario
def methods_and_paths_that_are_not_there(s):
    topic = "/admin/v2/persistent/public/default/" + s.tag
    for method, path in (
        ("POST", topic),
        ("PATCH", topic),
        ("DELETE", topic + "/stats"),
        ("POST", topic + "/stats"),
        ("PUT", topic + "/retention"),
        ("GET", topic + "/nothing"),
        ("GET", "/admin/v2/nothing"),
        ("GET", "/admin/v3/nothing"),
        ("GET", "/lookup/v2/destination/persistent/public/standalone/default/t"),
        ("POST", "/lookup/v2/topic/persistent/public/default/t"),
        ("PUT", "/admin/v2/tenants"),
        ("POST", "/admin/v2/clusters"),
    ):
        s.call(method, path)


@scenario
def names_that_may_not_be(s):
    for path in (
        "/admin/v2/tenants/b%20d",
        "/admin/v2/namespaces/public/b%20d",
        "/admin/v2/namespaces/public/a%2Fb",
        "/admin/v2/clusters/b%20d",
    ):
        body = {"allowedClusters": ["standalone"], "serviceUrl": "http://h:1"}
        s.call("PUT", path, {} if "namespaces" in path else body)


@scenario
def families_that_are_off(s):
    for path in (
        "/admin/v2/worker/cluster",
        "/admin/v2/functions/connectors",
        "/admin/v2/worker-stats/metrics",
        "/admin/v3/functions/public/default",
        "/admin/v3/sinks/builtinsinks",
        "/admin/v3/sources/public/default",
        "/admin/v3/transactions/coordinators",
        "/admin/v3/transactions/coordinatorStats",
        "/admin/v3/packages/function/public/default",
    ):
        s.call("GET", path)


@scenario
def bodies_that_do_not_fit(s):
    base = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", base, {}, quietly=True)
    for path, verb in (
        ("retention", "POST"),
        ("messageTTL", "POST"),
        ("deduplication", "POST"),
        ("replication", "POST"),
    ):
        for raw in (b"{bad", b'"', b"", b"[1", b'{"a":'):
            s.call(verb, f"{base}/{path}", raw=raw)
        for kind in ("text/plain", "application/octet-stream", "application/json; charset=utf-8"):
            s.call(verb, f"{base}/{path}", raw=b"1", headers={"Content-Type": kind})
