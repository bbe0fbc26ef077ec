"""The texts for roles without a right over REST: the operation that Apache Pulsar refused, and its resource."""

from harness.tenancy import world
from transcript import jwt, scenario

BUNDLE = "/0x00000000_0xffffffff"
NUMBER, TRUTH, LIST = 1, True, []
OF_NAMESPACE = (
    ("allowedClusters", "POST", LIST), ("allowedTopicPropertyKeysForMetrics", "POST", LIST), ("antiAffinity", "POST", "g"),
    ("autoSubscriptionCreation", "POST", {}), ("autoTopicCreation", "POST", {}), ("compactionThreshold", "PUT", NUMBER),
    ("deduplication", "POST", TRUTH), ("deduplicationSnapshotInterval", "POST", NUMBER), ("delayedDelivery", "POST", {}),
    ("dispatchRate", "POST", {}), ("dispatcherPauseOnAckStatePersistent", "POST", None), ("encryptionRequired", "POST", TRUTH),
    ("entryFilters", "POST", {}), ("inactiveTopicPolicies", "POST", {}), ("isAllowAutoUpdateSchema", "POST", TRUTH),
    ("maxConsumersPerSubscription", "POST", NUMBER), ("maxConsumersPerTopic", "POST", NUMBER), ("maxProducersPerTopic", "POST", NUMBER),
    ("maxSubscriptionsPerTopic", "POST", NUMBER), ("maxTopicsPerNamespace", "POST", NUMBER),
    ("maxUnackedMessagesPerConsumer", "POST", NUMBER), ("maxUnackedMessagesPerSubscription", "POST", NUMBER),
    ("messageTTL", "POST", NUMBER), ("offloadDeletionLagMs", "PUT", NUMBER), ("offloadPolicies", "POST", {}),
    ("offloadThreshold", "PUT", NUMBER), ("offloadThresholdInSeconds", "PUT", NUMBER), ("persistence", "POST", {}),
    ("publishRate", "POST", {}), ("replication", "POST", LIST), ("replicatorDispatchRate", "POST", {}), ("retention", "POST", {}),
    ("schemaAutoUpdateCompatibilityStrategy", "PUT", "Full"), ("schemaCompatibilityStrategy", "PUT", "FULL"),
    ("schemaValidationEnforced", "POST", TRUTH), ("subscribeRate", "POST", {}), ("subscriptionAuthMode", "POST", "None"),
    ("subscriptionDispatchRate", "POST", {}), ("subscriptionExpirationTime", "POST", NUMBER), ("subscriptionTypesEnabled", "POST", LIST),
)  # fmt: skip
OF_TOPIC = (
    ("autoSubscriptionCreation", "POST", {}), ("compactionThreshold", "POST", NUMBER), ("deduplicationEnabled", "POST", TRUTH),
    ("deduplicationSnapshotInterval", "POST", NUMBER), ("delayedDelivery", "POST", {}), ("dispatchRate", "POST", {}),
    ("dispatcherPauseOnAckStatePersistent", "POST", None), ("entryFilters", "POST", {}), ("inactiveTopicPolicies", "POST", {}),
    ("maxConsumers", "POST", NUMBER), ("maxConsumersPerSubscription", "POST", NUMBER), ("maxMessageSize", "POST", NUMBER),
    ("maxProducers", "POST", NUMBER), ("maxSubscriptionsPerTopic", "POST", NUMBER), ("maxUnackedMessagesOnConsumer", "POST", NUMBER),
    ("maxUnackedMessagesOnSubscription", "POST", NUMBER), ("offloadPolicies", "POST", {}), ("persistence", "POST", {}),
    ("publishRate", "POST", {}), ("replication", "POST", LIST), ("replicatorDispatchRate", "POST", {}), ("retention", "POST", {}),
    ("schemaCompatibilityStrategy", "PUT", "FULL"), ("schemaValidationEnforced", "POST", TRUTH), ("shadowTopics", "PUT", LIST),
    ("subscribeRate", "POST", {}), ("subscriptionDispatchRate", "POST", {}), ("subscriptionTypesEnabled", "POST", LIST),
    ("sub/dispatchRate", "POST", {}),
)  # fmt: skip


def denied(s, method, path, body=None, role="nobody", headers=None):
    """Logs the status and the text for a role without the right."""
    status, answer = s.http(method, path, body, quietly=True, token=role and jwt(role), headers=headers)
    reason = answer.get("reason") if isinstance(answer, dict) else None
    reason = reason and reason.replace(s.http_base.removeprefix("http://"), "BROKER")
    s.note(f"{role} {method} {path.replace(s.tag, '$')}", [status, reason])


def _paths(s):
    """The REST path of the namespace and of its topic, with a right that the role does not have."""
    namespace, topic = world(s)
    return f"/admin/v2/namespaces/{namespace}", "/admin/v2/" + topic.replace("://", "/")


@scenario
def policies_of_a_namespace_for_a_role_without_rights(s):
    base, _ = _paths(s)
    for name, method, body in OF_NAMESPACE:
        denied(s, "GET", f"{base}/{name}")
        denied(s, method, f"{base}/{name}", body)
    for name in ("retention", "backlogQuota", "antiAffinity", "messageTTL", "delayedDelivery", "removeOffloadPolicies"):
        denied(s, "DELETE", f"{base}/{name}")
    denied(s, "GET", base + "/backlogQuotaMap")
    denied(s, "POST", base + "/backlogQuota", {})
    denied(s, "GET", base + "/resourcegroup")
    denied(s, "POST", base + "/resourcegroup/g")
    denied(s, "DELETE", base + "/resourcegroup")
    denied(s, "GET", base + "/persistence/bookieAffinity")


@scenario
def policies_of_a_topic_for_a_role_without_rights(s):
    _, base = _paths(s)
    for name, method, body in OF_TOPIC:
        denied(s, "GET", f"{base}/{name}")
        denied(s, method, f"{base}/{name}", body)
    for name in (
        "retention",
        "backlogQuota",
        "messageTTL",
        "subscriptionExpirationTime",
        "policies",
        "sub/dispatchRate",
    ):
        denied(s, "DELETE", f"{base}/{name}")
    denied(s, "GET", base + "/backlogQuotaMap")
    denied(s, "POST", base + "/backlogQuota", {})
    denied(s, "POST", base + "/messageTTL?messageTTL=1")
    denied(s, "POST", base + "/subscriptionExpirationTime?subscriptionExpirationTime=1")


@scenario
def a_namespace_for_a_role_without_rights(s):
    base, _ = _paths(s)
    for method, more, body in (
        ("GET", "", None), ("PUT", "", {}), ("DELETE", "", None), ("GET", "/topics", None), ("GET", "/bundles", None),
        ("GET", "/permissions", None), ("GET", "/permissions/subscription", None), ("POST", "/permissions/r", ["produce"]),
        ("DELETE", "/permissions/r", None), ("POST", "/permissions/subscription/sub", ["r"]), ("DELETE", "/permissions/sub/r", None),
        ("POST", "/clearBacklog", None), ("POST", "/clearBacklog/sub", None), ("POST", "/unsubscribe/sub", None),
        ("PUT", "/unload", None), ("GET", "/properties", None), ("PUT", "/properties", {}), ("DELETE", "/properties", None),
        ("GET", "/property/k", None), ("PUT", "/property/k/v", None), ("DELETE", "/property/k", None),
        ("PUT", BUNDLE + "/unload", None), ("PUT", BUNDLE + "/split", LIST), ("POST", BUNDLE + "/clearBacklog", None),
        ("POST", BUNDLE + "/unsubscribe/sub", None), ("DELETE", BUNDLE, None), ("GET", BUNDLE + "/topicHashPositions", None),
    ):  # fmt: skip
        denied(s, method, base + more, body)
    denied(s, "GET", base.rpartition("/")[0])
    denied(s, "GET", base.replace("/namespaces/", "/persistent/"))
    denied(s, "GET", base.replace("/namespaces/", "/persistent/") + "/partitioned")
    denied(s, "GET", base.replace("/namespaces/", "/non-persistent/") + BUNDLE)


@scenario
def a_topic_for_a_role_without_rights(s):
    _, base = _paths(s)
    position = {"ledgerId": 0, "entryId": 0}
    for method, more, body in (
        ("PUT", "", None), ("DELETE", "", None), ("PUT", "/partitions", 2), ("POST", "/partitions", 2), ("GET", "/partitions", None),
        ("DELETE", "/partitions", None), ("GET", "/stats", None), ("GET", "/internalStats", None), ("GET", "/internal-info", None),
        ("GET", "/partitioned-stats", None), ("GET", "/partitioned-internalStats", None), ("GET", "/properties", None),
        ("PUT", "/properties", {"k": "v"}), ("DELETE", "/properties?key=k", None), ("GET", "/subscriptions", None),
        ("PUT", "/unload", None), ("POST", "/terminate", None), ("POST", "/terminate/partitions", None), ("DELETE", "/truncate", None),
        ("PUT", "/compaction", None), ("GET", "/compaction", None), ("PUT", "/offload", position), ("GET", "/offload", None),
        ("GET", "/backlog", None), ("PUT", "/backlogSize", position), ("POST", "/trim", None), ("POST", "/createMissedPartitions", None),
        ("GET", "/lastMessageId", None), ("GET", "/messageid/1", None), ("GET", "/examinemessage", None),
        ("GET", "/getMessageIdByIndex?index=1", None), ("GET", "/ledger/0/entry/0", None), ("GET", "/permissions", None),
        ("POST", "/permissions/r", ["produce"]), ("DELETE", "/permissions/r", None), ("PUT", "/subscription/sub", None),
        ("DELETE", "/subscription/sub", None), ("POST", "/subscription/sub/skip_all", None), ("POST", "/subscription/sub/skip/1", None),
        ("POST", "/subscription/sub/resetcursor/1", None), ("POST", "/subscription/sub/resetcursor", position),
        ("POST", "/subscription/sub/expireMessages/1", None), ("POST", "/subscription/sub/expireMessages", position),
        ("POST", "/all_subscription/expireMessages/1", None), ("GET", "/subscription/sub/properties", None),
        ("PUT", "/subscription/sub/properties", {}), ("POST", "/subscription/sub/analyzeBacklog", None),
        ("GET", "/subscription/sub/position/1", None), ("GET", "/subscription/sub/replicatedSubscriptionStatus", None),
        ("POST", "/subscription/sub/replicatedSubscriptionStatus", TRUTH),
    ):  # fmt: skip
        denied(s, method, base + more, body)
    at = base.removeprefix("/admin/v2/")
    denied(s, "GET", f"/lookup/v2/topic/{at}")
    denied(s, "GET", f"/lookup/v2/topic/{at}/bundle")
    denied(s, "POST", f"/topics/{at}", {"messages": []})
    denied(s, "POST", f"/topics/{at}/partitions/0", {"messages": []})
    schemas = "/admin/v2/schemas" + at.removeprefix("persistent")
    body = {"type": "STRING", "schema": "", "properties": {}}
    for method, more in (
        ("GET", "/schema"), ("GET", "/schema/0"), ("GET", "/schemas"), ("GET", "/metadata"), ("POST", "/version"), ("POST", "/schema"),
        ("POST", "/compatibility"), ("DELETE", "/schema"),
    ):  # fmt: skip
        denied(s, method, schemas + more, body if method == "POST" else None)


@scenario
def clusters_and_brokers_for_a_role_without_rights(s):
    world(s)
    at = "/admin/v2/clusters/standalone"
    for method, more, body in (
        ("GET", "", None), ("PUT", "", {}), ("POST", "", {}), ("DELETE", "", None), ("GET", "/peers", None), ("POST", "/peers", LIST),
        ("GET", "/failureDomains", None), ("GET", "/failureDomains/d", None), ("POST", "/failureDomains/d", {}),
        ("DELETE", "/failureDomains/d", None), ("GET", "/namespaceIsolationPolicies", None),
        ("GET", "/namespaceIsolationPolicies/p", None), ("POST", "/namespaceIsolationPolicies/p", {}),
        ("DELETE", "/namespaceIsolationPolicies/p", None), ("GET", "/namespaceIsolationPolicies/brokers", None),
        ("GET", "/migrate", None),
    ):  # fmt: skip
        denied(s, method, at + more, body)
    for method, more in (
        ("GET", ""), ("GET", "/standalone"), ("GET", "/leaderBroker"), ("GET", "/health"), ("GET", "/backlog-quota-check"),
        ("GET", "/internal-configuration"), ("GET", "/configuration"), ("GET", "/configuration/values"),
        ("GET", "/configuration/runtime"), ("POST", "/configuration/k/v"), ("DELETE", "/configuration/k"),
        ("GET", "/standalone/x/ownedNamespaces"),
    ):  # fmt: skip
        denied(s, method, "/admin/v2/brokers" + more)
    for path in (
        "broker-stats/topics", "broker-stats/metrics", "broker-stats/load-report", "bookies/all", "bookies/racks-info",
        "resourcegroups", "resourcegroups/g", "resource-quotas", "tenants", f"tenants/{s.tag}",
    ):  # fmt: skip
        denied(s, "GET", "/admin/v2/" + path)
    tenant = {"adminRoles": ["x"], "allowedClusters": ["standalone"]}
    denied(s, "PUT", f"/admin/v2/tenants/{s.tag}-x", tenant)
    denied(s, "POST", f"/admin/v2/tenants/{s.tag}", tenant)
    denied(s, "DELETE", f"/admin/v2/tenants/{s.tag}")


@scenario
def refused_roles_in_the_text(s):
    namespace, topic = world(s, cons=["consume"])
    for role in ("nobody", "boss", ""):
        denied(s, "GET", "/admin/v2/tenants", role=role)
        denied(s, "GET", "/admin/v2/clusters/standalone", role=role)
        denied(s, "GET", "/admin/v2/clusters/standalone", role=role, headers={"X-Original-Principal": "other"})
    at = "/admin/v2/" + topic.replace("://", "/")
    grant = [{"topic": topic, "role": "x", "actions": ["produce"]}]
    for verb in ("grant", "revoke"):
        denied(s, "POST", f"/admin/v2/namespaces/{verb}PermissionsOnTopics", grant, role="cons")
    s.http("PUT", at + "p/partitions", 2, quietly=True)
    denied(s, "POST", at + "p/createMissedPartitions", role="cons")
    denied(s, "GET", at + "p-partition-1/stats")
    denied(s, "GET", at.replace("/persistent/", "/non-persistent/") + "/stats")
    denied(s, "GET", f"/admin/v2/persistent/{s.tag}/none/t/stats")
    denied(s, "GET", f"/admin/v2/persistent/{s.tag}-none/none/t/stats")


@scenario
def packages_for_roles_without_rights(s):
    namespace, _ = world(s, pack=["packages"], fun=["functions"])
    for role in ("nobody", "boss", "pack", "fun", ""):
        denied(s, "GET", f"/admin/v3/packages/function/{namespace}", role=role)
        denied(s, "GET", f"/admin/v3/packages/function/{namespace}/x", role=role)
        denied(s, "DELETE", f"/admin/v3/packages/function/{namespace}/x/1", role=role)
        denied(s, "GET", f"/admin/v3/packages/function/{s.tag}-none/ns/x", role=role)
        denied(s, "GET", f"/admin/v3/packages/function/{s.tag}/none/x", role=role)


@scenario
def a_topic_for_roles_with_grants(s):
    _, topic = world(s, prod=["produce"], cons=["consume"])
    base = "/admin/v2/" + topic.replace("://", "/")
    for role in ("prod", "cons"):
        for method, more in (
            ("DELETE", "/truncate"), ("POST", "/terminate"), ("PUT", "/unload"), ("PUT", "/compaction"), ("POST", "/trim"),
            ("DELETE", ""), ("GET", "/retention"), ("GET", "/permissions"), ("DELETE", "/properties?key=k"),
        ):  # fmt: skip
            denied(s, method, base + more, role=role)
    for more in ("/backlog", "/subscriptions", "/lastMessageId", "/messageid/1"):
        denied(s, "GET", base + more, role="prod")
    for more in ("/backlog", "/subscriptions"):
        s.call("GET", base + more, token=jwt("cons"))
