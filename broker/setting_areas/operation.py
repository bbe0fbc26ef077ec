"""Settings of metrics and statistics."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class OperationSettings(Table):
    """Settings of operation."""

    unknown_settings: str = setting(
        "unknownSettings",
        "refuse",
        "What a key does that neither this broker nor Apache Pulsar 4.2 knows: stop the start, or be listed in a "
        "warning. A key that is all but the name of a security setting always stops it.",
        choices=("refuse", "list"),
        source="Magnetar",
    )
    stats_update_frequency_in_secs: int = setting(
        "statsUpdateFrequencyInSecs",
        60,
        "Rates and latency counts are those of the last period of this length.",
        unit="s",
        minimum=1,
    )
    expose_topic_level_metrics_in_prometheus: bool = setting(
        "exposeTopicLevelMetricsInPrometheus",
        True,
        "/metrics has a row per topic and subscription; off, per namespace.",
    )
    expose_consumer_level_metrics_in_prometheus: bool = setting(
        "exposeConsumerLevelMetricsInPrometheus", False, "/metrics has a row per consumer too."
    )
    expose_producer_level_metrics_in_prometheus: bool = setting(
        "exposeProducerLevelMetricsInPrometheus", False, "/metrics has a row per producer too."
    )
    split_topic_and_partition_label_in_prometheus: bool = setting(
        "splitTopicAndPartitionLabelInPrometheus",
        False,
        "Partitions share the topic label and differ in a label of their own.",
    )
