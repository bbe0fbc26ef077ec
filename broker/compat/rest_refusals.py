"""The single table of refusals over REST in Apache Pulsar's words: clients, tools and tests look for these texts.

A row is a status and a text; the code names the row and supplies the values. A refusal in Magnetar's words is next to
its rule, not here. tests/broker/compat/test_refusals.py checks that the tables are complete and every row is used.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar.broker.errors import RestError


class RestRefusal(NamedTuple):
    """The status and the text of a refusal over HTTP."""

    status: int
    text: str

    def error(self, **values: object) -> RestError:
        """The error to raise, with these values in its text."""
        return RestError(self.status, self.text.format(**values))


# --- 400 Bad Request ------------------------------------------------------------------------------------------------

ACTIONS_NULL: Final = RestRefusal(400, "Actions should not be null")
ALLOWED_CLUSTERS_INCOMPLETE: Final = RestRefusal(
    400,
    "Allowed clusters do not contain the replication cluster [{clusters}]. Please remove the replication cluster if "
    "the cluster is not allowed for this namespace",
)
BACKLOG_QUOTA_WITHOUT_POLICY: Final = RestRefusal(
    400,
    "Set namespace[{namespace}] backlog quota failed because the data validation failed. "
    "the attribute policy cannot be null",
)
BOOKIE_NUMBERS_UNORDERED: Final = RestRefusal(
    400,
    "Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})",
)
BOOKIE_NUMBER_OUT_OF_RANGE: Final = RestRefusal(400, "Bookkeeper-{name} must be <= {most} and > 0.")
BUNDLES_INCOMPLETE: Final = RestRefusal(
    400,
    "Input bundles do not cover the whole hash range. first:{first}, last:{last}",
)
CLUSTER_BEYOND_NAMESPACE: Final = RestRefusal(
    400,
    "Cluster [{cluster}] is not in the list of allowed clusters list for namespace [{namespace}]",
)
CLUSTER_BROKER_URL_ILLEGAL: Final = RestRefusal(
    400,
    "Illegal broker service url, example: pulsar://pulsar.example.com:6650",
)
CLUSTER_BROKER_URL_TLS_ILLEGAL: Final = RestRefusal(
    400,
    "Illegal broker service tls url, example: pulsar+ssl://pulsar.example.com:6651",
)
CLUSTER_PROXY_URL_ILLEGAL: Final = RestRefusal(
    400,
    "Illegal proxy service url, example: pulsar+ssl://ats-proxy.example.com:4443 or "
    "pulsar://ats-proxy.example.com:4080",
)
CLUSTER_WEB_URL_ILLEGAL: Final = RestRefusal(400, "Illegal service url, example: http://pulsar.example.com:8080")
CLUSTER_WEB_URL_TLS_ILLEGAL: Final = RestRefusal(
    400,
    "Illegal service tls url, example: https://pulsar.example.com:8443",
)
ENTRY_FILTER_EMPTY: Final = RestRefusal(
    400,
    "entryFilterNames can't be empty. To remove entry filters use the remove method.",
)
ENTRY_FILTER_UNKNOWN: Final = RestRefusal(400, "Entry filter '{name}' not found")
ISOLATION_POLICY_MALFORMED: Final = RestRefusal(400, "Invalid format of input policy data. policy: {name}; {problem}")
MIGRATION_NOT_CONFIGURED: Final = RestRefusal(400, "Metadata store is not configured for migration.")
MIGRATION_TARGET_MISSING: Final = RestRefusal(400, "Target URL is required")
OFFLOAD_POSITION_MISSING: Final = RestRefusal(400, "messageId is null")
NAMESPACES_DIFFER: Final = RestRefusal(400, "The namespace should be the same")
ROLES_NULL: Final = RestRefusal(400, "Roles should not be null")
TENANT_OF_GROUP_MISSING: Final = RestRefusal(400, "Tenant should not be null")
SUBSCRIPTION_NEEDS_CLIENT: Final = RestRefusal(
    400,
    "Create subscription on non-persistent topic can only be done through client",
)
PACKAGE_METADATA_MISSING: Final = RestRefusal(
    400,
    "Unknown error, metadata is null when processing update package metadata request",
)
PERSISTENCE_MISSING: Final = RestRefusal(400, "persistence policies should not be null")
REPLICATION_BEYOND_ALLOWED: Final = RestRefusal(
    400,
    "[{namespace}] All replication clusters should be included in allowed clusters. Repl clusters: [{replicated}], "
    "allowed clusters: [{allowed}]",
)
RETENTION_HALF_DISABLED: Final = RestRefusal(
    400,
    "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has a "
    "non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both limits "
    "must be set to 0.",
)
RETENTION_LIMIT_INVALID: Final = RestRefusal(400, "Invalid retention policy: {limit} limit must be >= -1")
TOPIC_NAME_OF_PARTITION: Final = RestRefusal(400, "Topic name can't contain '-partition-' suffix.")
TOPIC_OF_TRANSACTIONS: Final = RestRefusal(400, "Cannot create topic in system topic format!")

# --- 401 Unauthorized -----------------------------------------------------------------------------------------------

AUTHENTICATION_REQUIRED: Final = RestRefusal(401, "Authentication required")
ORIGINAL_PRINCIPAL_INVALID: Final = RestRefusal(
    401,
    "Invalid combination of Original principal cannot be empty if the request is via proxy.",
)
PROXY_DENIED: Final = RestRefusal(401, "Proxy not authorized to access resource (proxy:{role},original:{original})")
ROLES_INVALID: Final = RestRefusal(401, "Invalid roles")
TENANT_ADMINISTRATION_DENIED: Final = RestRefusal(401, "Don't have permission to administrate resources on this tenant")

# --- 403 Forbidden --------------------------------------------------------------------------------------------------

CLUSTER_BEYOND_TENANT: Final = RestRefusal(
    403,
    "Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]",
)
CLUSTER_ID_INVALID: Final = RestRefusal(403, "Invalid cluster id: {cluster}")
NAMESPACE_OPERATION_DENIED: Final = RestRefusal(
    403,
    "Unauthorized to validateNamespaceOperation for operation [{operation}] on namespace [{namespace}]",
)
SHADOW_TOPIC_INVALID: Final = RestRefusal(403, "Invalid shadow topic name: {topic}")

# --- 404 Not Found --------------------------------------------------------------------------------------------------

BOOKIE_RACK_UNKNOWN: Final = RestRefusal(404, "Bookie rack placement configuration not found: {bookie}")
BROKER_UNKNOWN: Final = RestRefusal(404, "Broker id '{broker}' not found in available brokers.")
BUNDLE_RANGE_UNKNOWN: Final = RestRefusal(404, "Bundle range {bundle} not found")
CLUSTER_MISSING: Final = RestRefusal(404, "Cluster does not exist")
CLUSTER_UNKNOWN: Final = RestRefusal(404, "Cluster {cluster} does not exist.")
DOMAIN_TO_DELETE_UNKNOWN: Final = RestRefusal(404, "Domain-name {domain} or cluster {cluster} does not exist")
DOMAIN_UNKNOWN: Final = RestRefusal(404, "Domain {domain} for cluster {cluster} does not exist")
ISOLATION_POLICIES_UNKNOWN: Final = RestRefusal(404, "NamespaceIsolationPolicies for cluster {cluster} does not exist")
ISOLATION_POLICY_UNKNOWN: Final = RestRefusal(404, "Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
LOCAL_POLICIES_MISSING: Final = RestRefusal(404, "Namespace local-policies does not exist")
MESSAGE_ID_UNKNOWN: Final = RestRefusal(404, "Message id not found")
MESSAGE_INDEX_UNKNOWN: Final = RestRefusal(404, "Message not found for index {index}")
MESSAGE_INDEX_NEGATIVE: Final = RestRefusal(404, "Invalid message index: {index}")
MESSAGES_OF_TOPIC_MISSING: Final = RestRefusal(404, "No messages found in topic {topic}")
MESSAGE_UNKNOWN: Final = RestRefusal(404, "Message not found")
NAMESPACE_MISSING: Final = RestRefusal(404, "Namespace does not exist")
NAMESPACE_OF_TOPIC_UNKNOWN: Final = RestRefusal(404, "Topic's namespace does not exist")
NAMESPACE_POLICIES_MISSING: Final = RestRefusal(404, "Namespace policies does not exist")
NAMESPACE_TO_DELETE_UNKNOWN: Final = RestRefusal(404, "Namespace {namespace} does not exist.")
NAMESPACE_UNKNOWN: Final = RestRefusal(404, "Namespace not found")
PARTITIONED_NON_PERSISTENT_UNKNOWN: Final = RestRefusal(404, "Partitioned topic not found {topic}")
PARTITIONS_MISSING: Final = RestRefusal(404, "Topic partitions were not yet created")
PARTITIONED_TOPIC_UNKNOWN: Final = RestRefusal(404, "Partitioned Topic {topic} not found")
PARTITIONED_TOPIC_WITHOUT_PARTITIONS: Final = RestRefusal(
    404,
    "Partitioned Topic not found: {topic} has zero partitions",
)
RESOURCE_GROUP_UNKNOWN: Final = RestRefusal(404, "ResourceGroup does not exist")
RESOURCE_QUOTA_MISSING: Final = RestRefusal(404, "path /loadbalance/resource-quota/{bundle} not found.")
RESOURCE_QUOTA_MISSING_IN_ZOOKEEPER: Final = RestRefusal(
    404,
    "org.apache.zookeeper.KeeperException$NoNodeException: KeeperErrorCode = NoNode for"
    " /loadbalance/resource-quota/{bundle}",
)
SCHEMA_UNKNOWN: Final = RestRefusal(404, "Schema not found")
SUBSCRIPTION_OF_PARTITIONED_UNKNOWN: Final = RestRefusal(404, "Subscription not found")
SUBSCRIPTION_TO_MARK_UNKNOWN: Final = RestRefusal(404, "Topic or subscription not found")
SUBSCRIPTION_UNKNOWN: Final = RestRefusal(404, "Subscription {subscription} not found for topic {topic}")
TENANT_MISSING: Final = RestRefusal(404, "Tenant does not exist")
TENANT_OF_LIST_UNKNOWN: Final = RestRefusal(404, "Tenant not found")
TENANT_TO_DELETE_MISSING: Final = RestRefusal(404, "Tenant doesn't exist")
TENANT_UNKNOWN: Final = RestRefusal(404, "Tenant {tenant} not found")
TOPIC_OF_INTERNAL_STATS_UNKNOWN: Final = RestRefusal(404, "Topic not found")
TOPIC_OF_LOOKUP_UNKNOWN: Final = RestRefusal(404, "Topic not found {topic}")
TOPIC_TO_COMPLETE_UNKNOWN: Final = RestRefusal(404, "Topic {topic} does not exist")
TOPIC_TO_DELETE_UNKNOWN: Final = RestRefusal(404, "Topic {topic} not found.")
TOPIC_UNKNOWN: Final = RestRefusal(404, "Topic {topic} not found")
TRANSACTION_SNAPSHOT_MISSING: Final = RestRefusal(404, "Transaction buffer Snapshot for the topic does not exist")

# --- 405 Method Not Allowed -----------------------------------------------------------------------------------------

NO_ANALYSIS_OF_PARTITIONED: Final = RestRefusal(
    405,
    "Analyze backlog on a partitioned topic is not allowed, please try do it on specific topic partition",
)
NO_BACKLOG_SIZE_OF_PARTITIONED: Final = RestRefusal(405, "calculate backlog size is not allowed for partitioned-topic")
NO_EXAMINATION_OF_NON_PERSISTENT: Final = RestRefusal(405, "Examine messages on a non-persistent topic is not allowed")
NO_EXAMINATION_OF_PARTITIONED: Final = RestRefusal(
    405,
    "Examine messages on a partitioned topic is not allowed, please try examine message on specific topic partition",
)
NO_EXPIRY_AT_POSITION_OF_PARTITIONED: Final = RestRefusal(
    405,
    "Expire message at position is not supported for partitioned-topic",
)
NO_EXPIRY_OF_ALL_OF_NON_PERSISTENT: Final = RestRefusal(
    405,
    "Expire messages for all subscriptions on a non-persistent topic is not allowed",
)
NO_EXPIRY_OF_NON_PERSISTENT: Final = RestRefusal(405, "Expire messages on a non-persistent topic is not allowed")
NO_FORCED_DELETION_OF_NAMESPACES: Final = RestRefusal(405, "Broker doesn't allow forced deletion of namespaces")
NO_FORCED_DELETION_OF_TENANTS: Final = RestRefusal(405, "Broker doesn't allow forced deletion of tenants")
NO_INDEX_OF_NON_PERSISTENT: Final = RestRefusal(405, "Get message id by index on a non-persistent topic is not allowed")
NO_INDEX_OF_PARTITIONED: Final = RestRefusal(405, "GetMessageIDByIndex is not allowed on partitioned-topic")
NO_LAST_MESSAGE_OF_NON_PERSISTENT: Final = RestRefusal(405, "GetLastMessageId on a non-persistent topic is not allowed")
NO_MESSAGE_OF_PARTITIONED: Final = RestRefusal(405, "GetMessageById is not allowed on partitioned-topic")
NO_PEEK_OF_NON_PERSISTENT: Final = RestRefusal(405, "Peek messages on a non-persistent topic is not allowed")
NO_PEEK_OF_PARTITIONED: Final = RestRefusal(405, "Peek messages on a partitioned topic is not allowed")
NO_REPLICATED_SUBSCRIPTION: Final = RestRefusal(
    405,
    "Cannot enable/disable replicated subscriptions on non-persistent topics",
)
NO_REPLICATED_SUBSCRIPTION_TO_SHOW: Final = RestRefusal(
    405,
    "Cannot get replicated subscriptions on non-persistent topics",
)
NO_RESET_OF_PARTITIONED: Final = RestRefusal(405, "Reset-cursor at position is not allowed for partitioned-topic")
NO_TERMINATION_OF_NON_PARTITIONED: Final = RestRefusal(
    405,
    "Termination of a non-partitioned topic is not allowed using partitioned-terminate, please use terminate commands",
)
NO_TERMINATION_OF_PARTITIONED: Final = RestRefusal(405, "Termination of a partitioned topic is not allowed")
NO_TIME_OF_NON_PERSISTENT: Final = RestRefusal(
    405,
    "Get message ID by timestamp on a non-persistent topic is not allowed",
)
NO_TIME_OF_PARTITIONED: Final = RestRefusal(
    405,
    "Get message ID by timestamp on a partitioned topic is not allowed, please try do it on specific topic partition",
)
NO_SKIP_OF_PARTITIONED: Final = RestRefusal(405, "Skip messages on a partitioned topic is not allowed")
NO_TOPIC_POLICIES: Final = RestRefusal(
    405,
    "Topic level policies is disabled, to enable the topic level policy and retry.",
)
NO_TRIM_OF_NON_PERSISTENT: Final = RestRefusal(405, "Trim on a non-persistent topic is not allowed")

# --- 406 Not Acceptable ---------------------------------------------------------------------------------------------

ALLOCATOR_UNKNOWN: Final = RestRefusal(406, "Invalid allocator name : {allocator}")
NO_PARTITIONS: Final = RestRefusal(406, "Number of partitions should be more than 0")
NOT_PERSISTENT: Final = RestRefusal(406, "Need to provide a persistent topic name")
TOO_MANY_PARTITIONS_TO_CREATE: Final = RestRefusal(406, "Number of partitions should be less than or equal to {most}")

# --- 409 Conflict ---------------------------------------------------------------------------------------------------

BUNDLE_IN_USE: Final = RestRefusal(409, "Cannot delete non empty bundle")
BUNDLE_UNLOADING: Final = RestRefusal(409, "Bundle {bundle} is being unloaded")
COMPACTION_RUNNING: Final = RestRefusal(409, "Compaction already in progress")
DESTINATION_INACTIVE: Final = RestRefusal(409, "Not allowed unload namespace bundle to inactive destination broker")
DOMAIN_HAS_BROKERS: Final = RestRefusal(409, "[{brokers}] already exists in {domain}")
FUNCTIONS_DISABLED: Final = RestRefusal(
    409,
    "Pulsar Function Worker is not enabled, probably functionsWorkerEnabled is set to false",
)
PEERS_TOGETHER: Final = RestRefusal(
    409,
    "{cluster}'s peer-clusters [{peers}] can't be part of replication-clusters [{clusters}]",
)
CLUSTER_EXISTS: Final = RestRefusal(409, "Cluster already exists")
NAMESPACE_EXISTS: Final = RestRefusal(409, "Namespace already exists")
NAMESPACE_IN_USE: Final = RestRefusal(409, "Cannot delete non empty namespace")
NOTHING_TO_EXPIRE: Final = RestRefusal(
    409,
    "Expire message by timestamp not issued on topic {topic} for subscription {subscription} due to "
    "ongoing message expiration not finished or subscription almost catch  up. "
    "If it's performed on a partitioned topic operation might succeeded on other partitions, "
    "please check stats of individual partition.",
)
NOTHING_TO_EXPIRE_UP_TO: Final = RestRefusal(
    409,
    "Expire message by position not issued on topic {topic} for subscription {subscription} due to "
    "ongoing message expiration not finished or invalid message position provided.",
)
PARTITION_BEYOND: Final = RestRefusal(409, "Illegal topic partition name {topic} with max allowed {count} partitions")
PARTITION_METADATA_MISSING: Final = RestRefusal(409, "Partition metadata not found for the partitioned topic: {topic}")
RESOURCES_NOT_REPORTED: Final = RestRefusal(
    409,
    "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerWrapper does not support this operation",
)
SUBSCRIPTION_EXISTS: Final = RestRefusal(409, "Subscription already exists for topic")
TENANT_EXISTS: Final = RestRefusal(409, "Tenant already exist")
TENANT_IN_USE: Final = RestRefusal(409, "The tenant still has active namespaces")
TOPIC_EXISTS: Final = RestRefusal(409, "This topic already exists")
TOPIC_NOT_PARTITIONED: Final = RestRefusal(409, "Topic {topic} is not the partitioned topic.")
TOPIC_TO_DELETE_NOT_PARTITIONED: Final = RestRefusal(
    409,
    "{topic} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete.",
)
TOPIC_PARTITIONED: Final = RestRefusal(
    409,
    "{topic} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic.",
)

# --- 412 Precondition Failed ----------------------------------------------------------------------------------------

ADMIN_ROLES_WITH_SPACES: Final = RestRefusal(412, "AdminRoles contains whitespace in the beginning or end.")
ANTI_AFFINITY_GROUP_EMPTY: Final = RestRefusal(412, "Anti-affinity group can't be empty")
AUTO_TOPIC_CREATION_INVALID: Final = RestRefusal(
    412,
    "Invalid configuration for autoTopicCreationOverride. the detail is {problem}",
)
BACKLOG_QUOTA_BEYOND_RETENTION: Final = RestRefusal(
    412,
    "Backlog Quota exceeds configured retention quota for {subject}. Please increase retention quota and retry",
)
BOOKIE_GROUP_MISSING: Final = RestRefusal(412, "Bookie 'group' parameters is missing")
BOOKIE_RACK_INVALID: Final = RestRefusal(
    412,
    "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the rack name is not"
    " allowed to contain slash (`/`) except for the beginning and end of the rack name string. When"
    " `RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only contain one slash (`/`) except for the"
    " beginning and end of the rack name string.",
)
BUNDLE_RANGE_BACKWARDS: Final = RestRefusal(412, "Invalid range: [{low}..{high})")
BUNDLE_RANGE_INVALID: Final = RestRefusal(412, "Invalid bundle range: {bundle}")
BUNDLE_START_UNKNOWN: Final = RestRefusal(412, "Cannot find bundle {bundle} in the bundles list")
BUNDLE_UNOWNED: Final = RestRefusal(412, "Failed to find ownership for ServiceUnit:{bundle}")
BUNDLE_END_INVALID: Final = RestRefusal(
    412,
    "Invalid upper boundary for bundle {bundle}. Expected upper boundary of {found}",
)
CLUSTERS_MISSING: Final = RestRefusal(412, "Clusters cannot be null")
CLUSTERS_BLANK: Final = RestRefusal(412, "Clusters cannot be empty or blank")
CLUSTERS_UNKNOWN: Final = RestRefusal(412, "Clusters do not exist")
CLUSTERS_BEYOND_NAMESPACE: Final = RestRefusal(
    412,
    "The policies at the global topic level will only be copied to the clusters included in the namespace level "
    "replication. Therefore, please do not set the policies including other clusters",
)
CLUSTER_IDS_MISSING: Final = RestRefusal(412, "ClusterIds should not be null or empty")
CLUSTER_IN_USE: Final = RestRefusal(412, "Cluster not empty")
CLUSTER_NAME_INVALID: Final = RestRefusal(412, "Cluster name is not valid")
CLUSTER_OF_NAMESPACE_REMOVED: Final = RestRefusal(
    412,
    "Cannot remove cluster {cluster} from tenant {tenant}: namespace {namespace} still has it as a replication cluster",
)
CLUSTER_OF_REQUEST_UNKNOWN: Final = RestRefusal(412, "Cluster {cluster} does not exist.")
EXPIRY_OF_OTHER_PARTITION: Final = RestRefusal(
    412,
    "Invalid parameter for expire message by position, partition index of passed in message position doesn't match "
    "partition index for the topic",
)
EXPIRATION_TIME_INVALID: Final = RestRefusal(412, "Invalid value for subscription expiration time")
NO_TRUNCATION_OF_NON_PERSISTENT: Final = RestRefusal(412, "unsupport truncate")
LOCAL_CLUSTER_REMOVED: Final = RestRefusal(
    412,
    "Can not remove local cluster from the local topic-level replication clusters policy",
)
MESSAGE_SIZE_OF_TOPIC_INVALID: Final = RestRefusal(
    412,
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the broker-level",
)
SNAPSHOT_INTERVAL_NEGATIVE: Final = RestRefusal(412, "interval must be greater than or equal to 0")
BUNDLE_REPLICATED: Final = RestRefusal(
    412,
    "Cannot delete the global namespace {namespace}. There are still more than one replication clusters configured.",
)
NAMESPACE_REPLICATED: Final = RestRefusal(
    412,
    "Cannot delete the global namespace {namespace}. There are still more than one replication clusters configured or "
    "replication clusters is empty.",
)
NAMESPACE_NAME_INVALID: Final = RestRefusal(412, "Namespace name is not valid")
NO_MESSAGES_TO_EXAMINE: Final = RestRefusal(412, "Could not examine messages due to the total message is zero")
NO_POLICY_OF_PARTITION: Final = RestRefusal(412, "Not allowed to set/get topic policy for a partition")
OFFLOAD_BUCKET_MISSING: Final = RestRefusal(412, "The bucket must be specified for namespace offload.")
OFFLOAD_DRIVER_UNKNOWN: Final = RestRefusal(412, "The driver is not supported, support value: {drivers}")
OFFLOAD_POLICIES_MISSING: Final = RestRefusal(412, "The offloadPolicies must be specified for namespace offload.")
PACKAGE_DOMAIN_INVALID: Final = RestRefusal(412, "Invalid package domain: '{kind}'")
PARTITIONED_TOPIC_NAME_INVALID: Final = RestRefusal(412, "Partitioned Topic Name should not contain '-partition-'")
PEER_CLUSTER_UNKNOWN: Final = RestRefusal(412, "Peer cluster {cluster} does not exist")
POLICY_VALUE_INVALID: Final = RestRefusal(412, "Invalid value for {policy}")
RESOURCE_GROUP_IN_USE: Final = RestRefusal(412, "ResourceGroup is in use")
RESOURCE_GROUP_OF_REQUEST_UNKNOWN: Final = RestRefusal(412, "ResourceGroup does not exist")
RETENTION_BELOW_BACKLOG_QUOTA: Final = RestRefusal(
    412,
    "Retention Quota must exceed configured backlog quota for {subject}.",
)
SETTING_NOT_DELETABLE: Final = RestRefusal(412, "Can't delete non-dynamic configuration")
SETTING_NOT_DYNAMIC: Final = RestRefusal(412, "Can't update non-dynamic configuration")
SETTING_VALUE_INVALID: Final = RestRefusal(412, " Invalid dynamic-config value")
SPLIT_BOUNDARIES_MISSING: Final = RestRefusal(
    412,
    "With {algorithm} split algorithm, splitBoundaries must not be empty",
)
TENANT_INFO_MISSING: Final = RestRefusal(412, "TenantInfo is null")
TENANT_NAME_INVALID: Final = RestRefusal(412, "Tenant name is not valid")
TOO_MANY_BUNDLES: Final = RestRefusal(
    412,
    "Invalid number of bundles. Number of bundles has to be in the range of (0, 2^14].",
)
TOO_MANY_NAMESPACES: Final = RestRefusal(412, "Exceed the maximum number of namespace in tenant :{tenant}")
TOO_MANY_TENANTS: Final = RestRefusal(412, "Exceed the maximum number of tenants")
TOPIC_IN_USE: Final = RestRefusal(
    412,
    "Topic has {clients} connected Including {consumers} consumers, {producers} producers, and 0 replicators.",
)
TOPIC_IN_USE_NON_PERSISTENT: Final = RestRefusal(412, "Topic has {clients} connected producers/consumers")
TOPIC_LIKE_PARTITION: Final = RestRefusal(
    412,
    "Can't create topic {topic} with \"-partition-\" followed by numeric value if there isn't a partitioned topic "
    "{base} created.",
)
TOPIC_LIKE_PARTITION_BEYOND: Final = RestRefusal(
    412,
    'Can\'t create topic {topic} with "-partition-" followed by a number smaller than number of partition of '
    "partitioned topic {base}",
)
NAMESPACE_NOT_REPLICATED: Final = RestRefusal(
    412,
    "Please do not use the global topic level policy when namespace-level replication is not enabled, because the "
    "global level policy relies on namespace-level replication",
)
SHADOW_SOURCE_NOT_PERSISTENT: Final = RestRefusal(412, "Only persistent source topic is supported with shadow topics.")
SHADOW_TOPICS_MISSING: Final = RestRefusal(
    412, "Cannot specify empty shadow topics, please use remove command instead."
)
SHADOW_TOPIC_NOT_PERSISTENT: Final = RestRefusal(412, "Only persistent topic can be set as shadow topic")
SHADOW_TOPIC_UNKNOWN: Final = RestRefusal(412, "Shadow topic [{topic}] not exists.")
TOPIC_NAME_INVALID: Final = RestRefusal(412, "Topic name is not valid")
TOPIC_NOT_CREATABLE: Final = RestRefusal(412, "Topic does not exist and cannot be auto-created")

# --- 422 Unprocessable Entity ---------------------------------------------------------------------------------------

FEWER_PARTITIONS: Final = RestRefusal(
    422, "Desired partitions {wanted} can't be less than the current partitions {count}."
)
TOO_MANY_PARTITIONS: Final = RestRefusal(422, "Number of partitions should be less than or equal to {most}")

# --- 500 Internal Server Error --------------------------------------------------------------------------------------

PARTITION_TO_TERMINATE_MISSING: Final = RestRefusal(500, "Topic partitions were not yet created")
BUNDLE_TO_UNLOAD_INVALID: Final = RestRefusal(500, "Invalid bundle range: {bundle}")
LISTENER_UNKNOWN: Final = RestRefusal(500, "the broker do not have {listener} listener")
NAMESPACE_OF_GRANT_UNKNOWN: Final = RestRefusal(500, "Namespace {namespace} does not exist")
NAMESPACE_OF_PRODUCE_UNKNOWN: Final = RestRefusal(500, "Fail to publish message: Namespace not found")
PACKAGE_KIND_INVALID: Final = RestRefusal(500, "java.lang.IllegalArgumentException: Invalid package domain: '{kind}'")
PUBLISH_FAILED: Final = RestRefusal(500, "Fail to publish message: {problem}")
TOPIC_NAME_OF_LOOKUP_INVALID: Final = RestRefusal(500, "Topic name is not valid")
TOPIC_OF_PRODUCE_UNKNOWN: Final = RestRefusal(500, "Fail to publish message: Topic {topic} not found")

# --- 503 Service Unavailable ----------------------------------------------------------------------------------------

TOO_MANY_LOOKUPS: Final = RestRefusal(503, "Service Unavailable")
PACKAGES_DISABLED: Final = RestRefusal(503, "Package Management Service is not enabled in the broker.")
TRANSACTIONS_DISABLED: Final = RestRefusal(
    503,
    "This Broker is not configured with transactionCoordinatorEnabled=true.",
)
