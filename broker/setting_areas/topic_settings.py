"""Settings of topics: creation, deletion, limits, deduplication, entry metadata, schemas."""

from magnetar.broker.setting_areas.setting import Table, setting, table

_SCHEMA_STRATEGIES = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)


@table
class TopicSettings(Table):
    """Creation and numbers of topics and subscriptions, and the checks of messages before a topic stores them."""

    allow_auto_topic_creation: bool = setting(
        "allowAutoTopicCreation", True, "A topic that a client uses for the first time is created."
    )
    allow_auto_topic_creation_type: str = setting(
        "allowAutoTopicCreationType",
        "non-partitioned",
        "Kind of automatically created topics.",
        choices=("non-partitioned", "partitioned"),
    )
    default_num_partitions: int = setting(
        "defaultNumPartitions",
        1,
        "Partitions of automatically created partitioned topics.",
        unit="partitions",
        minimum=1,
    )
    allow_auto_subscription_creation: bool = setting(
        "allowAutoSubscriptionCreation",
        True,
        "A durable subscription that a consumer uses for the first time is created.",
    )
    enable_persistent_topics: bool = setting("enablePersistentTopics", True, "Serve persistent:// topics.")
    enable_non_persistent_topics: bool = setting("enableNonPersistentTopics", True, "Serve non-persistent:// topics.")
    max_num_partitions_per_partitioned_topic: int = setting(
        "maxNumPartitionsPerPartitionedTopic",
        0,
        "Most partitions of one topic; 0 is unlimited.",
        unit="partitions",
        minimum=0,
    )
    max_topics_per_namespace: int = setting(
        "maxTopicsPerNamespace",
        0,
        "Most topics, partitions counted, in one namespace; 0 is unlimited.",
        unit="topics",
        minimum=0,
    )
    max_namespaces_per_tenant: int = setting(
        "maxNamespacesPerTenant", 0, "Most namespaces of one tenant; 0 is unlimited.", unit="namespaces", minimum=0
    )
    max_tenants: int = setting("maxTenants", 0, "Most tenants; 0 is unlimited.", unit="tenants", minimum=0)
    default_number_of_namespace_bundles: int = setting(
        "defaultNumberOfNamespaceBundles",
        4,
        "Bundles of namespaces created without a number of bundles.",
        unit="bundles",
        minimum=1,
        maximum=2**20,
    )
    default_namespace_bundle_split_algorithm: str = setting(
        "defaultNamespaceBundleSplitAlgorithm",
        "range_equally_divide",
        "Where a bundle is split when the call does not say.",
        choices=(
            "range_equally_divide",
            "topic_count_equally_divide",
            "specified_positions_divide",
            "flow_or_qps_equally_divide",
        ),
    )
    max_producers_per_topic: int = setting(
        "maxProducersPerTopic", 0, "Most producers of one topic; 0 is unlimited.", unit="producers", minimum=0
    )
    max_same_address_producers_per_topic: int = setting(
        "maxSameAddressProducersPerTopic",
        0,
        "Most producers of one topic from one address; 0 is unlimited.",
        unit="producers",
        minimum=0,
    )
    max_subscriptions_per_topic: int = setting(
        "maxSubscriptionsPerTopic",
        0,
        "Most subscriptions of one topic; 0 is unlimited.",
        unit="subscriptions",
        minimum=0,
    )
    topic_level_policies_enabled: bool = setting(
        "topicLevelPoliciesEnabled",
        True,
        "Topics may have policies; off, the broker refuses the REST calls for topic policies.",
    )
    force_delete_tenant_allowed: bool = setting(
        "forceDeleteTenantAllowed", False, "Tenants with namespaces may be deleted by force."
    )
    force_delete_namespace_allowed: bool = setting(
        "forceDeleteNamespaceAllowed", False, "Namespaces with topics may be deleted by force."
    )
    broker_delete_inactive_topics_enabled: bool = setting(
        "brokerDeleteInactiveTopicsEnabled",
        True,
        "Topics without producers, consumers and subscriptions are deleted after a while.",
    )
    broker_delete_inactive_partitioned_topic_metadata_enabled: bool = setting(
        "brokerDeleteInactivePartitionedTopicMetadataEnabled",
        False,
        "A partitioned topic goes, with its schemas and policies, when its last partition is deleted as unused.",
    )
    broker_delete_inactive_topics_frequency_seconds: int = setting(
        "brokerDeleteInactiveTopicsFrequencySeconds", 60, "How often unused topics are looked for.", unit="s", minimum=1
    )
    broker_delete_inactive_topics_mode: str = setting(
        "brokerDeleteInactiveTopicsMode",
        "delete_when_no_subscriptions",
        "Definition of unused, beside no producer: no subscription, or no backlog of any; consumers do not count.",
        choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    )
    broker_delete_inactive_topics_max_inactive_duration_seconds: int | None = setting(
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        None,
        "How long a topic is unused before it is deleted; empty: the frequency.",
        unit="s",
        minimum=1,
    )
    encryption_require_on_producer: bool = setting(
        "encryptionRequireOnProducer", False, "Refuse producers that do not encrypt."
    )

    broker_entry_metadata_interceptors: tuple[str, ...] = setting(
        "brokerEntryMetadataInterceptors",
        (
            "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor",
            "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
        ),
        "Interceptors that add metadata to every entry: Apache Pulsar's class names (broker timestamp, index) or "
        "Python classes (package.module.Class, see features/entry-metadata.md).",
    )
    exposing_broker_entry_metadata_to_client_enabled: bool = setting(
        "exposingBrokerEntryMetadataToClientEnabled",
        False,
        "Hand broker timestamp and index to clients that understand them.",
    )
    broker_deduplication_enabled: bool = setting(
        "brokerDeduplicationEnabled",
        False,
        "Drop messages that a producer repeats, unless namespace or topic say otherwise.",
    )
    broker_deduplication_max_number_of_producers: int = setting(
        "brokerDeduplicationMaxNumberOfProducers",
        10000,
        "Most producer names in a deduplication snapshot.",
        unit="producers",
        minimum=1,
    )
    broker_deduplication_entries_interval: int = setting(
        "brokerDeduplicationEntriesInterval",
        1000,
        "A deduplication snapshot is taken after this many entries.",
        unit="entries",
        minimum=1,
    )
    broker_deduplication_snapshot_frequency_in_seconds: int = setting(
        "brokerDeduplicationSnapshotFrequencyInSeconds",
        120,
        "How often it is checked whether a snapshot is due by time; 0 never.",
        unit="s",
        minimum=0,
    )
    broker_deduplication_snapshot_interval_seconds: int = setting(
        "brokerDeduplicationSnapshotIntervalSeconds",
        120,
        "Age of the last snapshot at which a new snapshot is due; 0 never.",
        unit="s",
        minimum=0,
    )
    broker_deduplication_producer_inactivity_timeout_minutes: int = setting(
        "brokerDeduplicationProducerInactivityTimeoutMinutes",
        360,
        "Sequence ids of producers away for this long are forgotten.",
        unit="min",
        minimum=1,
    )

    schema_compatibility_strategy: str = setting(
        "schemaCompatibilityStrategy", "FULL", "When a new schema version is allowed.", choices=_SCHEMA_STRATEGIES
    )
    is_allow_auto_update_schema_enabled: bool = setting(
        "isAllowAutoUpdateSchemaEnabled", True, "Clients may add schema versions; off, only administrators may."
    )
    is_schema_validation_enforced: bool = setting(
        "isSchemaValidationEnforced", False, "Refuse producers and consumers without a schema on topics with a schema."
    )

    enable_broker_side_subscription_pattern_evaluation: bool = setting(
        "enableBrokerSideSubscriptionPatternEvaluation", True, "Topic lists are filtered by the client's pattern here."
    )
    subscription_pattern_max_length: int = setting(
        "subscriptionPatternMaxLength", 50, "Longest pattern that is evaluated here.", unit="characters", minimum=0
    )
    enable_broker_topic_list_watcher: bool = setting(
        "enableBrokerTopicListWatcher", True, "Clients with a pattern get new and deleted topics at once."
    )
