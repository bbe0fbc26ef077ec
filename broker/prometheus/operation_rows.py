"""Durations and counts of lookups, loads of topics and work on schemas, under Apache Pulsar's names (seen on 4.2.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from magnetar.broker.meters.distributions import QUOTA_CHECK_S, BucketMeter
from magnetar.broker.meters.operation_meter import LOAD_QUANTILES, LOOKUP_QUANTILES, SCHEMA_QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from magnetar.broker.meters.operation_meter import OperationMeter, SchemaMeters

Rows = Iterable[tuple[str, int | float]]
"""The text from the end of the family's name to the closing brace, and a value. The rows are lazy where each namespace
has rows, because the page renders rows in slices.
"""

_LOADS: Final = {
    "median": 0.5,
    "75percentile": 0.75,
    "95percentile": 0.95,
    "99_percentile": 0.99,
    "99_9_percentile": 0.999,
    "99_99_percentile": 0.9999,
}
"""The quantiles of topic loads that have a separate name besides the summary."""
_SCHEMAS: Final[dict[str, Callable[[SchemaMeters], OperationMeter]]] = {
    "get": lambda meters: meters.get,
    "put": lambda meters: meters.put,
    "del": lambda meters: meters.delete,
}
_STRATEGY: Final[dict[str, Callable[[SchemaMeters], int]]] = {
    "pulsar_schema_compatible_total": lambda meters: meters.compatible,
    "pulsar_schema_incompatible_total": lambda meters: meters.incompatible,
}


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """The meters of a broker. broker_id: "host:web port"; redirects: lookups answered with another broker;
    schemas: by namespace.
    """

    broker_id: str
    lookups: OperationMeter
    redirects: int
    topic_loads: OperationMeter
    schemas: Mapping[str, SchemaMeters]
    quota_checks: BucketMeter = field(default_factory=lambda: BucketMeter(QUOTA_CHECK_S))
    """Seconds from the begin of a round of quota checks to the end of each topic's check, since the start."""


def operation_metrics(figures: OperationFigures, cluster: str) -> Iterator[tuple[str, str, Rows]]:
    """Yield name, type and rows of each family."""
    lookups, loads = figures.lookups, figures.topic_loads
    yield "pulsar_broker_lookup", "summary", _summary(lookups, LOOKUP_QUANTILES, cluster)
    for name, value in (
        ("pulsar_broker_lookup_answers_total", lookups.count - figures.redirects),
        ("pulsar_broker_lookup_redirects_total", figures.redirects),
        ("pulsar_broker_lookup_failures_total", lookups.failures),
        ("topic_load_failed_total", loads.failures),
    ):
        yield name, "counter", [(f"{{{cluster}", value)]
    yield "pulsar_topic_load_times", "summary", _summary(loads, LOAD_QUANTILES, cluster)
    host = figures.broker_id.rpartition(":")[0]
    labels = f'{{{cluster},broker="{host}",metric="pulsar_topic_load_times"'
    quantiles = loads.quantiles(LOAD_QUANTILES)
    for suffix, quantile in _LOADS.items():
        yield f"pulsar_topic_load_time_{suffix}_ms", "gauge", [(labels, quantiles[quantile])]
    yield "pulsar_topic_load_time_mean_ms", "gauge", [(labels, loads.period_mean_ms)]
    yield "pulsar_topic_load_rate_s", "gauge", [(labels, loads.period_count)]
    yield "pulsar_topic_load_failed_count", "gauge", [(labels, loads.failures)]
    yield "pulsar_storage_backlog_quota_check_duration_seconds", "histogram", _histogram(figures.quota_checks, cluster)
    yield from _schema_metrics(figures.schemas, cluster)


def _histogram(meter: BucketMeter, labels: str) -> Iterator[tuple[str, int | float]]:
    counts = meter.present()
    totals = list(accumulate(counts.buckets))
    for bound, total in zip((*map(float, meter.bounds), "+Inf"), totals, strict=True):
        yield f'_bucket{{{labels},le="{bound}"', total
    yield f"_count{{{labels}", totals[-1]
    yield f"_sum{{{labels}", counts.total


def _summary(meter: OperationMeter, quantiles: Sequence[float], labels: str) -> Iterator[tuple[str, int | float]]:
    for quantile, value in meter.quantiles(quantiles).items():
        yield f'{{{labels},quantile="{quantile}"', value
    yield f"_count{{{labels}", meter.count
    yield f"_sum{{{labels}", round(meter.sum_ms, 3)


def _schema_metrics(schemas: Mapping[str, SchemaMeters], cluster: str) -> Iterator[tuple[str, str, Rows]]:
    labelled = [(f'{cluster},namespace="{namespace}"', meters) for namespace, meters in sorted(schemas.items())]
    for kind, meter in _SCHEMAS.items():
        meters = [(labels, meter(each)) for labels, each in labelled]
        yield f"pulsar_schema_{kind}_ops_latency", "summary", _summaries(meters)
        failed = [(f"{{{labels}", each.failures) for labels, each in meters if each.failures]
        yield f"pulsar_schema_{kind}_ops_failed_total", "counter", failed
    for name, count in _STRATEGY.items():
        yield name, "counter", [(f"{{{labels}", count(each)) for labels, each in labelled if count(each)]


def _summaries(meters: Sequence[tuple[str, OperationMeter]]) -> Iterator[tuple[str, int | float]]:
    for labels, meter in meters:
        if meter.count:
            yield from _summary(meter, SCHEMA_QUANTILES, labels)
