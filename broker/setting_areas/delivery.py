"""Settings of subscriptions, dispatching and delayed delivery."""

from magnetar.broker.setting_areas.setting import Table, setting, table

_DELAYED = "org.apache.pulsar.broker.delayed."


@table
class DeliverySettings(Table):
    """The delivery of entries from a topic to its consumers."""

    subscription_types_enabled: tuple[str, ...] = setting(
        "subscriptionTypesEnabled",
        ("Exclusive", "Shared", "Failover", "Key_Shared"),
        "Subscription types that consumers may ask for.",
        choices=("Exclusive", "Shared", "Failover", "Key_Shared"),
    )
    max_consumers_per_topic: int = setting(
        "maxConsumersPerTopic", 0, "Most consumers of one topic; 0 is unlimited.", unit="consumers", minimum=0
    )
    max_consumers_per_subscription: int = setting(
        "maxConsumersPerSubscription",
        0,
        "Most consumers of one subscription; 0 is unlimited.",
        unit="consumers",
        minimum=0,
    )
    max_same_address_consumers_per_topic: int = setting(
        "maxSameAddressConsumersPerTopic",
        0,
        "Most consumers of one topic from one address; 0 is unlimited.",
        unit="consumers",
        minimum=0,
    )
    max_consumer_metadata_size: int = setting(
        "maxConsumerMetadataSize",
        1024,
        "Largest metadata of a consumer, keys and values together.",
        unit="bytes",
        minimum=0,
    )
    max_unacked_messages_per_consumer: int = setting(
        "maxUnackedMessagesPerConsumer",
        50000,
        "A shared consumer with this many unacknowledged messages gets no more; 0 is unlimited.",
        unit="messages",
        minimum=0,
    )
    max_unacked_messages_per_subscription: int = setting(
        "maxUnackedMessagesPerSubscription",
        200000,
        "The same for a whole shared subscription; 0 is unlimited.",
        unit="messages",
        minimum=0,
    )
    acknowledgment_at_batch_index_level_enabled: bool = setting(
        "acknowledgmentAtBatchIndexLevelEnabled", True, "Single messages of a batch may be acknowledged."
    )
    active_consumer_failover_delay_time_millis: int = setting(
        "activeConsumerFailoverDelayTimeMillis",
        1000,
        "A new active consumer of a Failover subscription waits this long for acknowledgements of the previous "
        "consumer.",
        unit="ms",
        minimum=0,
    )
    active_consumer_failover_consistent_hashing: bool = setting(
        "activeConsumerFailoverConsistentHashing", False, "Choose the active consumer by hash ring instead of by order."
    )
    subscription_key_shared_use_consistent_hashing: bool = setting(
        "subscriptionKeySharedUseConsistentHashing",
        True,
        "Key_Shared gives keys to consumers by hash ring instead of by halving ranges.",
    )
    subscription_key_shared_consistent_hashing_replica_points: int = setting(
        "subscriptionKeySharedConsistentHashingReplicaPoints",
        100,
        "Points of one consumer on that ring.",
        unit="points",
        minimum=1,
        maximum=10000,
    )
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: int = setting(
        "keySharedLookAheadMsgInReplayThresholdPerConsumer",
        2000,
        "Key_Shared reads no further while this many messages per consumer wait for their key; 0 is unlimited.",
        unit="messages",
        minimum=0,
    )
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: int = setting(
        "keySharedLookAheadMsgInReplayThresholdPerSubscription",
        20000,
        "The same for a whole subscription; 0 is unlimited.",
        unit="messages",
        minimum=0,
    )
    subscription_expiration_time_minutes: int = setting(
        "subscriptionExpirationTimeMinutes",
        0,
        "Durable subscriptions without consumers are deleted after this time; 0 never.",
        unit="min",
        minimum=0,
    )
    subscription_expiry_check_interval_in_minutes: int = setting(
        "subscriptionExpiryCheckIntervalInMinutes",
        5,
        "Interval between checks for expired subscriptions.",
        unit="min",
        minimum=1,
    )
    subscription_backlog_scan_max_entries: int = setting(
        "subscriptionBacklogScanMaxEntries",
        10_000,
        "An analysis of a backlog (`analyzeBacklog`) stops at this entry.",
        unit="entries",
        minimum=1,
    )
    subscription_backlog_scan_max_time_ms: int = setting(
        "subscriptionBacklogScanMaxTimeMs",
        120_000,
        "An analysis of a backlog begins no further read after this time.",
        unit="ms",
        minimum=0,
    )
    dispatcher_max_read_batch_size: int = setting(
        "dispatcherMaxReadBatchSize",
        100,
        "Most entries a subscription reads from disk at a time.",
        unit="entries",
        minimum=1,
    )
    dispatcher_max_read_size_bytes: int = setting(
        "dispatcherMaxReadSizeBytes",
        5 * 1024 * 1024,
        "Most bytes a subscription reads at a time.",
        unit="bytes",
        minimum=1,
    )
    dispatcher_max_round_robin_batch_size: int = setting(
        "dispatcherMaxRoundRobinBatchSize",
        20,
        "Most messages that a shared consumer gets before the next consumer's turn.",
        unit="messages",
        minimum=1,
    )

    delayed_delivery_enabled: bool = setting(
        "delayedDeliveryEnabled",
        True,
        "Shared and Key_Shared subscriptions hold messages back until their deliver_at_time.",
    )
    delayed_delivery_tick_time_millis: int = setting(
        "delayedDeliveryTickTimeMillis", 1000, "Precision of the delivery time.", unit="ms", minimum=1
    )
    is_delayed_delivery_deliver_at_time_strict: bool = setting(
        "isDelayedDeliveryDeliverAtTimeStrict", False, "Never deliver before the time, not even by a part of a tick."
    )
    delayed_delivery_max_delay_in_millis: int = setting(
        "delayedDeliveryMaxDelayInMillis",
        0,
        "Longest delay a message may ask for; 0 is unlimited.",
        unit="ms",
        minimum=0,
    )
    delayed_delivery_tracker_factory_class_name: str = setting(
        "delayedDeliveryTrackerFactoryClassName",
        _DELAYED + "BucketDelayedDeliveryTrackerFactory",
        "Index of delayed messages. Apache Pulsar's default is the index in memory.",
        choices=(_DELAYED + "BucketDelayedDeliveryTrackerFactory", _DELAYED + "InMemoryDelayedDeliveryTrackerFactory"),
        source="Magnetar",
    )
    delayed_delivery_fixed_delay_detection_lookahead: int = setting(
        "delayedDeliveryFixedDelayDetectionLookahead",
        50000,
        "The tracker in memory stops reading when it holds this many messages whose delays are all the same; 0 never.",
        unit="messages",
        minimum=0,
    )
    delayed_delivery_min_index_count_per_bucket: int = setting(
        "delayedDeliveryMinIndexCountPerBucket",
        50000,
        "A bucket is sealed when it holds this many messages.",
        unit="messages",
        minimum=1,
    )
    delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds: int = setting(
        "delayedDeliveryMaxTimeStepPerBucketSnapshotSegmentSeconds",
        300,
        "Longest time span of one segment of a bucket.",
        unit="s",
        minimum=1,
    )
    delayed_delivery_max_indexes_per_bucket_snapshot_segment: int = setting(
        "delayedDeliveryMaxIndexesPerBucketSnapshotSegment",
        5000,
        "Most messages in one segment of a bucket; -1 is unlimited.",
        unit="messages",
        minimum=-1,
    )
    delayed_delivery_max_num_buckets: int = setting(
        "delayedDeliveryMaxNumBuckets",
        -1,
        "Buckets are merged when there are more than this; -1 stands for 64, so that memory always has a bound.",
        unit="buckets",
        minimum=-1,
    )
    delayed_delivery_bitmap_memory_mb: int = setting(
        "delayedDeliveryBitmapMemoryMB",
        64,
        "Memory of all topics for the bitmaps of waiting messages; a scratch file holds the rest.",
        unit="MiB",
        minimum=1,
        source="Magnetar",
    )
