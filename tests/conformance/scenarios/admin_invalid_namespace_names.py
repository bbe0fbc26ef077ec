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


VALUES_REFUSED = (
    ("POST", "retention", {"retentionTimeInMinutes": -5}),
    ("POST", "persistence", {"bookkeeperEnsemble": 9}),
    ("POST", "backlogQuota", {"limitSize": 5}),
    ("POST", "autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "x"}),
    ("POST", "entryFilters", {"entryFilterNames": ""}),
    ("POST", "allowedClusters", []),
    ("POST", "allowedClusters", ["x"]),
    ("POST", "replication", []),
    ("POST", "replication", ["x"]),
    ("POST", "subscriptionTypesEnabled", ["x"]),
    ("POST", "messageTTL", -1),
    ("POST", "deduplicationSnapshotInterval", -1),
    ("PUT", "compactionThreshold", -5),
    ("POST", "maxProducersPerTopic", -1),
)


@scenario
def invalid_names_of_namespaces_before_refused_values(s):
    for method, path, body in VALUES_REFUSED:
        status, answer = s.http(method, f"/admin/v2/namespaces/public/a%20b/{path}", body, quietly=True)
        s.note(f"{path} {body}", [status, answer])


@scenario
def values_refused_before_missing_namespaces(s):
    for namespace in (f"public/{s.tag}", f"{s.tag}/ns"):
        for method, path, body in VALUES_REFUSED:
            status, answer = s.http(method, f"/admin/v2/namespaces/{namespace}/{path}", body, quietly=True)
            s.note(f"{path} {body}", [status, s.neutral(answer) if status < 500 else None])


@scenario
def resource_groups_of_invalid_names(s):
    for name in NAMES:
        path = f"/admin/v2/namespaces/{name}/resourcegroup/none"
        s.note(f"POST {name}", s.http("POST", path, quietly=True))
        s.note(f"DELETE {name}", s.http("DELETE", path.removesuffix("/none"), quietly=True))
