"""Requests about shadow topics, and about the clusters of a topic in all clusters, that Apache Pulsar refuses."""

from harness.steps import namespace, plain_and_partitioned
from transcript import scenario


def refused(s, method, path, body=None):
    status, answer = s.http(method, path, body, quietly=True)
    reason = answer.get("reason") if isinstance(answer, dict) else answer
    s.note(f"{method} {path.replace(s.tag, '$')} {body}".replace(s.tag, "$"), [status, reason])


@scenario
def shadow_topics_that_are_refused(s):
    base = plain_and_partitioned(s)
    name = base.removeprefix("/admin/v2/persistent/")
    for path in ("t", "p"):
        at = f"{base}/{path}/shadowTopics"
        for shadows in (
            [], None, [f"persistent://{name}/none"], ["none"], [f"{name}/none"], [f"non-persistent://{name}/t"], [""],
            [f"non-persistent://{name}/none", f"persistent://{name}/none"], [f"persistent://{name}/t", f"persistent://{name}/none"],
            [f"persistent://{name}/none1", f"persistent://{name}/none2"], ["persistent://none/none/none"],
        ):  # fmt: skip
            refused(s, "PUT", at, shadows)
        s.call("GET", at, keep=True)
    for path in ("none", "p-partition-0", "p-partition-9"):
        refused(s, "PUT", f"{base}/{path}/shadowTopics", [f"persistent://{name}/none"])
        refused(s, "PUT", f"{base}/{path}/shadowTopics", [])


@scenario
def shadow_topics_of_non_persistent_topics(s):
    base = plain_and_partitioned(s, "non-persistent")
    for path in ("t", "p"):
        for shadows in ([], ["none"], [""], [base.replace("/admin/v2/non-persistent/", "non-persistent://") + "/t"]):
            refused(s, "PUT", f"{base}/{path}/shadowTopics", shadows)
        s.call("GET", f"{base}/{path}/shadowTopics", keep=True)
        s.call("DELETE", f"{base}/{path}/shadowTopics")


@scenario
def clusters_of_a_topic_in_all_clusters(s):
    ns = namespace(s)
    for path in ("t", "p"):
        s.http(
            "PUT",
            f"/admin/v2/persistent/{ns}/{path}" + ("/partitions" if path == "p" else ""),
            2 if path == "p" else None,
            quietly=True,
        )
        at = f"/admin/v2/persistent/{ns}/{path}/replication"
        for clusters in (["standalone"], ["none"], [], ["standalone", "none"]):
            refused(s, "POST", at + "?isGlobal=true", clusters)
        s.call("GET", at + "?isGlobal=true", keep=True)
        s.call("DELETE", at + "?isGlobal=true")
