"""Figures of converters for /metrics: per topic, or summed up per namespace where topics are not shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.broker.foreign_entries.counters import LATENCY_BOUNDS_S, ConverterCounters
from magnetar.converters.outcome import FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from magnetar.broker.foreign_entries.tools import ConvertingTools
    from magnetar.broker.foreign_entries.topic_converting import TopicConverting
    from magnetar.converters.cache import CacheStats
    from magnetar.protocol.topic_name import TopicName

Samples = list[tuple[str, float]]
_PREFIX: Final = "pulsar_message_converter_"
_COUNTERS: Final[tuple[tuple[str, Callable[[ConverterCounters], int]], ...]] = (
    ("accepted_total", lambda c: c.accepted),
    ("converted_messages_total", lambda c: c.messages),
    ("cache_hits_total", lambda c: c.cache_hits),
    ("raw_total", lambda c: c.raw),
    ("skipped_total", lambda c: c.skipped),
    ("dead_lettered_total", lambda c: c.dead_lettered),
)


@dataclass(frozen=True, slots=True)
class ConverterFigures:
    """The figures of one converter on one topic. Parked entries are counted per topic, not per converter."""

    topic: TopicName
    converter: str
    counters: ConverterCounters


@dataclass(frozen=True, slots=True)
class ConvertingFigures:
    """The figures of all converters, topics, the cache and the worker processes."""

    converters: tuple[ConverterFigures, ...] = ()
    parked: dict[TopicName, int] = field(default_factory=dict)
    raw_bypass: dict[TopicName, int] = field(default_factory=dict)
    cache: CacheStats | None = None
    busy_workers: int = 0


def gather(topics: Mapping[TopicName, TopicConverting], tools: ConvertingTools) -> ConvertingFigures:
    """Gather the figures of all topics that are loaded now."""
    figures, parked = [], {}
    for name, topic in topics.items():
        resting = topic.open_breakers()
        for converter, counters in topic.counters.items():
            counters.breaker_open = int(converter in resting)
            figures.append(ConverterFigures(name, converter, counters))
        parked[name] = sum(each.parked() for each in list(topic.transformers.values()))
    bypass = {name: topic.raw_bypass for name, topic in topics.items()}
    return ConvertingFigures(tuple(figures), parked, bypass, tools.cache.stats(), tools.pool.busy)


def converter_metrics(
    figures: ConvertingFigures | None, cluster: str, labels_of: Callable[[TopicName], str]
) -> Iterator[tuple[str, str, Samples]]:
    """Yield (name, type, [(labels, value)]) of each metric; `labels_of` labels a topic, or its namespace."""
    if figures is None:
        return
    summed: dict[str, ConverterCounters] = {}
    for each in figures.converters:
        labels = f'{labels_of(each.topic)},converter="{each.converter}"'
        summed.setdefault(labels, ConverterCounters()).merge(each.counters)
    rows = sorted(summed.items())
    for name, value in _COUNTERS:
        yield _PREFIX + name, "counter", [(labels, value(c)) for labels, c in rows]
    yield (
        _PREFIX + "converted_bytes_total",
        "counter",
        [
            (f'{labels},direction="{direction}"', size)
            for labels, c in rows
            for direction, size in (("in", c.bytes_in), ("out", c.bytes_out))
        ],
    )
    yield (
        _PREFIX + "failures_total",
        "counter",
        [(f'{labels},reason="{reason}"', c.failures[reason]) for labels, c in rows for reason in FailureReason],
    )
    yield _PREFIX + "breaker_open", "gauge", [(labels, c.breaker_open) for labels, c in rows]
    yield from _latency(rows)
    yield _PREFIX + "parked", "gauge", _of_topics(figures.parked, labels_of)
    yield _PREFIX + "raw_bypass_total", "counter", _of_topics(figures.raw_bypass, labels_of)
    yield _PREFIX + "workers_busy", "gauge", [(cluster, figures.busy_workers)]
    if figures.cache is not None:
        yield _PREFIX + "cache_bytes", "gauge", [(cluster, figures.cache.bytes)]
        yield _PREFIX + "cache_evictions_total", "counter", [(cluster, figures.cache.evictions)]


def _latency(rows: Sequence[tuple[str, ConverterCounters]]) -> Iterator[tuple[str, str, Samples]]:
    """Yield the histogram of latencies; each label text begins with the suffix of its metric (`_bucket{`, `_sum{`)."""
    bounds = (*map(str, LATENCY_BOUNDS_S), "+Inf")
    samples: Samples = []
    for labels, c in rows:
        samples += [
            (f'_bucket{{{labels},le="{bound}"', count)
            for bound, count in zip(bounds, c.latency.cumulative(), strict=True)
        ]
        samples += [("_sum{" + labels, c.latency.sum_s), ("_count{" + labels, c.latency.count)]
    yield _PREFIX + "latency_seconds", "histogram", samples


def _of_topics(values: dict[TopicName, int], labels_of: Callable[[TopicName], str]) -> Samples:
    summed: dict[str, int] = {}
    for topic, value in values.items():
        summed[labels_of(topic)] = summed.get(labels_of(topic), 0) + value
    return sorted(summed.items())
