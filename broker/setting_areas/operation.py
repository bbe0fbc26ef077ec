"""Settings of metrics and statistics."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class OperationSettings(Table):
    """Settings of operation."""

    unknown_settings: str = setting(
        "unknownSettings",
        "refuse",
        "Treatment of keys unknown to this broker and to Apache Pulsar 4.2: stop the start, or list them in a "
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
    status_file_path: str = setting(
        "statusFilePath",
        "",
        "GET /status.html answers 404 while no such file exists, so that a load balancer leaves the broker out; empty: "
        "no file is needed.",
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
        "Partitions share the topic label and have a separate label for the partition.",
    )
    traces_enabled: bool = setting(
        "tracesEnabled",
        False,
        "Record spans of publishes and deliveries with OpenTelemetry and export them over OTLP/HTTP; needs the extra "
        "`otel`. A burst whose messages bring a sampled `traceparent` gets a span in each of their traces.",
        source="Magnetar",
    )
    traces_endpoint: str = setting(
        "tracesEndpoint",
        "",
        "Where spans are sent, for example http://collector:4318/v1/traces; empty leaves it to the variables of "
        "OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT), and without them to http://localhost:4318/v1/traces.",
        source="Magnetar",
    )
    traces_sample_ratio: float = setting(
        "tracesSampleRatio",
        0.0,
        "Share of bursts without context that begin a new trace.",
        unit="share",
        minimum=0,
        maximum=1,
        source="Magnetar",
    )
    traces_per_second: int = setting(
        "tracesPerSecond",
        100,
        "The most spans recorded in a second, of all topics together; further bursts of that second get none.",
        unit="spans/s",
        minimum=1,
        maximum=100_000,
        source="Magnetar",
    )
