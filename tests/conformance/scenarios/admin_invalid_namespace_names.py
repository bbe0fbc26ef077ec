"""Namespaces with invalid names in the paths of the admin routes."""

from transcript import scenario

NAMES = ("public/a%20b", "public/a%2Fb", "public/%20", "a%20b/x")
PATHS = (
    *(
        "",
        "/topics",
        "/permissions",
        "/permissions/subscription",
        "/bundles",
        "/policies",
        "/properties",
        "/property/k",
    ),
    *(
        "/retention",
        "/messageTTL",
        "/persistence",
        "/backlogQuotaMap",
        "/replication",
        "/allowedClusters",
        "/dispatchRate",
    ),
    *("/subscriptionDispatchRate", "/replicatorDispatchRate", "/subscribeRate", "/publishRate", "/deduplication"),
    *("/autoTopicCreation", "/autoSubscriptionCreation", "/maxTopicsPerNamespace", "/maxProducersPerTopic"),
    *(
        "/schemaCompatibilityStrategy",
        "/schemaValidationEnforced",
        "/isAllowAutoUpdateSchema",
        "/subscriptionTypesEnabled",
    ),
    *("/compactionThreshold", "/delayedDelivery", "/inactiveTopicPolicies", "/encryptionRequired", "/antiAffinity"),
    *("/offloadThreshold", "/offloadPolicies", "/resourcegroup", "/0x00000000_0xffffffff/topicHashPositions"),
)
CHANGES = (
    ("POST", "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
    ("POST", "/messageTTL", 5),
    ("POST", "/permissions/role", ["produce"]),
    ("POST", "/deduplication", True),
    ("POST", "/maxProducersPerTopic", 5),
    ("POST", "/replication", ["standalone"]),
    ("POST", "/clearBacklog", None),
    ("POST", "/unsubscribe/s", None),
    ("PUT", "/unload", None),
    ("PUT", "/0x00000000_0xffffffff/unload", None),
    ("PUT", "/0x00000000_0xffffffff/split", None),
    ("PUT", "/schemaCompatibilityStrategy", "FULL"),
    ("PUT", "/properties", {"a": "b"}),
    ("PUT", "/property/a/b", None),
    ("PUT", "", None),
    ("DELETE", "/retention", None),
    ("DELETE", "/permissions/role", None),
    ("DELETE", "/property/a", None),
    ("DELETE", "/0x00000000_0xffffffff", None),
    ("DELETE", "", None),
)


def tried(s, verb, path, body=None):
    status, found = s.http(verb, path, body, quietly=True)
    s.note(f"{verb} {path}", [status, found.get("reason") if isinstance(found, dict) and status == 412 else None])


@scenario
def invalid_names_of_namespaces_that_are_read(s):
    for name in NAMES:
        for path in PATHS:
            tried(s, "GET", f"/admin/v2/namespaces/{name}{path}")


@scenario
def invalid_names_of_namespaces_that_change(s):
    for name in NAMES:
        for verb, path, body in CHANGES:
            tried(s, verb, f"/admin/v2/namespaces/{name}{path}", body)


@scenario
def invalid_names_of_namespaces_before_topics(s):
    for name in NAMES:
        for domain in ("persistent", "non-persistent"):
            for path in ("", "/partitioned", "/t/stats", "/t/retention", "/t/partitions"):
                tried(s, "GET", f"/admin/v2/{domain}/{name}{path}")
        tried(s, "GET", f"/admin/v2/schemas/{name}/t/schema")
        tried(s, "GET", f"/admin/v2/resource-quotas/{name}/0x00000000_0xffffffff")
