"""Settings of managed ledgers, cursors, retention, quotas and compaction."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class StorageSettings(Table):
    """How the broker stores entries, and how long it keeps them."""

    managed_ledger_max_entries_per_ledger: int = setting(
        "managedLedgerMaxEntriesPerLedger",
        50000,
        "Most entries of a ledger before the topic begins a new ledger.",
        unit="entries",
        minimum=1,
    )
    managed_ledger_max_size_per_ledger_mbytes: int = setting(
        "managedLedgerMaxSizePerLedgerMbytes",
        2048,
        "Size of a ledger at which the topic begins a new ledger.",
        unit="MiB",
        minimum=1,
    )
    managed_ledger_min_ledger_rollover_time_minutes: int = setting(
        "managedLedgerMinLedgerRolloverTimeMinutes",
        10,
        "A ledger younger than this stays open, at any size.",
        unit="min",
        minimum=0,
    )
    managed_ledger_max_ledger_rollover_time_minutes: int = setting(
        "managedLedgerMaxLedgerRolloverTimeMinutes",
        240,
        "Age of a ledger at which the topic begins a new ledger.",
        unit="min",
        minimum=1,
    )
    managed_ledger_inactive_ledger_rollover_time_seconds: int = setting(
        "managedLedgerInactiveLedgerRolloverTimeSeconds",
        0,
        "A ledger without a publish for this long is closed; 0 never.",
        unit="s",
        minimum=0,
    )
    managed_ledger_cache_size_mb: int = setting(
        "managedLedgerCacheSizeMB",
        20,
        "Memory for recent entries, shared by all topics. Apache Pulsar takes a fifth of its direct memory.",
        unit="MiB",
        minimum=0,
        source="Magnetar",
    )
    metadata_large_values_in_mb: int = setting(
        "metadataLargeValuesInMB",
        512,
        "Memory for large values of the metadata: properties, schemas, policies, grants; 1 KiB of each does not count. "
        "Beyond it a tenant that uses more than an even share adds none. They take up to twice as much while their "
        "topics are loaded. In a cluster each broker counts policies and the values of its loaded topics.",
        unit="MiB",
        minimum=1,
        source="Magnetar",
    )
    managed_ledger_cursor_max_entries_per_ledger: int = setting(
        "managedLedgerCursorMaxEntriesPerLedger",
        50000,
        "Most entries of a cursor ledger before the cursor compacts it into a new ledger.",
        unit="entries",
        minimum=1,
    )
    auto_skip_non_recoverable_data: bool = setting(
        "autoSkipNonRecoverableData",
        False,
        "Pass over an entry whose stored bytes are damaged, and over a ledger that is lost; otherwise the subscription "
        "waits there, the log reports it, and a compaction fails (at an entry of its compacted ledger only where the "
        "log may have dropped the original).",
    )
    managed_ledger_default_mark_delete_rate_limit: float = setting(
        "managedLedgerDefaultMarkDeleteRateLimit",
        1.0,
        "How often a cursor that moved is written, where no receipt waits for it.",
        unit="per second",
        minimum=0.01,
    )
    managed_ledger_default_ensemble_size: int = setting(
        "managedLedgerDefaultEnsembleSize",
        1,
        "Value that persistence policies show as bookies of a ledger; this broker has a single copy on its machine.",
        unit="bookies",
        minimum=1,
    )
    managed_ledger_default_write_quorum: int = setting(
        "managedLedgerDefaultWriteQuorum",
        1,
        "Value that persistence policies show as copies of an entry; this broker has a single copy on its machine.",
        unit="copies",
        minimum=1,
    )
    managed_ledger_default_ack_quorum: int = setting(
        "managedLedgerDefaultAckQuorum",
        1,
        "Value that persistence policies show as acknowledged copies; this broker has a single copy on its machine.",
        unit="copies",
        minimum=1,
    )

    default_retention_time_in_minutes: int = setting(
        "defaultRetentionTimeInMinutes",
        0,
        "Consumed messages are kept for this long; -1 for ever.",
        unit="min",
        minimum=-1,
    )
    default_retention_size_in_mb: int = setting(
        "defaultRetentionSizeInMB",
        0,
        "Consumed messages are kept up to this size of a topic; -1 unlimited.",
        unit="MiB",
        minimum=-1,
    )
    retention_check_interval_in_seconds: int = setting(
        "retentionCheckIntervalInSeconds",
        120,
        "How often ledgers that need not be kept are looked for.",
        unit="s",
        minimum=1,
    )
    ttl_duration_default_in_seconds: int = setting(
        "ttlDurationDefaultInSeconds",
        0,
        "Messages older than this are skipped by every subscription; 0 never.",
        unit="s",
        minimum=0,
    )
    message_expiry_check_interval_in_minutes: int = setting(
        "messageExpiryCheckIntervalInMinutes", 5, "How often such messages are looked for.", unit="min", minimum=1
    )
    backlog_quota_check_enabled: bool = setting("backlogQuotaCheckEnabled", True, "Enforce backlog quotas.")
    backlog_quota_check_interval_in_seconds: int = setting(
        "backlogQuotaCheckIntervalInSeconds",
        60,
        "How often backlogs are compared with their quotas.",
        unit="s",
        minimum=1,
    )
    backlog_quota_default_limit_bytes: int = setting(
        "backlogQuotaDefaultLimitBytes", -1, "Largest backlog of a topic; -1 is unlimited.", unit="bytes", minimum=-1
    )
    backlog_quota_default_limit_gb: float = setting(
        "backlogQuotaDefaultLimitGB", -1.0, "The same in GiB, stronger when it is above 0.", unit="GiB", minimum=-1
    )
    backlog_quota_default_limit_second: int = setting(
        "backlogQuotaDefaultLimitSecond",
        -1,
        "Oldest unacknowledged message of a topic; -1 is unlimited.",
        unit="s",
        minimum=-1,
    )
    backlog_quota_default_retention_policy: str = setting(
        "backlogQuotaDefaultRetentionPolicy",
        "producer_request_hold",
        "Effect of an exceeded quota: producers wait, the broker refuses producers, or it skips the oldest messages.",
        choices=("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
    )
    precise_time_based_backlog_quota_check: bool = setting(
        "preciseTimeBasedBacklogQuotaCheck",
        False,
        "Read the oldest entry for its time instead of taking the close time of its ledger.",
    )

    broker_service_compaction_monitor_interval_in_seconds: int = setting(
        "brokerServiceCompactionMonitorIntervalInSeconds",
        60,
        "How often topics are compared with their compaction threshold.",
        unit="s",
        minimum=1,
    )
    broker_service_compaction_threshold_in_bytes: int = setting(
        "brokerServiceCompactionThresholdInBytes",
        0,
        "A topic is compacted when this much was published since the last time; 0 never.",
        unit="bytes",
        minimum=0,
    )
    busy_polling_enabled: bool = setting(
        "busyPollingEnabled",
        False,
        "Wait for the disk and for the next message without sleeping while a producer that waits for receipts sends "
        "one message right behind the other: such a producer gets its receipts sooner, and the broker takes up to a "
        "whole processor meanwhile. Without effect where the broker may use less than two processors.",
        source="Magnetar",
    )
    disk_usage_threshold: float = setting(
        "diskUsageThreshold",
        1.0,
        "Publishes fail while more than this part of the data directory's file system is used; 1: only when it is "
        "full. Apache Pulsar's standalone.conf has 0.99.",
        unit="part",
        minimum=0.01,
        maximum=1,
        source="Magnetar",
    )
    disk_usage_warn_threshold: float = setting(
        "diskUsageWarnThreshold",
        1.0,
        "A warning is logged above this part; publishes that diskUsageThreshold stopped go on at or below it.",
        unit="part",
        minimum=0.01,
        maximum=1,
        source="Magnetar",
    )
