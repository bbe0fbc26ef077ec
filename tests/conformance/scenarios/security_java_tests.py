"""Requests of Apache Pulsar's own Java tests of rights that no other file here has."""

from transcript import jwt, scenario

ACTIONS = ("produce", "consume", "functions", "packages")


@scenario
def who_may_create_missed_partitions(s):
    """A role that may use the topic gets its partitions; only administrators of the tenant create."""
    s.token = jwt("admin")
    n = s.tag + "/ns"
    s.http(
        "PUT", "/admin/v2/tenants/" + s.tag, {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}, quietly=True
    )
    s.http("PUT", "/admin/v2/namespaces/" + n, {}, quietly=True)
    base = f"/admin/v2/persistent/{n}/"
    s.http("PUT", base + "parts/partitions", 2, quietly=True)
    s.http("PUT", base + "plain", quietly=True)
    for action in ACTIONS:
        s.http("POST", f"/admin/v2/namespaces/{n}/permissions/{action}", [action], quietly=True)
    for role in (*ACTIONS, "nobody", "boss"):
        for topic in ("parts", "plain", "none"):
            s.call("POST", f"{base}{topic}/createMissedPartitions", token=jwt(role))
