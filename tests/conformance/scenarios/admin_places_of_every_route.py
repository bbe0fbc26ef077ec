"""Each route of topics and schemas at every kind of place: which refusal comes first."""

from harness.steps import avro, namespace
from transcript import scenario

RATE = {"dispatchThrottlingRateInMsg": 1}
FIRST = {"ledgerId": 0, "entryId": 0}
TEXT = {"type": "STRING", "schema": "", "properties": {}}
RECORD = {"type": "AVRO", "schema": avro(("a", "int")).decode(), "properties": {}}
HERE = ("p", "t", "p-partition-0", "p-partition-1", "p-partition-5", "x", "x-partition-0", "bad%2F")
MISSING = ("x", "x-partition-0", "bad%2F")
# path -> the requests: a method, or a method and its body
ROUTES = {
    "/stats": ("GET",),
    "/internalStats": ("GET",),
    "/internal-info": ("GET",),
    "/partitioned-stats": ("GET",),
    "/partitioned-internalStats": ("GET",),
    "/subscriptions": ("GET",),
    "/subscription/new": ("PUT", "DELETE"),
    "/subscription/sub/skip_all": ("POST",),
    "/subscription/sub/skip/1": ("POST",),
    "/subscription/sub/expireMessages/1": ("POST",),
    "/subscription/sub/expireMessages": (("POST", FIRST),),
    "/all_subscription/expireMessages/1": ("POST",),
    "/subscription/sub/properties": ("GET", ("PUT", {"a": "b"})),
    "/subscription/sub/analyzeBacklog": ("POST",),
    "/subscription/sub/resetcursor": (("POST", FIRST),),
    "/subscription/sub/position/1": ("GET",),
    "/subscription/sub/replicatedSubscriptionStatus": ("GET",),
    "/examinemessage?initialPosition=earliest&messagePosition=1": ("GET",),
    "/messageid/1": ("GET",),
    "/backlogSize": (("PUT", FIRST),),
    "/lastMessageId": ("GET",),
    "/getMessageIdByIndex?index=0": ("GET",),
    "/partitions": ("GET", ("POST", 3), "DELETE"),
    "/createMissedPartitions": ("POST",),
    "/unload": ("PUT",),
    "/trim": ("POST",),
    "/compaction": ("GET",),
    "/offload": ("GET", ("PUT", FIRST)),
    "/terminate": ("POST",),
    "/terminate/partitions": ("POST",),
    "/permissions": ("GET",),
    "/permissions/role": (("POST", ["produce"]), "DELETE"),
    "/properties": ("GET", ("PUT", {"a": "b"}), "DELETE"),
    "/shadowTopics": ("GET", ("PUT", ["persistent://public/none/x"])),
    "/policies": ("DELETE",),
    "/messageTTL": ("GET", ("POST", None), "DELETE"),
    "/backlogQuota": (("POST", {"limitSize": 100000, "policy": "producer_exception"}), "DELETE"),
    "/sub/dispatchRate": ("GET", ("POST", RATE), "DELETE"),
    "/schemaCompatibilityStrategy": ("GET", ("PUT", "FULL"), "DELETE"),
    "/schemaValidationEnforced": ("GET", ("POST", True)),
    "/subscriptionTypesEnabled": ("GET", ("POST", ["Shared"]), "DELETE"),
    "/publishRate": ("GET", ("POST", {"publishThrottlingRateInMsg": 1000}), "DELETE"),
    "": ("PUT", "DELETE"),
}
SCHEMAS = {
    "/schema": ("GET", ("POST", {}), ("POST", {"type": "no", "schema": ""}), "DELETE"),
    "/schema/5": ("GET",),
    "/schema/x": ("GET",),
    "/schemas": ("GET",),
    "/version": (("POST", TEXT), ("POST", RECORD), ("POST", {"type": "AUTO_CONSUME", "schema": ""}), ("POST", {})),
    "/compatibility": (("POST", TEXT),),
}


def world(s):
    """A namespace with a plain topic t and a partitioned topic p in both domains, with a subscription."""
    ns = namespace(s)
    for domain in ("persistent", "non-persistent"):
        base = f"/admin/v2/{domain}/{ns}"
        s.http("PUT", base + "/t", quietly=True)
        s.http("PUT", base + "/p/partitions", 2, quietly=True)
        s.http("PUT", base + "/t/subscription/sub", quietly=True)
        s.http("PUT", base + "/p/subscription/sub", quietly=True)
        s.lookup(f"{domain}://{ns}/t")
    return ns


def tried(s, what, request, path):
    verb, body = request if isinstance(request, tuple) else (request, None)
    status, found = s.http(verb, path, body, quietly=True)
    worded = status in (404, 405, 406, 409, 412) and isinstance(found, dict)
    s.note(
        f"{verb} {what}", [204 if status == 200 and found is None else status, found.get("reason") if worded else None]
    )


def name_of(path):
    words = path.partition("?")[0].strip("/").replace("/", "_").replace("-", "_")
    return words or "topic"


def _topics(path, requests):
    def run(s):
        ns = world(s)
        for place, names in ((ns, HERE), ("public/none", MISSING), ("none/none", MISSING)):
            for request in requests:
                for name in names:
                    for domain in ("persistent", "non-persistent"):
                        shown = f"{domain} {'here' if place == ns else place} {name}"
                        tried(s, shown, request, f"/admin/v2/{domain}/{place}/{name}{path}")

    run.__name__ = f"every_place_of_{name_of(path)}"
    scenario(run)


def _schemas(path, requests):
    def run(s):
        ns = world(s)
        for place, names in ((ns, HERE), ("public/none", MISSING), ("none/none", MISSING)):
            for request in requests:
                for name in names:
                    shown = f"{'here' if place == ns else place} {name}"
                    tried(s, shown, request, f"/admin/v2/schemas/{place}/{name}{path}")

    run.__name__ = f"every_place_of_schemas_{name_of(path)}"
    scenario(run)


for _path, _requests in ROUTES.items():
    _topics(_path, _requests)
for _path, _requests in SCHEMAS.items():
    _schemas(_path, _requests)
