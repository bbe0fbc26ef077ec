"""The texts of Apache Pulsar over REST for a role without the right: the refused operation, and its resource.

Pure: a request is its method, the path of its route with the names in braces, and the values of these names.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.broker.compat import rest_refusals

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"
_SCHEMAS: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP: Final = "/lookup/v2/topic/"
_TENANT: Final = "/admin/v2/tenants"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_BROKERS: Final = "/admin/v2/brokers"

_SUPER: Final = "This operation requires super-user access"
_TENANT_ADMIN: Final = rest_refusals.TENANT_ADMINISTRATION_DENIED.text
_ON_TOPIC: Final = "Unauthorized to validateTopicOperation for operation [{operation}] on topic [{topic}]"
_ON_NAMESPACE: Final = rest_refusals.NAMESPACE_OPERATION_DENIED.text
_TOPIC_POLICY: Final = (
    "Unauthorized to validateTopicPolicyOperation for operation [{access}] on topic [{topic}] on policy [{operation}]"
)
_NAMESPACE_POLICY: Final = (
    "Unauthorized to validateNamespacePolicyOperation for operation [{access}] on namespace [{namespace}] "
    "on policy [{operation}]"
)
_ROLES: Final = "for originalPrincipal [{original}] and clientAppId [{role}] about operation "
_ON_TENANT: Final = f"Unauthorized to validateTenantOperation {_ROLES}[{{operation}}] on tenant [{{tenant}}]"
_OF_TENANTS: Final = f"Unauthorized to validateBothTenantOperationAndSuperUser {_ROLES}[{{operation}}] "
_ON_CLUSTER: Final = (
    f"Unauthorized to validateBothSuperuserAndClusterOperation {_ROLES}[{{operation}}] on cluster [{{cluster}}]"
)
_CLUSTER_POLICY: Final = (
    f"Unauthorized to validateBothSuperuserAndClusterPolicyOperation {_ROLES}[{{access}}] on cluster [{{cluster}}]"
)
_ON_BROKER: Final = (
    f"Unauthorized to validateBothSuperuserAndBrokerOperation {_ROLES}[{{operation}}] on broker [{{broker}}]"
)
_PACKAGES: Final = "Role {role} has not the 'package' permission to do the packages operations."
_PRODUCE: Final = "Unauthorized to produce to topic {topic}"

# The policy of the last fixed word of a path, below a namespace or a topic.
_POLICIES: Final = {
    "allowedClusters": "ALLOW_CLUSTERS",
    "allowedTopicPropertyKeysForMetrics": "ALLOW_CUSTOM_METRIC_LABELS",
    "antiAffinity": "ANTI_AFFINITY",
    "autoSubscriptionCreation": "AUTO_SUBSCRIPTION_CREATION",
    "autoTopicCreation": "AUTO_TOPIC_CREATION",
    "backlogQuota": "BACKLOG",
    "backlogQuotaMap": "BACKLOG",
    "compactionThreshold": "COMPACTION",
    "deduplication": "DEDUPLICATION",
    "deduplicationEnabled": "DEDUPLICATION",
    "deduplicationSnapshotInterval": "DEDUPLICATION_SNAPSHOT",
    "delayedDelivery": "DELAYED_DELIVERY",
    "dispatcherPauseOnAckStatePersistent": "DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT",
    "dispatchRate": "RATE",
    "encryptionRequired": "ENCRYPTION",
    "entryFilters": "ENTRY_FILTERS",
    "inactiveTopicPolicies": "INACTIVE_TOPIC",
    "isAllowAutoUpdateSchema": "SCHEMA_COMPATIBILITY_STRATEGY",
    "maxConsumers": "MAX_CONSUMERS",
    "maxConsumersPerSubscription": "MAX_CONSUMERS",
    "maxConsumersPerTopic": "MAX_CONSUMERS",
    "maxProducers": "MAX_PRODUCERS",
    "maxProducersPerTopic": "MAX_PRODUCERS",
    "maxSubscriptionsPerTopic": "MAX_SUBSCRIPTIONS",
    "maxTopicsPerNamespace": "MAX_TOPICS",
    "maxUnackedMessagesOnConsumer": "MAX_UNACKED",
    "maxUnackedMessagesOnSubscription": "MAX_UNACKED",
    "maxUnackedMessagesPerConsumer": "MAX_UNACKED",
    "maxUnackedMessagesPerSubscription": "MAX_UNACKED",
    "messageTTL": "TTL",
    "offloadDeletionLagMs": "OFFLOAD",
    "offloadPolicies": "OFFLOAD",
    "offloadThreshold": "OFFLOAD",
    "offloadThresholdInSeconds": "OFFLOAD",
    "persistence": "PERSISTENCE",
    "policies": "MAX_PRODUCERS",
    "publishRate": "RATE",
    "removeOffloadPolicies": "OFFLOAD",
    "replication": "REPLICATION",
    "replicatorDispatchRate": "REPLICATION_RATE",
    "resourcegroup": "RESOURCEGROUP",
    "retention": "RETENTION",
    "schemaAutoUpdateCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaValidationEnforced": "SCHEMA_COMPATIBILITY_STRATEGY",
    "shadowTopics": "SHADOW_TOPIC",
    "subscribeRate": "RATE",
    "subscriptionAuthMode": "SUBSCRIPTION_AUTH_MODE",
    "subscriptionDispatchRate": "RATE",
    "subscriptionExpirationTime": "SUBSCRIPTION_EXPIRATION_TIME",
    "subscriptionTypesEnabled": "SUBSCRIPTION_AUTH_MODE",
    "topicHashPositions": "PERSISTENCE",
}


class _Row(NamedTuple):
    """The text of a refusal, and the name of the operation in that text."""

    text: str
    operation: str = ""


# The operation of a fixed word of a path below a topic, for all methods.
_TOPIC_OPERATIONS: Final = {
    "analyzeBacklog": "CONSUME",
    "backlog": "GET_BACKLOG_SIZE",
    "backlogSize": "GET_BACKLOG_SIZE",
    "compaction": "COMPACT",
    "createMissedPartitions": "LOOKUP",
    "examinemessage": "PEEK_MESSAGES",
    "expireMessages": "EXPIRE_MESSAGES",
    "getMessageIdByIndex": "PEEK_MESSAGES",
    "internal-info": "GET_STATS",
    "internalStats": "GET_STATS",
    "lastMessageId": "PEEK_MESSAGES",
    "messageid": "PEEK_MESSAGES",
    "offload": "OFFLOAD",
    "partitioned-internalStats": "GET_STATS",
    "partitioned-stats": "GET_STATS",
    "position": "PEEK_MESSAGES",
    "resetcursor": "RESET_CURSOR",
    "skip": "SKIP",
    "skip_all": "SKIP",
    "stats": "GET_STATS",
    "subscriptions": "GET_SUBSCRIPTIONS",
    "terminate": "TERMINATE",
    "trim": "TRIM_TOPIC",
    "truncate": "LOOKUP",
    "unload": "UNLOAD",
}
# Rows by method, "" for all others, and path below the resource; a look there comes before the tables above.
_OF_TOPIC: Final = {
    ("DELETE", ""): _Row(_ON_NAMESPACE, "DELETE_TOPIC"),
    ("PUT", ""): _Row(_ON_NAMESPACE, "CREATE_TOPIC"),
    ("GET", "/partitions"): _Row(_ON_TOPIC, "LOOKUP"),
    ("DELETE", "/partitions"): _Row(_ON_NAMESPACE, "DELETE_TOPIC"),
    ("", "/partitions"): _Row(_TOPIC_POLICY, "PARTITION"),
    ("GET", "/properties"): _Row(_ON_TOPIC, "GET_METADATA"),
    ("PUT", "/properties"): _Row(_ON_TOPIC, "UPDATE_METADATA"),
    ("DELETE", "/properties"): _Row(_ON_TOPIC, "DELETE_METADATA"),
    ("GET", "/ledger/{ledger}/entry/{entry}"): _Row(_ON_TOPIC, "PEEK_MESSAGES"),
    ("", "/permissions"): _Row(_TENANT_ADMIN),
    ("", "/permissions/{role}"): _Row(_TENANT_ADMIN),
    ("", "/maxMessageSize"): _Row(_TENANT_ADMIN),
    ("PUT", "/subscription/{subscription}"): _Row(_ON_TOPIC, "SUBSCRIBE"),
    ("DELETE", "/subscription/{subscription}"): _Row(_ON_TOPIC, "UNSUBSCRIBE"),
    ("GET", "/subscription/{subscription}/properties"): _Row(_ON_TOPIC, "CONSUME"),
    ("PUT", "/subscription/{subscription}/properties"): _Row(_ON_TOPIC, "SUBSCRIBE"),
    ("GET", "/subscription/{subscription}/replicatedSubscriptionStatus"): _Row(
        _ON_TOPIC, "GET_REPLICATED_SUBSCRIPTION_STATUS"
    ),
    ("POST", "/subscription/{subscription}/replicatedSubscriptionStatus"): _Row(
        _ON_TOPIC, "SET_REPLICATED_SUBSCRIPTION_STATUS"
    ),
}
_OF_SCHEMAS: Final = {
    ("POST", "/schema"): _Row(_ON_TOPIC, "PRODUCE"),
    ("DELETE", "/schema"): _Row(_TENANT_ADMIN),
    ("", "/compatibility"): _Row(_TENANT_ADMIN),
}
_OF_NAMESPACE: Final = {
    ("GET", ""): _Row(_NAMESPACE_POLICY, "ALL"),
    ("PUT", ""): _Row(_ON_TENANT, "CREATE_NAMESPACE"),
    ("DELETE", ""): _Row(_ON_TENANT, "DELETE_NAMESPACE"),
    ("", "/topics"): _Row(_ON_NAMESPACE, "GET_TOPICS"),
    ("", "/bundles"): _Row(_ON_NAMESPACE, "GET_BUNDLE"),
    ("DELETE", "/{bundle}"): _Row(_ON_NAMESPACE, "DELETE_BUNDLE"),
    ("GET", "/permissions"): _Row(_ON_NAMESPACE, "GET_PERMISSION"),
    ("GET", "/permissions/subscription"): _Row(_ON_NAMESPACE, "GET_PERMISSION"),
    ("GET", "/delayedDelivery"): _Row(_NAMESPACE_POLICY, "DELAYED_DELIVERY"),
    ("", "/delayedDelivery"): _Row(_SUPER),
    ("", "/persistence/bookieAffinity"): _Row(_SUPER),
}
# By the first fixed word of the path below a namespace or a bundle.
_OF_NAMESPACE_WORDS: Final = {
    "clearBacklog": _Row(_ON_NAMESPACE, "CLEAR_BACKLOG"),
    "migration": _Row(_SUPER),
    "properties": _Row(_TENANT_ADMIN),
    "property": _Row(_TENANT_ADMIN),
    "split": _Row(_SUPER),
    "unload": _Row(_SUPER),
    "unsubscribe": _Row(_ON_NAMESPACE, "UNSUBSCRIBE"),
}
_PERMISSION_CHANGES: Final = {"POST": "GRANT_PERMISSION", "DELETE": "REVOKE_PERMISSION"}
_OF_TENANT: Final = {"PUT": "CREATE_TENANT", "POST": "UPDATE_TENANT", "DELETE": "DELETE_TENANT", "GET": "GET_TENANT"}
_OF_CLUSTER: Final = {
    "GET": "GET_CLUSTER", "PUT": "CREATE_CLUSTER", "POST": "UPDATE_CLUSTER", "DELETE": "DELETE_CLUSTER",
}  # fmt: skip
_OF_FAILURE_DOMAIN: Final = {
    "GET": "GET_FAILURE_DOMAIN", "POST": "UPDATE_FAILURE_DOMAIN", "DELETE": "DELETE_FAILURE_DOMAIN",
}  # fmt: skip
_OF_BROKERS: Final = {
    ("GET", "/backlog-quota-check"): "CHECK_BACKLOG_QUOTA",
    ("GET", "/internal-configuration"): "GET_INTERNAL_CONFIGURATION_DATA",
    ("GET", "/leaderBroker"): "GET_LEADER_BROKER",
    ("GET", "/health"): "HEALTH_CHECK",
    ("GET", ""): "LIST_BROKERS",
    ("GET", "/{cluster}"): "LIST_BROKERS",
    ("GET", "/configuration"): "LIST_DYNAMIC_CONFIGURATIONS",
    ("GET", "/configuration/values"): "LIST_DYNAMIC_CONFIGURATIONS",
    ("GET", "/{cluster}/{broker}/ownedNamespaces"): "LIST_OWNED_NAMESPACES",
    ("GET", "/configuration/runtime"): "LIST_RUNTIME_CONFIGURATIONS",
    ("POST", "/configuration/{key}/{value}"): "UPDATE_DYNAMIC_CONFIGURATION",
    ("DELETE", "/configuration/{key}"): "DELETE_DYNAMIC_CONFIGURATION",
}
_OF_SUPER_USERS: Final = (
    "/admin/v2/broker-stats/", "/admin/v2/metadata/", "/admin/v2/bookies/", "/admin/v2/resourcegroups",
    "/admin/v2/resource-quotas",
)  # fmt: skip


class Claim(NamedTuple):
    """The proven role and the principal that the request names for it; `is_valid`: proxies alone may name another
    principal, and must; `is_proxy`: the role is a proxy's.
    """

    role: str | None
    original: str | None
    is_valid: bool = True
    is_proxy: bool = False


def denied_text(method: str, path: str, names: Mapping[str, str], claim: Claim, broker: str) -> str | None:
    """The text for a role without the right; None where Apache Pulsar has no such route.

    `names` are the values of the names in the path, "topic" the full name; `broker` is the id of this broker.
    """
    row = _row(method, path)
    if row is None:
        return None
    role, original = claim.role, claim.original
    if row.text is _TENANT_ADMIN and not claim.is_valid:
        return rest_refusals.ORIGINAL_PRINCIPAL_INVALID.text
    if row.text is _TENANT_ADMIN and claim.is_proxy:
        return rest_refusals.PROXY_DENIED.text.format(role=role, original=original)
    access = "READ" if method == "GET" else "WRITE"
    namespace = f"{names.get('tenant', '')}/{names.get('namespace', '')}"
    others = {
        "role": role or "null",
        "original": "null" if original is None else original,
        "broker": broker,
        "access": access,
    }
    return row.text.format_map({**names, **others, "namespace": namespace, "operation": row.operation})


def _row(method: str, path: str) -> _Row | None:
    if path.startswith(_TOPIC):
        return _topic_row(method, path.removeprefix(_TOPIC))
    if path.startswith(_NAMESPACE):
        return _namespace_row(method, path.removeprefix(_NAMESPACE))
    if path.startswith(_SCHEMAS):
        return _either(_OF_SCHEMAS, method, path.removeprefix(_SCHEMAS)) or _Row(_ON_TOPIC, "GET_METADATA")
    if path.startswith(_LOOKUP):
        return _Row(_ON_NAMESPACE, "GET_BUNDLE") if path.endswith("/bundle") else _Row(_ON_TOPIC, "LOOKUP")
    if path.startswith("/topics/"):
        return _Row(_PRODUCE)
    if path.startswith("/admin/v3/packages/"):
        return _Row(_PACKAGES)
    if path.startswith(_OF_SUPER_USERS):
        return _Row(_SUPER)
    return _listed_row(method, path)


def _listed_row(method: str, path: str) -> _Row | None:
    """The row of a path to no namespace and no topic, or to the topics of a namespace."""
    if path.startswith(_BROKERS):
        found = _OF_BROKERS.get((method, path.removeprefix(_BROKERS)))
        return _Row(_ON_BROKER, found) if found else None
    if path.startswith(_TENANT):
        return _Row(_OF_TENANTS, "LIST_TENANTS" if path == _TENANT else _OF_TENANT[method])
    if path.startswith(_CLUSTER):
        return _cluster_row(method, path.removeprefix(_CLUSTER))
    if path == "/admin/v2/namespaces/{tenant}":
        return _Row(_ON_TENANT, "LIST_NAMESPACES")
    if path == "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}":
        return _Row(_ON_NAMESPACE, "GET_BUNDLE")
    if path.startswith("/admin/v2/{domain:domain}/{tenant}/{namespace}"):
        return _Row(_ON_NAMESPACE, "GET_TOPICS")
    return None


def _topic_row(method: str, below: str) -> _Row | None:
    found = _either(_OF_TOPIC, method, below)
    if found is not None:
        return found
    for word in below.split("/"):
        if word in _TOPIC_OPERATIONS:
            return _Row(_ON_TOPIC, _TOPIC_OPERATIONS[word])
        if word in _POLICIES:
            return _Row(_TOPIC_POLICY, _POLICIES[word])
    return None


def _namespace_row(method: str, below: str) -> _Row | None:
    found = _either(_OF_NAMESPACE, method, below)
    if found is not None:
        return found
    words = below.split("/")
    if words[1] == "permissions" and method in _PERMISSION_CHANGES:
        return _Row(_ON_NAMESPACE, _PERMISSION_CHANGES[method])
    for word in words:
        if word in _OF_NAMESPACE_WORDS:
            return _OF_NAMESPACE_WORDS[word]
        if word in _POLICIES:
            return _Row(_NAMESPACE_POLICY, _POLICIES[word])
    return None


def _cluster_row(method: str, below: str) -> _Row:
    if below.startswith(("/namespaceIsolationPolicies", "/migrate")):
        return _Row(_CLUSTER_POLICY)
    if below == "/peers":
        return _Row(_ON_CLUSTER, "GET_PEER_CLUSTER" if method == "GET" else "UPDATE_PEER_CLUSTER")
    if below.startswith("/failureDomains"):
        return _Row(_ON_CLUSTER, _OF_FAILURE_DOMAIN[method])
    return _Row(_ON_CLUSTER, _OF_CLUSTER[method])


def _either(rows: Mapping[tuple[str, str], _Row], method: str, below: str) -> _Row | None:
    return rows.get((method, below)) or rows.get(("", below))
