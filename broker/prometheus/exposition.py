"""/metrics: Pulsar's names and labels, as tables of rows over frozen statistics.

Samples of topics, namespaces and the broker are gauges, whatever the suffix of their names, as in Apache Pulsar.
Latencies and sizes are plain gauges per bucket of the last stats period, not cumulative. `render` is a pure function of
its arguments.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from magnetar import __version__
from magnetar.broker.compat.absent_features import HEALTH_NOT_MEASURED
from magnetar.broker.prometheus.delayed import delayed_metrics, lateness
from magnetar.broker.prometheus.help_texts import help_line
from magnetar.broker.prometheus.ledger_rows import LedgerSums, ledger_rows
from magnetar.broker.prometheus.operation_rows import OperationFigures, operation_metrics
from magnetar.broker.prometheus.resource_rows import ResourceFigures, resource_metrics
from magnetar.broker.prometheus.rows import (
    BROKER_TOTALS,
    BUCKETS,
    COMPACTION_LATENCY,
    COMPACTION_ROWS,
    CONSUMER_ROWS,
    CONSUMER_TOTALS,
    NAMESPACE_ROWS,
    PRODUCER_ROWS,
    SUBSCRIPTION_ROWS,
    TOPIC_ROWS,
    BucketFamily,
    QuotaView,
    Row,
    SubscriptionView,
    TopicView,
    added_up,
    compacted,
)
from magnetar.broker.slices import SLICE_ITEMS

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer_stats import ConsumerStats
    from magnetar.broker.foreign_entries.converter_figures import ConvertingFigures
    from magnetar.broker.policies.effective import TopicConfig
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.topic_stats import LatencyCounts, SizeCounts, TopicStats
    from magnetar.protocol.topic_name import TopicName

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PROCESS_LIBRARY: Final = "prometheus_client"
"""Makes the figures of the process. Its import takes a tenth of a second, and most starts are never scraped."""
_BEFORE_LABELS: Final = re.compile(r"^([a-z]\w*)(\{|(?= ))", re.MULTILINE)
"""Matches the name before a sample's labels, and the brace if labels follow."""
T = TypeVar("T")
Number = int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """Figures of the whole broker that belong to no topic. Counters count since the start."""

    active_connections: int = 0
    connections_created: int = 0
    connections_refused: int = 0
    connections_closed: int = 0
    throttled_connections: int = 0
    waiting_bytes: int = 0
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
    cache_inserted_entries: int = 0
    cache_evicted_entries: int = 0
    slow_callbacks: int = 0
    slow_callback_ms: float = 0.0
    longest_callback_ms: float = 0.0
    long_turns: int = 0
    trace_spans: int = 0
    trace_spans_left_out: int = 0
    publish_latency_quantiles_ms: dict[float, float] = field(default_factory=dict)
    publish_latency_count: int = 0
    publish_latency_sum_ms: float = 0.0
    authentication_successes: dict[tuple[str, str], int] = field(default_factory=dict)
    authentication_failures: dict[tuple[str, str], int] = field(default_factory=dict)
    operations: OperationFigures | None = None
    resources: ResourceFigures = field(default_factory=ResourceFigures)
    converting: "ConvertingFigures | None" = None

    def values(self) -> dict[str, Number]:
        """The plain figures by metric name."""
        figures = _CONNECTION_FIGURES | _BROKER_FIGURES
        return {name: getattr(self, attribute) for name, attribute in figures.items()}


_CONNECTION_FIGURES: Final = {
    "pulsar_active_connections": "active_connections",
    "pulsar_connection_created_total_count": "connections_created",
    "pulsar_connection_create_success_count": "connections_created",
    "pulsar_connection_create_fail_count": "connections_refused",
    "pulsar_connection_closed_total_count": "connections_closed",
}
"""Figures whose samples name the broker too."""
_BROKER_FIGURES: Final = {
    "pulsar_broker_throttled_connections": "throttled_connections",
    "pulsar_broker_pending_bytes_to_dispatch": "waiting_bytes",
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
    "pulsar_ml_cache_inserted_entries_total": "cache_inserted_entries",
    "pulsar_ml_cache_evicted_entries_total": "cache_evicted_entries",
    "magnetar_loop_slow_callbacks_total": "slow_callbacks",
    "magnetar_loop_slow_callback_ms_total": "slow_callback_ms",
    "magnetar_loop_longest_callback_ms": "longest_callback_ms",
    "magnetar_loop_long_turns_total": "long_turns",
    "magnetar_trace_spans_total": "trace_spans",
    "magnetar_trace_spans_left_out_total": "trace_spans_left_out",
}


class Sample(NamedTuple):
    """Labels as printed between braces, and a value."""

    labels: str
    value: Number


def _blocks(items: "Iterable[T]") -> "Iterator[list[T]]":
    """Yield the items in lists of at most SLICE_ITEMS."""
    rest = iter(items)
    while block := list(islice(rest, SLICE_ITEMS)):
        yield block


def _collected(items: "Iterable[T]") -> "Generator[str, None, list[T]]":
    """Collect the items in a list; yield an empty part after each slice, so that the loop gets a turn."""
    out: list[T] = []
    for block in _blocks(items):
        out += block
        yield ""
    return out


def _metric(name: str, samples: Iterable[Sample], kind: str = "gauge") -> Iterator[str]:
    """Yield the text of one metric in slices: its meaning, its type and all its samples."""
    yield f"{help_line(name)}# TYPE {name} {kind}\n"
    for block in _blocks(samples):
        yield "".join([f"{name}{{{labels}}} {value}\n" for labels, value in block])


def _histogram(name: str, samples: Iterable[Sample], kind: str = "histogram") -> Iterator[str]:
    """Yield the text of one histogram or summary; each sample begins after the metric's name."""
    yield f"{help_line(name)}# TYPE {name} {kind}\n"
    for block in _blocks(samples):
        text = "".join([f"{name}{labels}}} {value}\n" for labels, value in block])
        yield text.replace(" nan\n", " NaN\n")  # as the format has it, and strict parsers read it


def escape(value: str) -> str:
    """Escape a label value as the exposition format requires."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def render(
    settings: "Settings",
    broker: BrokerMetrics,
    topics: "Sequence[TopicStats]",
    effective: "Callable[[TopicName], TopicConfig]",
) -> Iterator[str]:
    """Yield the page in parts of bounded size. After each part, also an empty part, the caller gives the loop a
    turn.
    """
    cluster = f'cluster="{escape(settings.cluster_name)}"'
    views = yield from _collected(
        TopicView(stats, QuotaView.of(effective(stats.name), persistent=stats.name.persistent)) for stats in topics
    )
    yield from _broker_rows(cluster, broker, views)
    if settings.expose_topic_level_metrics_in_prometheus:
        yield from _topic_rows(settings, cluster, views)
    else:
        yield from _namespace_rows(cluster, views)
    sums = yield from _ledger_sums(views)
    for name, figures in ledger_rows(cluster, sums, settings.stats_update_frequency_in_secs):
        yield from _metric(name, [Sample(*row) for row in figures])
    yield from _topics_count(cluster, views)
    if broker.converting is not None:
        yield from _converter_rows(settings, cluster, broker.converting)
    yield process_text(cluster)


# --- the broker -------------------------------------------------------------------------------------------------


def _broker_rows(cluster: str, broker: BrokerMetrics, views: Sequence[TopicView]) -> Iterator[str]:
    yield from _metric("pulsar_version_info", [Sample(f'{cluster},version="{__version__}",commit=""', 1)])
    of_broker = f'{cluster},broker="{broker.resources.broker_id.rpartition(":")[0]}"'
    for name, attribute in _CONNECTION_FIGURES.items():
        labels = f'{of_broker},metric="broker_connection"'
        yield from _metric(name, [Sample(labels, getattr(broker, attribute))])
    yield from _metric("pulsar_health", [Sample(f'{of_broker},metric="broker_health"', HEALTH_NOT_MEASURED)])
    for name, attribute in _BROKER_FIGURES.items():
        yield from _metric(name, [Sample(cluster, getattr(broker, attribute))])
    for name, kind, rows in resource_metrics(broker.resources, cluster):
        samples = [Sample(*row) for row in rows]
        yield from _metric(name, samples, kind) if kind != "histogram" else _histogram(name, samples)
    if broker.operations is not None:
        for name, kind, lines in operation_metrics(broker.operations, cluster):
            yield from _histogram(name, (Sample(*line) for line in lines), kind)
    sums = yield from _broker_sums(views)
    for name in ("pulsar_broker_topics_count", *_SUMS):
        yield from _metric(name, [Sample(cluster, sums[name])])
    for name, group in groupby(BROKER_TOTALS, key=itemgetter(0)):
        samples = [Sample(f'{cluster},{label}="{value}"', sums[name, value]) for _, label, value, _ in group]
        yield from _metric(name, samples)
    yield from _metric(
        "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
        [Sample(f'{cluster},quota_type="{kind}"', sums[kind]) for kind in _EVICTIONS],
    )
    quantiles = [
        Sample(f'{cluster},quantile="{q}"', value) for q, value in sorted(broker.publish_latency_quantiles_ms.items())
    ]
    yield from _metric("pulsar_broker_publish_latency", quantiles, "summary")
    yield f"pulsar_broker_publish_latency_count{{{cluster}}} {broker.publish_latency_count}\n"
    yield f"pulsar_broker_publish_latency_sum{{{cluster}}} {broker.publish_latency_sum_ms}\n"
    expired = sum(count for (_, kind), count in broker.authentication_failures.items() if kind == "EXPIRED")
    yield from _metric("pulsar_expired_token_total", [Sample(cluster, expired)], "counter")
    for name, counts, label in (
        ("pulsar_authentication_success_total", broker.authentication_successes, "auth_method"),
        ("pulsar_authentication_failures_total", broker.authentication_failures, "reason"),
    ):
        samples = [
            Sample(f'{cluster},provider_name="{escape(provider)}",{label}="{escape(other)}"', count)
            for (provider, other), count in sorted(counts.items())
        ]
        yield from _metric(name, samples, "counter")


_SUMS: Final = {
    f"pulsar_broker_{name}": next(row.value for row in TOPIC_ROWS if row.name == f"pulsar_{name}")
    for name in (
        *("subscriptions_count", "producers_count", "consumers_count", "rate_in", "rate_out"),
        *("throughput_in", "throughput_out", "storage_size", "storage_logical_size", "storage_write_rate"),
        *("storage_read_rate", "storage_read_cache_misses_rate", "msg_backlog"),
    )
}
"""Figures of topics that are summed up under a name of the broker."""
_EVICTIONS: "Final[dict[str, Callable[[TopicView], int]]]" = {
    "size": lambda view: view.stats.quota_evictions_size,
    "time": lambda view: view.stats.quota_evictions_age,
}


def _broker_sums(views: Sequence[TopicView]) -> "Generator[str, None, dict[Any, Number]]":
    """Sums over all topics, by their broker names, by kind of eviction, and by name and label of totals."""
    totals = {(name, label): value for name, _, label, value in BROKER_TOTALS}
    values: dict[Any, Callable[[TopicView], Number]] = {**_SUMS, **_EVICTIONS, **totals}
    sums: dict[Any, Number] = dict.fromkeys(values, 0)
    sums["pulsar_broker_topics_count"] = len(views)
    for block in _blocks(views):
        for name, value in values.items():
            sums[name] += sum(map(value, block))
        yield ""
    return sums


def _ledger_sums(views: Sequence[TopicView]) -> "Generator[str, None, dict[str, LedgerSums]]":
    """Figures of managed ledgers by namespace."""
    sums: dict[str, LedgerSums] = {}
    for block in _blocks(views):
        for view in block:
            if view.stats.name.persistent:
                sums.setdefault(escape(view.stats.name.namespace), LedgerSums()).add(view)
        yield ""
    return sums


# --- topics -----------------------------------------------------------------------------------------------------


def _topic_labels(settings: "Settings", cluster: str, name: "TopicName") -> str:
    head = f'{cluster},namespace="{escape(name.namespace)}"'
    if not settings.split_topic_and_partition_label_in_prometheus:
        return f'{head},topic="{escape(str(name))}"'
    return f'{head},topic="{escape(str(name.base))}",partition="{name.partition}"'


def _topic_rows(settings: "Settings", cluster: str, views: Sequence[TopicView]) -> Iterator[str]:
    labelled = yield from _collected((_topic_labels(settings, cluster, view.stats.name), view) for view in views)
    for row in TOPIC_ROWS:
        yield from _metric(row.name, (Sample(labels, row.value(view)) for labels, view in labelled))
    found = yield from _collected((labels, view) for labels, view in labelled if compacted(view))
    yield from _rows(COMPACTION_ROWS, found)
    yield from _bucket_family(COMPACTION_LATENCY, [(labels, COMPACTION_LATENCY.counts(view)) for labels, view in found])
    yield from _bucket_rows(labelled)
    yield from _evictions(
        (labels, kind, count(view)) for labels, view in labelled for kind, count in _EVICTIONS.items()
    )
    indexes = [(labels, view.stats.delayed_index) for labels, view in labelled if view.stats.delayed_index is not None]
    for name, parts in delayed_metrics(indexes):
        rows = yield from _collected(parts)
        yield from _metric(name, (Sample(*sample) for part in rows for sample in part))
    if indexes:
        rows = yield from _collected(lateness(indexes))
        yield from _histogram("magnetar_delayed_lateness_ms", (Sample(*sample) for part in rows for sample in part))
    subscriptions = yield from _collected(
        (f'{labels},subscription="{escape(name)}"', SubscriptionView(stats))
        for labels, view in labelled
        for name, stats in view.stats.subscriptions.items()
    )
    consumers: list[tuple[str, ConsumerStats]] = []
    if settings.expose_consumer_level_metrics_in_prometheus:
        consumers = yield from _collected(
            (f'{labels},consumer_name="{escape(each.consumer_name)}",consumer_id="{each.consumer_id}"', each)
            for labels, view in subscriptions
            for each in view.stats.consumers
        )
        yield from _rows(CONSUMER_ROWS, consumers)
    yield from _subscription_rows(subscriptions, consumers)
    if settings.expose_producer_level_metrics_in_prometheus:
        producers = yield from _collected(
            (f'{labels},producer_name="{escape(each.producer_name)}",producer_id="{each.producer_id}"', each)
            for labels, view in labelled
            for each in view.stats.publishers
        )
        yield from _rows(PRODUCER_ROWS, producers)


def _subscription_rows(
    subscriptions: Sequence[tuple[str, SubscriptionView]], consumers: "Sequence[tuple[str, ConsumerStats]]"
) -> Iterator[str]:
    """The rows of subscriptions; totals of consumers stand in the families of their subscriptions."""
    for row in SUBSCRIPTION_ROWS:
        samples = (Sample(labels, row.value(view)) for labels, view in subscriptions)
        of_consumer = CONSUMER_TOTALS.get(row.name)
        more = () if of_consumer is None else (Sample(labels, of_consumer(each)) for labels, each in consumers)
        yield from _metric(row.name, chain(samples, more))
    for kind in ("Msg", "Bytes"):
        waits = (
            Sample(f'{labels},reason="{level.lower()}"', view.stats.dispatch_limited.get((kind, level), 0))
            for labels, view in subscriptions
            for level in ("Subscription", "Topic", "Broker")
        )
        yield from _metric(f"pulsar_subscription_dispatch_throttled_{kind.lower()}_events", waits)


def _evictions(counts: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Evictions by a backlog quota; counts: labels, kind of the quota, number."""
    samples = (Sample(f'{labels},quota_type="{kind}"', count) for labels, kind, count in counts)
    yield from _metric("pulsar_storage_backlog_quota_exceeded_evictions_total", samples)


def _rows(rows: "Sequence[Row[T]]", labelled: "Sequence[tuple[str, T]]") -> Iterator[str]:
    for row in rows:
        yield from _metric(row.name, (Sample(labels, row.value(thing)) for labels, thing in labelled))


def _bucket_rows(labelled: Sequence[tuple[str, TopicView]]) -> Iterator[str]:
    for family in BUCKETS:
        counts = yield from _collected((labels, family.counts(view)) for labels, view in labelled)
        yield from _bucket_family(family, counts)


def _bucket_family(
    family: BucketFamily, counts: "Sequence[tuple[str, LatencyCounts | SizeCounts | None]]"
) -> Iterator[str]:
    for i, suffix in enumerate(family.suffixes):
        samples = (Sample(labels, c.buckets[i] if c else 0) for labels, c in counts)
        yield from _metric(f"{family.name}{suffix}", samples)
    yield from _metric(f"{family.name}_count", (Sample(labels, c.count if c else 0) for labels, c in counts))
    yield from _metric(f"{family.name}_sum", (Sample(labels, family.sum_of(c) if c else 0) for labels, c in counts))


def _namespace_rows(cluster: str, views: Sequence[TopicView]) -> Iterator[str]:
    """Figures of topics, summed up per namespace under the same names."""
    by_namespace: dict[str, list[TopicView]] = {}
    for view in views:
        by_namespace.setdefault(view.stats.name.namespace, []).append(view)
    labelled = [(f'{cluster},namespace="{escape(name)}"', group) for name, group in sorted(by_namespace.items())]
    for row in NAMESPACE_ROWS:
        extra = ',remote_cluster="local"' if row.name == "pulsar_msg_backlog" else ""
        samples: list[Sample] = []
        for labels, group in labelled:
            values = yield from _collected(map(row.value, group))
            samples.append(Sample(labels + extra, row.combined(values)))
        yield from _metric(row.name, samples)
    evicted: list[tuple[str, str, int]] = []
    for labels, group in labelled:
        for kind, count in _EVICTIONS.items():
            counts = yield from _collected(map(count, group))
            evicted.append((labels, kind, sum(counts)))
    yield from _evictions(evicted)
    for family in BUCKETS:
        sums: list[tuple[str, LatencyCounts | SizeCounts | None]] = []
        for labels, group in labelled:
            total: LatencyCounts | SizeCounts | None = None
            for block in _blocks(map(family.counts, group)):
                total = added_up((total, *block))
                yield ""
            sums.append((labels, total))
        yield from _bucket_family(family, sums)


def _converter_rows(settings: "Settings", cluster: str, figures: "ConvertingFigures") -> Iterator[str]:
    from magnetar.broker.foreign_entries.converter_figures import converter_metrics  # noqa: PLC0415 - where there are converters only

    def labels(name: "TopicName") -> str:
        if settings.expose_topic_level_metrics_in_prometheus:
            return _topic_labels(settings, cluster, name)
        return f'{cluster},namespace="{escape(name.namespace)}"'

    for name, kind, rows in converter_metrics(figures, cluster, labels):
        samples = [Sample(*row) for row in rows]
        yield from _metric(name, samples, kind) if kind != "histogram" else _histogram(name, samples)


def _topics_count(cluster: str, views: Sequence[TopicView]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for block in _blocks(views):
        for view in block:
            counts[view.stats.name.namespace] = counts.get(view.stats.name.namespace, 0) + 1
        yield ""
    yield from _metric(
        "pulsar_topics_count",
        [Sample(f'{cluster},namespace="{escape(name)}"', count) for name, count in sorted(counts.items())],
    )


# --- the process ------------------------------------------------------------------------------------------------


def process_text(cluster: str) -> str:
    """CPU, memory, file descriptors and garbage collection of this process, under Prometheus' usual names.

    They have the label of the cluster too, as every sample on a page of Apache Pulsar. The caller has imported
    PROCESS_LIBRARY, in a thread.
    """
    from prometheus_client import (  # noqa: PLC0415 - see PROCESS_LIBRARY
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
