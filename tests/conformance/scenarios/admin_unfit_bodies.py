"""Bodies of requests that remove a policy, and null in lists of clusters."""

from harness.steps import namespace
from transcript import scenario

BODIES = (b"", b"null", b"{}", b'{"a": 1}', b"[]", b"{x", b'"x"', b"1")


def answered(s, method, path, body=None, raw=None):
    """Note the status, and the text of a refusal that Apache Pulsar words itself."""
    status, found = s.http(method, path, body, raw=raw, quietly=True)
    reason = found.get("reason") if status >= 400 and isinstance(found, dict) else None
    shown = raw.decode() if raw is not None else body
    s.note(
        f"{method} {path.replace(s.tag, '$')} {shown}",
        [status if status >= 300 else "done", reason and s.neutral(reason)],
    )


def removed(s, path, *bodies):
    for raw in (*BODIES, *bodies):
        status = s.http("DELETE", path, raw=raw, quietly=True)[0]
        s.note(f"{path.rpartition('/')[2]} {raw.decode()}", status if status >= 300 else "done")


@scenario
def removals_of_policies_with_bodies(s):
    ns = namespace(s)
    s.lookup(f"persistent://{ns}/t")
    topic = f"/admin/v2/persistent/{ns}/t"
    s.http("PUT", topic, quietly=True)
    removed(s, f"/admin/v2/namespaces/{ns}/retention", b'{"retentionTimeInMinutes": "x"}')
    removed(s, topic + "/subscribeRate", b'{"ratePeriodInSecond": "x"}')
    removed(s, topic + "/schemaCompatibilityStrategy", b'"FULL"')
    removed(s, topic + "/retention")
    removed(s, f"/admin/v2/namespaces/{ns}/subscribeRate")
    for place in f"namespaces/public/{s.tag}-none/retention", f"persistent/{ns}/none/subscribeRate":
        for raw in b"{x", b"{}":
            s.note(f"none {raw.decode()}", s.http("DELETE", f"/admin/v2/{place}", raw=raw, quietly=True)[0])


@scenario
def null_in_lists_of_clusters(s):
    ns = namespace(s)
    s.lookup(f"persistent://{ns}/t")
    topic = f"/admin/v2/persistent/{ns}/t"
    s.http("PUT", topic, quietly=True)
    lists = ([None], ["standalone", None], ["none", None], [None, "none"])
    for clusters in lists:
        answered(s, "POST", f"/admin/v2/namespaces/{ns}/allowedClusters", clusters)
        answered(s, "POST", f"/admin/v2/namespaces/public/{s.tag}-none/allowedClusters", clusters)
        answered(s, "POST", f"/admin/v2/namespaces/{s.tag}-none/none/allowedClusters", clusters)
        answered(s, "POST", f"/admin/v2/namespaces/{ns}/replication", clusters)
        answered(s, "POST", topic + "/replication", clusters)
        answered(s, "POST", topic + "/replication?isGlobal=true", clusters)
        answered(s, "PUT", f"/admin/v2/tenants/{s.tag}", {"allowedClusters": clusters})
        answered(s, "POST", "/admin/v2/tenants/public", {"allowedClusters": clusters})
    for field in "replication_clusters", "allowed_clusters":
        answered(s, "PUT", f"/admin/v2/namespaces/public/{s.tag}-new", {field: [None]})
        answered(s, "PUT", f"/admin/v2/namespaces/public/{s.tag}-new", {field: ["standalone", None]})
