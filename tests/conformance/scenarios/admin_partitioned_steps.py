"""Statistics of a partitioned topic, its quotas and groups, after each step; routes of lookups and resource groups."""

from harness.consumers import by_type
from harness.steps import ack, drained, namespace, published, rest
from transcript import scenario

FIGURES = ("msgInCounter", "bytesInCounter", "msgOutCounter", "storageSize", "backlogSize", "waitingPublishers")
OF_SUBSCRIPTIONS = (
    "msgBacklog",
    "msgOutCounter",
    "unackedMessages",
    "type",
    "msgDelayed",
    "blockedSubscriptionOnUnackedMsgs",
)


def summed(s, base, what, query=""):
    """Note the figures of all partitions together."""
    status, found = s.http("GET", base + "/partitioned-stats" + query, quietly=True)
    if status != 200:
        s.note(what, status)
        return
    s.note(
        what,
        {k: found[k] for k in FIGURES}
        | {
            "publishers": len(found["publishers"]),
            "partitions": len(found["partitions"]),
            "subscriptions": {
                name: {k: each.get(k) for k in OF_SUBSCRIPTIONS} | {"consumers": len(each["consumers"])}
                for name, each in found["subscriptions"].items()
            },
        },
    )


@by_type
def partitioned_figures_after_each_step(s, kind):
    ns = namespace(s)
    name = f"persistent://{ns}/p"
    base = rest(name)
    s.http("PUT", base + "/partitions", 2, quietly=True)
    parts = [f"{name}-partition-{i}" for i in range(2)]
    for part in parts:
        s.lookup(part)
    summed(s, base, "new")
    s.http("PUT", base + "/subscription/sub", quietly=True)
    ids = [published(s, part, 3) for part in parts]
    summed(s, base, "published")
    clients = [s.connect(f"c{i}") for i in range(2)]
    for i, c in enumerate(clients):
        c.subscribe(parts[i], "sub", 1, permits=10, quietly=True, subType=kind)
        s.note("came", len(drained(c, 1.3 if kind == "Failover" else 0.4)))
    summed(s, base, "delivered")
    ack(clients[0], ids[0][0])
    ack(clients[1], ids[1][0])
    ack(clients[1], ids[1][1])
    summed(s, base, "acknowledged")
    s.http("POST", base + "/subscription/sub/skip_all", quietly=True)
    summed(s, base, "skipped")
    clients[0].close()
    s.until(lambda: not s.http("GET", rest(parts[0], "/stats"), quietly=True)[1]["subscriptions"]["sub"]["consumers"])
    summed(s, base, "one has left")
    summed(s, base, "without partitions", "?perPartition=false")
    s.http("PUT", base + "/unload", quietly=True)
    for part in parts:
        s.lookup(part)
        s.http("GET", rest(part, "/stats"), quietly=True)
    summed(s, base, "unloaded")


def told(s, method, path, body=None):
    """Note the status of a request, and the reason of a refusal that names no class of Java."""
    status, answer = s.http(method, path, body, quietly=True)
    reason = answer.get("reason") if isinstance(answer, dict) else answer
    is_plain = status in (403, 404, 409, 412) and isinstance(reason, str) and not reason.startswith("<html>")
    s.note(f"{method} {path} {body}".replace(s.tag, "$"), [status, reason.replace(s.tag, "$") if is_plain else ""])
    return status, answer


@scenario
def resource_groups_in_odd_orders(s):
    base = f"/admin/v2/resourcegroups/{s.tag}"
    told(s, "GET", base)
    told(s, "DELETE", base)
    told(s, "PUT", base, {})
    s.call("GET", base, keep=True)
    told(s, "PUT", base, {"publishRateInMsgs": 5, "publishRateInBytes": 100})
    s.call("GET", base, keep=True)
    told(s, "PUT", base, {"dispatchRateInMsgs": -7})
    s.call("GET", base, keep=True)
    told(s, "PUT", base, [])
    told(s, "PUT", base, {"publishRateInMsgs": "x"})
    ns = namespace(s)
    told(s, "POST", f"/admin/v2/namespaces/{ns}/resourcegroup/{s.tag}-none")
    told(s, "POST", f"/admin/v2/namespaces/{ns}/resourcegroup/{s.tag}")
    told(s, "DELETE", base)
    told(s, "DELETE", f"/admin/v2/namespaces/{ns}/resourcegroup")
    told(s, "GET", f"/admin/v2/namespaces/{ns}/resourcegroup")
    told(s, "DELETE", base)
    told(s, "GET", base)


@scenario
def quotas_of_resources_in_odd_orders(s):
    ns = namespace(s)
    base = f"/admin/v2/resource-quotas/{ns}"
    for bundle in ("0x00000000_0x40000000", "0x00000000_0xffffffff", "0x1_0x2", "x"):
        told(s, "GET", f"{base}/{bundle}")
        told(s, "POST", f"{base}/{bundle}", {"msgRateIn": 1.5, "dynamic": False})
        told(s, "POST", f"{base}/{bundle}", {})
        told(s, "DELETE", f"{base}/{bundle}")
    told(s, "GET", f"/admin/v2/resource-quotas/public/{s.tag}-none/0x00000000_0x40000000")


@scenario
def lookups_over_http_of_odd_names(s):
    for name in (
        "persistent/public/default/t", "non-persistent/public/default/t", "other/public/default/t", f"persistent/public/{s.tag}-none/t",
        f"persistent/{s.tag}-none/ns/t", "persistent/public/default/t-partition-3", "persistent/public/default",
    ):  # fmt: skip
        told(s, "GET", f"/lookup/v2/topic/{name}")
        told(s, "GET", f"/lookup/v2/topic/{name}/bundle")
        told(s, "GET", f"/lookup/v2/topic/{name}?authoritative=x&listenerName=none")


@scenario
def splits_and_bundles_in_odd_orders(s):
    ns = namespace(s)
    base = f"/admin/v2/namespaces/{ns}"
    told(s, "PUT", f"{base}/0x00000000_0x40000000/split")
    s.call("GET", f"{base}/bundles", keep=True)
    told(s, "PUT", f"{base}/0x00000000_0x40000000/split")
    told(s, "PUT", f"{base}/0x00000000_0x20000000/split?splitAlgorithmName=none")
    told(s, "PUT", f"{base}/0x00000000_0x20000000/split?splitAlgorithmName=specified_positions_divide", [1, 2])
    s.call("GET", f"{base}/bundles", keep=True)
    told(s, "PUT", f"{base}/0x00000000_0x00000001/unload")
    told(s, "PUT", f"{base}/0x00000000_0x20000000/unload")
    told(s, "DELETE", f"{base}/0x00000000_0x00000001")


@scenario
def peers_of_replication_on_a_single_cluster(s):
    ns = namespace(s)
    s.http("PUT", f"/admin/v2/persistent/{ns}/t", quietly=True)
    for base in (f"/admin/v2/namespaces/{ns}/replication", f"/admin/v2/persistent/{ns}/t/replication"):
        for body in (["standalone"], ["none"], [], ["standalone", "standalone"], "x", {"a": 1}, [1], None):
            told(s, "POST", base, body)
        s.call("GET", base, keep=True)


@scenario
def properties_of_a_topic_in_odd_orders(s):
    topic = s.topic()
    base = rest(topic, "/properties")
    told(s, "GET", base)
    told(s, "PUT", base, {"a": "1"})
    s.http("PUT", rest(topic), {"a": "0", "b": "2"}, quietly=True)
    for method, query, body in (
        ("GET", "", None), ("PUT", "", {"a": "1"}), ("PUT", "", {}), ("PUT", "", {"c": ""}), ("PUT", "", {"d": 5}), ("PUT", "", []),
        ("DELETE", "?key=a", None), ("DELETE", "?key=a", None), ("DELETE", "?key=", None), ("GET", "", None),
    ):  # fmt: skip
        status, answer = told(s, method, base + query, body)
        if method == "GET" and status == 200:
            s.note("properties", answer)
