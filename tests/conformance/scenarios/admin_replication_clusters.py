"""Clusters of tenants, namespaces and topics: which are allowed, the order of lists, namespaces that several have.

Names of clusters belong to a run, so lists are compared with the order of their hash slots.
"""

import re
import urllib.error
import urllib.request

from harness.steps import java_slot
from transcript import scenario

OWN = "standalone"


class World:
    """Four clusters of this run beside the broker's own, and a tenant that may use some of them."""

    def __init__(self, s, allowed=4):
        self.s, self.names = s, [f"{s.tag}-{letter}" for letter in "abcd"]
        for name in self.names:
            urls = {"serviceUrl": "http://h:1", "brokerServiceUrl": "pulsar://h:2"}
            s.http("PUT", "/admin/v2/clusters/" + name, urls, quietly=True)
        self.tenant = "/admin/v2/tenants/" + s.tag
        self.allow("PUT", *self.names[:allowed])

    def namespace(self, name):
        return f"/admin/v2/namespaces/{self.s.tag}/{name}"

    def allow(self, method, *clusters):
        s = self.s
        s.call(method, self.tenant, {"adminRoles": [], "allowedClusters": [OWN, *clusters]}, keep=["reason"])

    def ask(self, method, path, body=None):
        """A request; the place of a named cluster in a refusal depends on the slots of all names."""
        status, found = self.s.http(method, path, body, quietly=True)
        reason = found.get("reason") if isinstance(found, dict) else None
        shown = "done" if status in (200, 204) and found is None else status
        asked = f"{method} {path} {body}".replace(self.s.tag, "$")
        self.s.note(asked, [shown, reason and reason.partition("[")[0].partition(" cluster ")[0]])

    def lists(self, name, *more):
        """Lists of a namespace: their names, and whether they are in the order of their slots."""
        for kind in ("replication", "allowedClusters", *more):
            found = self.s.http("GET", f"{self.namespace(name)}/{kind}", quietly=True)[1]
            self.s.note(f"{name} {kind}", [sorted(found), found == sorted(found, key=java_slot)])

    def end(self):
        for name in self.names:
            self.s.http("DELETE", "/admin/v2/clusters/" + name, quietly=True)


@scenario
def lists_of_clusters_in_their_order(s):
    w = World(s)
    found = s.http("GET", w.tenant, quietly=True)[1]["allowedClusters"]
    s.note("tenant", [sorted(found), found == sorted(found, key=java_slot)])
    s.call("PUT", w.namespace("n"))
    w.ask("POST", w.namespace("n") + "/allowedClusters", [w.names[2], OWN, w.names[1]])
    w.ask("POST", w.namespace("n") + "/replication", [w.names[1], OWN, w.names[2]])
    w.lists("n")
    shown = s.http("GET", w.namespace("n"), quietly=True)[1]
    for kind in ("replication_clusters", "allowed_clusters"):
        s.note(kind, [sorted(shown[kind]), shown[kind] == sorted(shown[kind], key=java_slot)])
    s.call("PUT", w.namespace("m"))
    topic = f"/admin/v2/persistent/{s.tag}/m/t"
    s.call("PUT", topic)
    s.call("POST", topic + "/replication", [w.names[3], OWN, w.names[0]])
    s.call("GET", topic + "/replication", keep=True)
    s.call("GET", topic + "/replication?applied=true", keep=True)
    s.call("DELETE", topic + "/replication")
    s.call("GET", topic + "/replication?applied=true", keep=True)
    w.end()


@scenario
def clusters_that_the_tenant_may_not_use(s):
    w = World(s, allowed=2)
    a, b, c, _ = w.names
    s.call("PUT", w.namespace("n"))
    for clusters in ([OWN, c], [c], [OWN, "nowhere", c], [a], [OWN, a, b], [OWN]):
        w.ask("POST", w.namespace("n") + "/replication", clusters)
    w.lists("n")
    topic = f"/admin/v2/persistent/{s.tag}/n/t"
    s.call("PUT", topic)
    for clusters in ([OWN, c], [c], [OWN, a], [OWN, a, b], [OWN]):
        w.ask("POST", topic + "/replication", clusters)
    w.ask("POST", w.namespace("n") + "/allowedClusters", [OWN, c])
    w.ask("PUT", w.namespace("m"), {"replication_clusters": [OWN, c]})
    w.ask("PUT", w.namespace("m"), {"allowed_clusters": [c]})
    w.end()


@scenario
def replication_and_allowed_clusters(s):
    w = World(s)
    a, b, c, _ = w.names
    s.call("PUT", w.namespace("n"))
    for kind, clusters in (
        ("allowedClusters", [OWN, a]), ("replication", [OWN, a]), ("replication", [OWN, b]), ("replication", [OWN, a, c]),
        ("allowedClusters", [OWN, b]), ("allowedClusters", [OWN, a, b]), ("replication", [b, OWN]), ("allowedClusters", []),
        ("replication", [OWN]), ("allowedClusters", [OWN]), ("allowedClusters", [b]),
    ):  # fmt: skip
        w.ask("POST", f"{w.namespace('n')}/{kind}", clusters)
    w.lists("n")


@scenario
def new_namespaces_with_allowed_clusters(s):
    w = World(s)
    a, b, *_ = w.names
    for number, body in enumerate((
        {"allowed_clusters": [a]}, {"allowed_clusters": [OWN]}, {"replication_clusters": [a], "allowed_clusters": [a]},
        {"replication_clusters": [OWN, a], "allowed_clusters": [a]}, {"replication_clusters": [OWN, a], "allowed_clusters": [OWN]},
        {"replication_clusters": [OWN, b], "allowed_clusters": [OWN, b, a]}, {"replication_clusters": [], "allowed_clusters": [b]},
    )):  # fmt: skip
        status, found = s.http("PUT", w.namespace(f"n{number}"), body, quietly=True)
        reason = found and found["reason"].partition("Repl clusters")[0]
        s.note(f"n{number}", ["done" if status == 204 else status, reason])
        if status == 204:
            w.lists(f"n{number}")


@scenario
def namespaces_that_several_clusters_have(s):
    """Such namespaces are not deleted, nor their bundles, nor their tenant, which loses its other namespaces."""
    w = World(s)
    a, b, *_ = w.names
    for name in "klmn":
        s.call("PUT", w.namespace(name))
    s.call("PUT", f"/admin/v2/persistent/{s.tag}/n/t")
    s.call("POST", w.namespace("n") + "/replication", [OWN, a])
    s.call("POST", w.namespace("m") + "/allowedClusters", [OWN, b])
    for name, more in (("n", ""), ("n", "?force=true"), ("m", ""), ("n", "/0x00000000_0x40000000"), ("m", "/0x0_0x1")):
        _, found = s.http("DELETE", w.namespace(name) + more, quietly=True)
        s.note(f"{name}{more}", found and found["reason"])
    for more in ("", "?force=true"):
        status, found = s.http("DELETE", w.tenant + more, quietly=True)
        s.note(f"tenant{more}", [status, "replication clusters" in found["reason"]])
    s.call("GET", f"/admin/v2/namespaces/{s.tag}", keep=True)
    s.call("POST", w.namespace("n") + "/replication", [OWN])
    s.call("POST", w.namespace("m") + "/allowedClusters", [OWN])
    s.call("DELETE", w.namespace("m"))
    s.call("DELETE", w.namespace("n"))
    s.call("DELETE", w.namespace("n") + "?force=true")
    s.call("DELETE", w.tenant + "?force=true")
    w.end()


@scenario
def tenants_that_lose_clusters_of_their_namespaces(s):
    w = World(s)
    a, b, c, _ = w.names
    for name in "mn":
        s.call("PUT", w.namespace(name))
    s.call("POST", w.namespace("n") + "/replication", [OWN, a, b])
    s.call("POST", w.namespace("m") + "/allowedClusters", [OWN, c])
    for clusters in ([], [a], [a, b], [a, b, c]):
        body = {"adminRoles": [], "allowedClusters": [OWN, *clusters]}
        status, found = s.http("POST", w.tenant, body, quietly=True)
        first = next((name for name in sorted((a, b), key=java_slot) if name not in clusters), None)
        s.note("lost", [status, first is None or found["reason"].replace(first, "<first>")])
    s.http("POST", w.tenant, {"adminRoles": [], "allowedClusters": [OWN, a, b]}, quietly=True)
    w.lists("m")
    status, found = s.http("POST", w.tenant, {"adminRoles": [], "allowedClusters": [a, b]}, quietly=True)
    s.note("own", [status, found and found["reason"]])
    w.end()


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_request):
        return None


@scenario
def deletion_of_a_namespace_of_another_cluster(s):
    """The request is sent to the cluster that alone has the namespace."""
    other, tenant = f"{s.tag}-other", f"{s.tag}-tenant"
    s.http("PUT", f"/admin/v2/clusters/{other}", {"serviceUrl": "http://other.invalid:1234/"}, quietly=True)
    s.http("PUT", f"/admin/v2/tenants/{tenant}", {"allowedClusters": ["standalone", other]}, quietly=True)
    path = f"/admin/v2/namespaces/{tenant}/n"
    s.http("PUT", path, {"bundles": {"numBundles": 1}}, quietly=True)
    opener = urllib.request.build_opener(NoRedirects)
    for clusters in ([other], ["standalone", other]):
        s.note("clusters", s.http("POST", path + "/replication", clusters, quietly=True)[0])
        for more in ("", "?force=true", "?authoritative=true"):
            try:
                with opener.open(
                    urllib.request.Request(s.http_base + path + more, method="DELETE"), timeout=30
                ) as done:
                    s.note("deleted" + more, done.status)
            except urllib.error.HTTPError as refused:
                with refused:
                    place = sorted(re.split("[?&]", refused.headers.get("Location") or ""))
                    s.note("refused" + more, [refused.code, place])
        s.note("still there", s.http("GET", path, quietly=True)[0])
    s.http("POST", path + "/replication", ["standalone"], quietly=True)
    s.note("deleted", s.http("DELETE", path, quietly=True)[0])
