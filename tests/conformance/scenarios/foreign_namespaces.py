"""Topics of namespaces that other clusters serve: refused, or sent to the cluster that replaces the own cluster.

Apache Pulsar deletes the loaded topics of a namespace that loses its cluster, and leaves some requests without an
answer; both are differences, so the topics of these scenarios are partitions that were never loaded, or missing.
"""

import re
import urllib.error
import urllib.request

from transcript import pb, scenario

FIRST = {"ledgerId": 0, "entryId": 0}
RATE = {"dispatchThrottlingRateInMsg": 1}
ROUTES = (
    ("GET", "/stats"), ("GET", "/internalStats"), ("GET", "/internal-info"), ("GET", "/partitioned-stats"),
    ("GET", "/partitioned-internalStats"), ("GET", "/subscriptions"), ("PUT", "/subscription/new"), ("DELETE", "/subscription/new"),
    ("POST", "/subscription/sub/skip_all"), ("POST", "/subscription/sub/skip/1"), ("POST", "/subscription/sub/expireMessages/1"),
    ("POST", "/subscription/sub/expireMessages", FIRST), ("POST", "/all_subscription/expireMessages/1"),
    ("GET", "/subscription/sub/properties"), ("PUT", "/subscription/sub/properties", {"a": "b"}),
    ("POST", "/subscription/sub/analyzeBacklog"), ("POST", "/subscription/sub/resetcursor", FIRST),
    ("POST", "/subscription/sub/replicatedSubscriptionStatus", True), ("GET", "/examinemessage"), ("GET", "/messageid/1"),
    ("PUT", "/backlogSize", FIRST), ("GET", "/getMessageIdByIndex?index=0"), ("GET", "/partitions"), ("POST", "/partitions", 1),
    ("POST", "/partitions", 3), ("PUT", "/partitions", 3), ("PUT", "/partitions", 0), ("POST", "/createMissedPartitions"),
    ("PUT", "/unload"), ("PUT", "/compaction"), ("POST", "/terminate"), ("POST", "/terminate/partitions"), ("GET", "/permissions"),
    ("POST", "/permissions/role", ["produce"]), ("DELETE", "/permissions/role"), ("GET", "/shadowTopics"), ("DELETE", "/policies"),
    ("GET", "/messageTTL"), ("POST", "/messageTTL", 5), ("DELETE", "/messageTTL"), ("POST", "/dispatchRate", RATE),
    ("GET", "/backlogQuotaMap"), ("GET", "/replication"), ("PUT", ""),
)  # fmt: skip
OF_NAMESPACES = (
    ("PUT", "/unload"), ("POST", "/clearBacklog"), ("POST", "/clearBacklog/s"), ("POST", "/unsubscribe/s"),
    ("GET", "/persistence/bookieAffinity"), ("DELETE", "/persistence/bookieAffinity"), ("PUT", "/0x00000000_0xffffffff/unload"),
    ("PUT", "/0x00000000_0xffffffff/split"), ("POST", "/0x00000000_0xffffffff/clearBacklog"),
    ("POST", "/0x00000000_0xffffffff/clearBacklog/s"), ("POST", "/0x00000000_0xffffffff/unsubscribe/s"), ("GET", "/bundles"),
    ("GET", "/retention"), ("GET", "/replication"),
)  # fmt: skip


class World:
    """Two clusters of this run, and a namespace with a partitioned topic in both domains."""

    def __init__(self, s):
        self.s, self.place, self.other, self.bare = s, f"{s.tag}/n", f"{s.tag}-a", f"{s.tag}-b"
        urls = {"serviceUrl": "http://web.invalid:1/x", "brokerServiceUrl": "pulsar://wire.invalid:2"}
        s.http("PUT", f"/admin/v2/clusters/{self.other}", urls, quietly=True)
        s.http("PUT", f"/admin/v2/clusters/{self.bare}", {"serviceUrl": "http://bare.invalid:1"}, quietly=True)
        clusters = ["standalone", self.other, self.bare]
        s.http("PUT", f"/admin/v2/tenants/{s.tag}", {"adminRoles": [], "allowedClusters": clusters}, quietly=True)
        s.http("PUT", f"/admin/v2/namespaces/{self.place}", {"bundles": {"numBundles": 1}}, quietly=True)
        for domain in ("persistent", "non-persistent"):
            s.http("PUT", f"/admin/v2/{domain}/{self.place}/p/partitions", 2, quietly=True)

    def serve(self, *clusters):
        path = f"/admin/v2/namespaces/{self.place}/replication"
        self.s.note("served by", self.s.http("POST", path, clusters, quietly=True)[0])

    def ask(self, method, path, body=None, base="/admin/v2/"):
        status, found = self.s.http(method, base + path, body, quietly=True)
        reason = found.get("reason") if status >= 400 and isinstance(found, dict) else None
        self.s.note(f"{method} {path} {body}".replace(self.s.tag, "$"), [204 if status == 200 else status, reason])

    def end(self):
        self.serve("standalone")


@scenario
def routes_of_topics_that_other_clusters_serve(s):
    w = World(s)
    w.serve(w.other)
    for method, path, *body in ROUTES:
        for domain in ("persistent", "non-persistent"):
            for name in ("p", "x"):
                if (domain, path) != ("non-persistent", "/internalStats"):
                    w.ask(method, f"{domain}/{w.place}/{name}{path}", *body)
    w.end()


@scenario
def routes_of_namespaces_that_other_clusters_serve(s):
    w = World(s)
    w.serve(w.other, w.bare)
    for method, path in OF_NAMESPACES:
        status, found = s.http(method, f"/admin/v2/namespaces/{w.place}{path}", quietly=True)
        reason = found.get("reason") if isinstance(found, dict) else None
        s.note(f"{method} {path}", [204 if status == 200 else status, reason and reason.partition(" clusters=")[0]])
    for path in ("persistent/$", "non-persistent/$", "persistent/$/partitioned", "non-persistent/$/partitioned"):
        s.note(path, s.http("GET", "/admin/v2/" + path.replace("$", w.place), quietly=True)[0])
    w.ask("GET", f"persistent/{w.place}/p/bundle", base="/lookup/v2/topic/")
    w.end()


@scenario
def publishing_over_rest_where_other_clusters_serve(s):
    w = World(s)
    w.serve(w.other)
    for path in ("p", "x", "p/partitions/0"):
        w.ask("POST", f"persistent/{w.place}/{path}", {"schemaVersion": 0, "messages": [{"payload": "a"}]}, "/topics/")
    w.end()


@scenario
def allowed_clusters_suffice(s):
    w = World(s)
    path = f"/admin/v2/namespaces/{w.place}/allowedClusters"
    s.note("allowed", s.http("POST", path, ["standalone", w.other], quietly=True)[0])
    w.serve(w.other)
    w.ask("GET", f"persistent/{w.place}/p/partitions")
    w.ask("GET", f"persistent/{w.place}/x/stats")
    w.ask("GET", f"persistent/{w.place}/p", base="/lookup/v2/topic/")
    w.end()


def found(s, topic):
    """Looks the topic up on the wire, and its number of partitions with and without its creation."""
    c = s.connect()
    c.send("LOOKUP", topic=topic, request_id=1, authoritative=False)
    c.recv()
    for request_id, may_create in ((2, True), (3, False)):
        c.send("PARTITIONED_METADATA", topic=topic, request_id=request_id, metadata_auto_creation_enabled=may_create)
        c.recv()


@scenario
def lookups_on_the_wire_where_other_clusters_serve(s):
    w = World(s)
    w.serve(w.other)
    for domain in ("persistent", "non-persistent"):
        for name in ("p", "p-partition-0", "x"):
            found(s, f"{domain}://{w.place}/{name}")
    w.end()
    found(s, f"persistent://{w.place}/p")


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_request):
        return None


@scenario
def clusters_that_replace_the_own_cluster(s):
    """Requests go to the first peer of this cluster that serves the namespace."""
    w = World(s)
    own = "/admin/v2/clusters/standalone"
    before = s.http("GET", own, quietly=True)[1]
    s.note("peers", s.http("POST", "/admin/v2/clusters/standalone/peers", [w.bare, w.other], quietly=True)[0])
    opener = urllib.request.build_opener(NoRedirects)
    for cluster in (w.other, w.bare):
        w.serve(cluster)
        for method, path in (
            ("GET", f"/admin/v2/persistent/{w.place}/p/stats?getPreciseBacklog=true&authoritative=true"),
            ("GET", f"/admin/v2/persistent/{w.place}/x/partitions"),
            ("POST", f"/admin/v2/persistent/{w.place}/x/subscription/a%20b/skip/1"),
            ("GET", f"/lookup/v2/topic/non-persistent/{w.place}/p?authoritative=true"),
            ("PUT", f"/admin/v2/namespaces/{w.place}/unload"),
            ("GET", f"/admin/v2/persistent/{w.place}/p-partition-0/retention"),
        ):
            try:
                with opener.open(urllib.request.Request(s.http_base + path, method=method), timeout=30) as done:
                    s.note(path.replace(s.tag, "$"), done.status)
            except urllib.error.HTTPError as refused:
                with refused:
                    place = (refused.headers.get("Location") or "").replace(s.tag, "$")
                    s.note(path.replace(s.tag, "$"), [refused.code, sorted(re.split("[?&]", place))])
        found(s, f"persistent://{w.place}/p")
        found(s, f"persistent://{w.place}/x")
    w.end()
    s.http("POST", own, before | {"peerClusterNames": None}, quietly=True)


@scenario
def clients_of_a_namespace_that_goes_to_another_cluster(s):
    w = World(s)
    topic = f"persistent://{w.place}/t"
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1)
    c.publish(1, 0, b"kept")
    c.recv()
    w.serve(w.other)
    c.recv()
    c.send("PRODUCER", topic=topic, producer_id=2, request_id=2)
    frame = c._read(2)
    s.note("producer", frame and pb.ServerError.Name(frame.command.error))
    d = s.connect()
    d.send("SUBSCRIBE", topic=topic, subscription="s", subType=0, consumer_id=3, request_id=3)
    frame = d._read(2)
    s.note("consumer", frame and pb.ServerError.Name(frame.command.error))
    w.end()
    s.note("topic", s.http("GET", f"/admin/v2/persistent/{w.place}", quietly=True)[1][-1].endswith("/t"))
