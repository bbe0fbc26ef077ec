"""/metrics: Pulsar's names and labels, as tables of rows over frozen statistics.

Topic, namespace and broker samples are gauges whatever their names end in, as Apache Pulsar writes them; latencies
and sizes are plain gauges per bucket, not cumulative, of the last stats period. `render` is a pure function of its
arguments.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magnetar import __version__
from magnetar.broker.prometheus.delayed import delayed_metrics, lateness
from magnetar.broker.prometheus.help_texts import help_line
from magnetar.broker.prometheus.resources import ResourceFigures, resource_metrics
from magnetar.broker.prometheus.rows import (
    BUCKETS,
    CONSUMER_ROWS,
    PRODUCER_ROWS,
    SUBSCRIPTION_ROWS,
    TOPIC_ROWS,
    QuotaView,
    Row,
    SubscriptionView,
    TopicView,
)

if TYPE_CHECKING:
    from magnetar.broker.foreign_entries.converter_figures import ConvertingFigures
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.topic_stats import TopicStats
    from magnetar.protocol.topic_name import TopicName

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BEFORE_LABELS: Final = re.compile(r"^([a-z]\w*)(\{|(?= ))", re.MULTILINE)
"""What a sample's labels begin behind, and whether there are any."""
T = TypeVar("T")
Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """Figures of the whole broker that no topic has. Counters are since the start."""

    active_connections: int = 0
    connections_created: int = 0
    connections_refused: int = 0
    connections_closed: int = 0
    throttled_connections: int = 0
    lookup_answers: int = 0
    lookup_failures: int = 0
    lookups_pending: int = 0
    topic_loads_pending: int = 0
    managed_ledgers: int = 0
    cache_used_bytes: int = 0
    cache_entries: int = 0
    cache_hits_rate: float = 0.0
    cache_hits_throughput: float = 0.0
    cache_misses_rate: float = 0.0
    cache_misses_throughput: float = 0.0
    cache_evictions: int = 0
    slow_callbacks: int = 0
    slow_callback_ms: float = 0.0
    longest_callback_ms: float = 0.0
    long_turns: int = 0
    publish_latency_quantiles_ms: dict[float, float] = field(default_factory=dict)
    publish_latency_count: int = 0
    publish_latency_sum_ms: float = 0.0
    authentication_successes: dict[tuple[str, str], int] = field(default_factory=dict)
    authentication_failures: dict[tuple[str, str], int] = field(default_factory=dict)
    resources: ResourceFigures = field(default_factory=ResourceFigures)
    converting: "ConvertingFigures | None" = None

    def values(self) -> dict[str, Number]:
        """The plain figures by metric name."""
        return {name: getattr(self, attribute) for name, attribute in _BROKER_FIGURES.items()}


_BROKER_FIGURES: Final = {
    "pulsar_active_connections": "active_connections",
    "pulsar_connection_created_total_count": "connections_created",
    "pulsar_connection_create_success_count": "connections_created",
    "pulsar_connection_create_fail_count": "connections_refused",
    "pulsar_connection_closed_total_count": "connections_closed",
    "pulsar_broker_throttled_connections": "throttled_connections",
    "pulsar_broker_lookup_answers": "lookup_answers",
    "pulsar_broker_lookup_failures": "lookup_failures",
    "pulsar_broker_lookup_pending_requests": "lookups_pending",
    "pulsar_broker_topic_load_pending_requests": "topic_loads_pending",
    "pulsar_ml_count": "managed_ledgers",
    "pulsar_ml_cache_used_size": "cache_used_bytes",
    "pulsar_ml_cache_entries": "cache_entries",
    "pulsar_ml_cache_hits_rate": "cache_hits_rate",
    "pulsar_ml_cache_hits_throughput": "cache_hits_throughput",
    "pulsar_ml_cache_misses_rate": "cache_misses_rate",
    "pulsar_ml_cache_misses_throughput": "cache_misses_throughput",
    "pulsar_ml_cache_evictions": "cache_evictions",
    "magnetar_loop_slow_callbacks_total": "slow_callbacks",
    "magnetar_loop_slow_callback_ms_total": "slow_callback_ms",
    "magnetar_loop_longest_callback_ms": "longest_callback_ms",
    "magnetar_loop_long_turns_total": "long_turns",
}


class Sample(NamedTuple):
    """Labels as they are printed between braces, and a value."""

    labels: str
    value: Number


def _metric(name: str, samples: Iterable[Sample], kind: str = "gauge") -> str:
    """One metric: its type and all its samples."""
    lines = [f"{help_line(name)}# TYPE {name} {kind}\n"]
    lines += [f"{name}{{{labels}}} {value}\n" for labels, value in samples]
    return "".join(lines)


def _histogram(name: str, samples: Iterable[Sample]) -> str:
    """One histogram; the labels of each sample begin with what follows the name."""
    lines = [f"{help_line(name)}# TYPE {name} histogram\n"]
    lines += [f"{name}{labels}}} {value}\n" for labels, value in samples]
    return "".join(lines)


def escape(value: str) -> str:
    """A label value as the exposition format wants it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def render(
    settings: "Settings",
    broker: BrokerMetrics,
    topics: "Sequence[TopicStats]",
    effective: "Callable[[TopicName], TopicConfig]",
) -> Iterator[str]:
    """The page in parts of one metric each, so that a broker of many topics can do other things in between."""
    cluster = f'cluster="{escape(settings.cluster_name)}"'
    views = [TopicView(stats, QuotaView.of(effective(stats.name))) for stats in topics]
    yield from _broker_rows(cluster, broker, views)
    if settings.expose_topic_level_metrics_in_prometheus:
        yield from _topic_rows(settings, cluster, views)
    else:
        yield from _namespace_rows(cluster, views)
    yield _topics_count(cluster, views)
    if broker.converting is not None:
        yield from _converter_rows(settings, cluster, broker.converting)
    yield process_text(cluster)


# --- the broker -------------------------------------------------------------------------------------------------


def _broker_rows(cluster: str, broker: BrokerMetrics, views: Sequence[TopicView]) -> Iterator[str]:
    yield _metric("pulsar_version_info", [Sample(f'{cluster},version="{__version__}",commit=""', 1)])
    for name, value in broker.values().items():
        yield _metric(name, [Sample(cluster, value)])
    for name, kind, rows in resource_metrics(broker.resources, cluster):
        samples = [Sample(*row) for row in rows]
        yield _metric(name, samples, kind) if kind != "histogram" else _histogram(name, samples)
    for name, total in _broker_sums(views).items():
        yield _metric(name, [Sample(cluster, total)])
    evictions = {"size": "quota_evictions_size", "time": "quota_evictions_age"}
    yield _metric(
        "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
        [
            Sample(f'{cluster},quota_type="{kind}"', sum(getattr(view.stats, attribute) for view in views))
            for kind, attribute in evictions.items()
        ],
    )
    quantiles = [
        Sample(f'{cluster},quantile="{q}"', value) for q, value in sorted(broker.publish_latency_quantiles_ms.items())
    ]
    yield _metric("pulsar_broker_publish_latency", quantiles, "summary")
    yield f"pulsar_broker_publish_latency_count{{{cluster}}} {broker.publish_latency_count}\n"
    yield f"pulsar_broker_publish_latency_sum{{{cluster}}} {broker.publish_latency_sum_ms}\n"
    expired = sum(count for (_, kind), count in broker.authentication_failures.items() if kind == "EXPIRED")
    yield _metric("pulsar_expired_token_total", [Sample(cluster, expired)], "counter")
    for name, counts, label in (
        ("pulsar_authentication_success_total", broker.authentication_successes, "auth_method"),
        ("pulsar_authentication_failures_total", broker.authentication_failures, "reason"),
    ):
        samples = [
            Sample(f'{cluster},provider_name="{escape(provider)}",{label}="{escape(other)}"', count)
            for (provider, other), count in sorted(counts.items())
        ]
        yield _metric(name, samples, "counter")


def _broker_sums(views: Sequence[TopicView]) -> dict[str, Number]:
    """Sums over all topics under their broker names."""
    by_name = {row.name: row for row in TOPIC_ROWS}
    sums: dict[str, Number] = {"pulsar_broker_topics_count": len(views)}
    for broker_name, topic_name in (
        ("pulsar_broker_subscriptions_count", "pulsar_subscriptions_count"),
        ("pulsar_broker_producers_count", "pulsar_producers_count"),
        ("pulsar_broker_consumers_count", "pulsar_consumers_count"),
        ("pulsar_broker_rate_in", "pulsar_rate_in"),
        ("pulsar_broker_rate_out", "pulsar_rate_out"),
        ("pulsar_broker_throughput_in", "pulsar_throughput_in"),
        ("pulsar_broker_throughput_out", "pulsar_throughput_out"),
        ("pulsar_broker_storage_size", "pulsar_storage_size"),
        ("pulsar_broker_storage_logical_size", "pulsar_storage_logical_size"),
        ("pulsar_broker_storage_write_rate", "pulsar_storage_write_rate"),
        ("pulsar_broker_storage_read_rate", "pulsar_storage_read_rate"),
        ("pulsar_broker_storage_read_cache_misses_rate", "pulsar_storage_read_cache_misses_rate"),
        ("pulsar_broker_msg_backlog", "pulsar_msg_backlog"),
    ):
        value = by_name[topic_name].value
        sums[broker_name] = sum(value(view) for view in views)
    return sums


# --- topics -----------------------------------------------------------------------------------------------------


def _topic_labels(settings: "Settings", cluster: str, name: "TopicName") -> str:
    head = f'{cluster},namespace="{escape(name.namespace)}"'
    if not settings.split_topic_and_partition_label_in_prometheus:
        return f'{head},topic="{escape(str(name))}"'
    return f'{head},topic="{escape(str(name.base))}",partition="{name.partition}"'


def _topic_rows(settings: "Settings", cluster: str, views: Sequence[TopicView]) -> Iterator[str]:
    labelled = [(_topic_labels(settings, cluster, view.stats.name), view) for view in views]
    for row in TOPIC_ROWS:
        yield _metric(row.name, [Sample(labels, row.value(view)) for labels, view in labelled])
    yield from _bucket_rows(labelled)
    evictions = [
        Sample(f'{labels},quota_type="{kind}"', count)
        for labels, view in labelled
        for kind, count in (("size", view.stats.quota_evictions_size), ("time", view.stats.quota_evictions_age))
    ]
    yield _metric("pulsar_storage_backlog_quota_exceeded_evictions_total", evictions)
    indexes = [(labels, view.stats.delayed_index) for labels, view in labelled if view.stats.delayed_index is not None]
    for name, samples in delayed_metrics(indexes):
        yield _metric(name, [Sample(*sample) for sample in samples])
    if indexes:
        yield _histogram("magnetar_delayed_lateness_ms", [Sample(*sample) for sample in lateness(indexes)])
    subscriptions = [
        (f'{labels},subscription="{escape(name)}"', SubscriptionView(stats))
        for labels, view in labelled
        for name, stats in view.stats.subscriptions.items()
    ]
    yield from _rows(SUBSCRIPTION_ROWS, subscriptions)
    if settings.expose_consumer_level_metrics_in_prometheus:
        consumers = [
            (f'{labels},consumer_name="{escape(each.consumer_name)}",consumer_id="{each.consumer_id}"', each)
            for labels, view in subscriptions
            for each in view.stats.consumers
        ]
        yield from _rows(CONSUMER_ROWS, consumers)
    if settings.expose_producer_level_metrics_in_prometheus:
        producers = [
            (f'{labels},producer_name="{escape(each.producer_name)}",producer_id="{each.producer_id}"', each)
            for labels, view in labelled
            for each in view.stats.publishers
        ]
        yield from _rows(PRODUCER_ROWS, producers)


def _rows(rows: "Sequence[Row[T]]", labelled: "Sequence[tuple[str, T]]") -> Iterator[str]:
    for row in rows:
        yield _metric(row.name, [Sample(labels, row.value(thing)) for labels, thing in labelled])


def _bucket_rows(labelled: Sequence[tuple[str, TopicView]]) -> Iterator[str]:
    for family in BUCKETS:
        counts = [(labels, family.counts(view)) for labels, view in labelled]
        for i, suffix in enumerate(family.suffixes):
            yield _metric(f"{family.name}{suffix}", [Sample(labels, c.buckets[i] if c else 0) for labels, c in counts])
        yield _metric(f"{family.name}_count", [Sample(labels, c.count if c else 0) for labels, c in counts])
        yield _metric(f"{family.name}_sum", [Sample(labels, c.sum if c else 0) for labels, c in counts])


def _namespace_rows(cluster: str, views: Sequence[TopicView]) -> Iterator[str]:
    """The same names summed up per namespace."""
    by_namespace: dict[str, list[TopicView]] = {}
    for view in views:
        by_namespace.setdefault(view.stats.name.namespace, []).append(view)
    labelled = [(f'{cluster},namespace="{escape(name)}"', group) for name, group in sorted(by_namespace.items())]
    for row in TOPIC_ROWS:
        extra = ',remote_cluster="local"' if row.name == "pulsar_msg_backlog" else ""
        samples = [Sample(labels + extra, row.combined([row.value(v) for v in group])) for labels, group in labelled]
        yield _metric(row.name, samples)


def _converter_rows(settings: "Settings", cluster: str, figures: "ConvertingFigures") -> Iterator[str]:
    from magnetar.broker.foreign_entries.converter_figures import converter_metrics  # noqa: PLC0415 - where there are converters only

    def labels(name: "TopicName") -> str:
        if settings.expose_topic_level_metrics_in_prometheus:
            return _topic_labels(settings, cluster, name)
        return f'{cluster},namespace="{escape(name.namespace)}"'

    for name, kind, rows in converter_metrics(figures, cluster, labels):
        samples = [Sample(*row) for row in rows]
        yield _metric(name, samples, kind) if kind != "histogram" else _histogram(name, samples)


def _topics_count(cluster: str, views: Sequence[TopicView]) -> str:
    counts: dict[str, int] = {}
    for view in views:
        counts[view.stats.name.namespace] = counts.get(view.stats.name.namespace, 0) + 1
    return _metric(
        "pulsar_topics_count",
        [Sample(f'{cluster},namespace="{escape(name)}"', count) for name, count in sorted(counts.items())],
    )


# --- the process ------------------------------------------------------------------------------------------------


def process_text(cluster: str) -> str:
    """CPU, memory, file descriptors and garbage collection of this process, under Prometheus' usual names.

    They have the label of the cluster too: on a page of Apache Pulsar no line is without.
    """
    from prometheus_client import (  # noqa: PLC0415 - takes a tenth of a second, and most starts are never scraped
        GC_COLLECTOR,
        PLATFORM_COLLECTOR,
        PROCESS_COLLECTOR,
        CollectorRegistry,
        generate_latest,
    )

    registry = CollectorRegistry()
    for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
        registry.register(collector)
    return _BEFORE_LABELS.sub(
        lambda found: f"{found[1]}{{{cluster}" + ("," if found[2] else "}"), generate_latest(registry).decode()
    )
