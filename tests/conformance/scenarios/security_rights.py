"""The rights of each role over REST: every family of routes asked by every kind of role. Statuses only; made from tables.

Roles: anonymous; nobody (no grant); boss (administers the tenant); writer, reader, functions (granted that action on the
namespace); topic-writer, topic-reader (granted it on the topic alone).
"""

from transcript import jwt, scenario

MESSAGE = {"ledgerId": 0, "entryId": 0, "partitionIndex": -1}
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
RETENTION = {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}
OF_NAMESPACE = {"writer": ["produce"], "reader": ["consume"], "functions": ["functions"]}
OF_TOPIC = {"topic-writer": ["produce"], "topic-reader": ["consume"]}
ROLES = ("anonymous", "nobody", "boss", *OF_NAMESPACE, *OF_TOPIC)
BUNDLE = "/0x00000000_0x40000000"
# T: the topic, N: the namespace, S: the topic's schemas, R: its messages, L: lookup, A: /admin/v2, O: the tenant
FAMILIES = {
    "reading_a_topic": (
        *(
            ("GET", "T" + path)
            for path in ("/stats", "/internalStats", "/partitions", "/partitioned-stats", "/properties")
        ),
        *(("GET", "T" + path) for path in ("/subscriptions", "/lastMessageId", "/messageid/1", "/permissions")),
        *(("GET", "T" + path) for path in ("/compaction", "/offload", "/subscription/sub/position/1", "/shadowTopics")),
        ("GET", "L"),
        ("GET", "L/bundle"),
    ),
    "subscriptions": (
        ("PUT", "T/subscription/new"),
        ("GET", "T/subscription/sub/properties"),
        ("PUT", "T/subscription/sub/properties", {"k": "v"}),
        ("POST", "T/subscription/sub/skip_all"),
        ("POST", "T/subscription/sub/resetcursor/1"),
        ("POST", "T/subscription/sub/analyzeBacklog"),
        ("PUT", "T/backlogSize", MESSAGE),
        ("DELETE", "T/subscription/sub"),
    ),
    "policies_of_a_topic": (
        *(
            ("GET", "T/" + path)
            for path in ("retention", "maxConsumers", "messageTTL", "backlogQuotaMap", "publishRate")
        ),
        *(
            ("GET", "T/" + path)
            for path in ("dispatchRate", "persistence", "maxMessageSize", "schemaValidationEnforced")
        ),
        ("POST", "T/retention", RETENTION),
        ("POST", "T/messageTTL?messageTTL=5"),
        ("POST", "T/maxMessageSize", 5),
        ("DELETE", "T/retention"),
        ("DELETE", "T/maxMessageSize"),
        ("DELETE", "T/policies"),
    ),
    "life_of_a_topic": (
        ("PUT", "T2"),
        ("PUT", "T3/partitions", 2),
        ("POST", "T/partitions", 3),
        ("PUT", "T/properties", {"k": "v"}),
        ("POST", "T/permissions/x", ["produce"]),
        ("DELETE", "T/permissions/x"),
        ("PUT", "T/unload"),
        ("PUT", "T/compaction"),
        ("DELETE", "T/truncate"),
        ("POST", "T/terminate"),
        ("DELETE", "T/partitions"),
        ("DELETE", "T"),
    ),
    "reading_a_namespace": (
        ("GET", "N"),
        ("GET", "AO"),
        ("GET", "P"),
        ("GET", "P/partitioned"),
        *(
            ("GET", "N/" + path)
            for path in ("topics", "bundles", "permissions", "properties", "retention", "messageTTL")
        ),
        *(("GET", "N/" + path) for path in ("delayedDelivery", "antiAffinity", "offloadPolicies", "replication")),
        *(("GET", "N/" + path) for path in ("backlogQuotaMap", "persistence", "schemaCompatibilityStrategy")),
    ),
    "changing_a_namespace": (
        ("POST", "N/retention", RETENTION),
        ("DELETE", "N/retention"),
        ("POST", "N/messageTTL", 5),
        ("POST", "N/deduplication", True),
        ("POST", "N/permissions/x", ["produce"]),
        ("DELETE", "N/permissions/x"),
        ("PUT", "N/properties", {"a": "b"}),
        ("DELETE", "N/properties"),
        ("POST", "N/delayedDelivery", {"active": True, "tickTime": 100}),
        ("DELETE", "N/delayedDelivery"),
        ("POST", "N/clearBacklog"),
        ("POST", "N/unsubscribe/none"),
        ("PUT", "N/unload"),
        ("PUT", "N" + BUNDLE + "/unload"),
        ("PUT", "N" + BUNDLE + "/split"),
        ("POST", "N" + BUNDLE + "/clearBacklog"),
        ("PUT", "N2"),
        ("DELETE", "N2"),
    ),
    "schemas": (
        ("GET", "S/schema"),
        ("GET", "S/schemas"),
        ("POST", "S/version", SCHEMA),
        ("POST", "S/compatibility", SCHEMA),
        ("POST", "S/schema", SCHEMA),
        ("DELETE", "S/schema"),
    ),
    "producing_over_rest": (
        ("POST", "R", {"messages": [{"payload": "x"}]}),
        ("POST", "R/partitions/-1", {"messages": [{"payload": "x"}]}),
    ),
    "clusters_tenants_and_brokers": (
        ("GET", "A/clusters"),
        ("GET", "A/clusters/standalone"),
        ("PUT", "A/clusters/other", {"serviceUrl": "http://h:1"}),
        ("DELETE", "A/clusters/other"),
        ("GET", "A/clusters/standalone/failureDomains"),
        ("GET", "A/clusters/standalone/namespaceIsolationPolicies"),
        ("GET", "A/tenants"),
        ("GET", "AT"),
        ("PUT", "AT2", {"allowedClusters": ["standalone"]}),
        ("POST", "AT", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}),
        ("DELETE", "AT"),
        ("GET", "A/brokers"),
        ("GET", "A/brokers/standalone"),
        ("GET", "A/brokers/leaderBroker"),
        ("GET", "A/brokers/configuration"),
        ("GET", "A/brokers/configuration/runtime"),
        ("POST", "A/brokers/configuration/unknown/1"),
        ("GET", "A/brokers/version"),
        ("GET", "A/broker-stats/topics"),
        ("GET", "A/resourcegroups"),
        ("GET", "A/resource-quotas"),
    ),
}


def rooms(s):
    """The meaning of the first letters of a path in the tables."""
    n = s.tag + "/ns"
    return {
        "AT": "/admin/v2/tenants/" + s.tag,
        "AO": "/admin/v2/namespaces/" + s.tag,
        "A": "/admin/v2",
        "N": "/admin/v2/namespaces/" + n,
        "P": "/admin/v2/persistent/" + n,
        "R": f"/topics/persistent/{n}/t",
        "T": f"/admin/v2/persistent/{n}/t",
        "S": f"/admin/v2/schemas/{n}/t",
        "L": f"/lookup/v2/topic/persistent/{n}/t",
    }


def world(s, role):
    """As super user: a tenant administered by boss, a namespace, a topic with a subscription, the role's grants."""
    s.token = jwt("admin")
    at = rooms(s)
    info = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    s.http("PUT", at["AT"], info, quietly=True)
    s.http("PUT", at["N"], {}, quietly=True)
    s.http("PUT", at["T"], quietly=True)
    s.http("PUT", at["T"] + "/subscription/sub", quietly=True)
    for room, grants in (("N", OF_NAMESPACE), ("T", OF_TOPIC)):
        if role in grants:
            s.http("POST", f"{at[room]}/permissions/{role}", grants[role], quietly=True)
    s.lookup(f"persistent://{s.tag}/ns/t")
    return at


def asked(s, role, steps):
    at, token = world(s, role), "" if role == "anonymous" else jwt(role)
    for method, path, *body in steps:
        room = path[:2] if path[:2] in at else path[:1]
        s.call(method, at[room] + path[len(room) :], body[0] if body else None, token=token)


def _declare(family, role):
    def run(s):
        asked(s, role, FAMILIES[family])

    run.__name__ = run.__qualname__ = f"rights_of_{role.replace('-', '_')}_on_{family}"
    scenario(run)


for _family in FAMILIES:
    for _role in ROLES:
        _declare(_family, _role)


@scenario
def rights_on_what_is_not_there(s):
    """Every role learns that a tenant is unknown."""
    world(s, "nobody")
    for role in ("nobody", "boss", ""):
        token = role and jwt(role)
        for path in (
            f"/admin/v2/namespaces/{s.tag}-none/ns",
            f"/admin/v2/persistent/{s.tag}-none/ns/t/stats",
            f"/admin/v2/persistent/{s.tag}/none/t/stats",
            f"/admin/v2/namespaces/{s.tag}/none",
            f"/admin/v2/namespaces/{s.tag}/none/retention",
            f"/admin/v2/persistent/{s.tag}/ns/none/stats",
        ):
            s.call("GET", path, token=token)


@scenario
def rights_given_on_many_topics(s):
    at = world(s, "nobody")
    topic = f"persistent://{s.tag}/ns/t"
    grant = [{"topic": topic, "role": "user", "actions": ["produce"]}]
    for role in ("nobody", "boss"):
        s.call("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", grant, token=jwt(role))
        s.call("GET", at["T"] + "/permissions", keep=True)
    s.call(
        "POST", "/admin/v2/namespaces/revokePermissionsOnTopics", [{"topic": topic, "role": "user"}], token=jwt("boss")
    )
    s.call("GET", at["T"] + "/permissions", keep=True)
