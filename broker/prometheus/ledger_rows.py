"""Figures of managed ledgers by namespace, under the names of Apache Pulsar's `pulsar_ml_*` family (seen on 4.2.4).

Rates and counts per bucket cover the last stats period; they are per second where Pulsar divides by the period's
length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.broker.meters.distributions import ENTRY_SIZES, WRITE_LATENCY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from magnetar.broker.prometheus.rows import TopicView
    from magnetar.broker.topics.topic_stats import LatencyCounts, SizeCounts

_FIGURES: Final[dict[str, Callable[[TopicView], float]]] = {
    "AddEntryBytesRate": lambda view: view.stats.msg_throughput_in,
    "AddEntryWithReplicasBytesRate": lambda view: view.stats.msg_throughput_in,
    "AddEntryMessagesRate": lambda view: view.stats.storage_write_rate,
    "ReadEntriesBytesRate": lambda view: view.stats.storage_read_bytes_rate,
    "ReadEntriesRate": lambda view: view.stats.storage_read_rate,
    "ReadEntriesOpsCacheMissesRate": lambda view: view.stats.storage_read_rate,
    "MarkDeleteRate": lambda view: view.stats.mark_delete_rate,
    "AddEntryErrors": lambda view: view.stats.failed_appends,
    "ReadEntriesErrors": lambda view: view.stats.failed_reads,
    "NumberOfMessagesInBacklog": lambda view: view.msg_backlog + view.stats.deduplication_backlog,
    "StoredMessagesSize": lambda view: view.stats.storage_bytes,
}
_COUNTS: Final[dict[str, Callable[[TopicView], float]]] = {
    "AddEntrySucceed": lambda view: view.stats.storage_write_rate,
    "ReadEntriesSucceeded": lambda view: view.stats.storage_read_rate,
}
"""Families of counts of the period, shown as rates."""
_BUCKETS: Final[dict[str, tuple[Sequence[float], Callable[[TopicView], LatencyCounts | SizeCounts | None]]]] = {
    "AddEntryLatencyBuckets": (WRITE_LATENCY_MS, lambda view: view.stats.write_latency_ms),
    "LedgerAddEntryLatencyBuckets": (WRITE_LATENCY_MS, lambda view: view.stats.write_latency_ms),
    "LedgerSwitchLatencyBuckets": (WRITE_LATENCY_MS, lambda view: view.stats.ledger_switch_ms),
    "EntrySizeBuckets": (ENTRY_SIZES, lambda view: view.stats.entry_sizes),
}
PREFIX: Final = "pulsar_ml_"
FAMILIES: Final = tuple(
    PREFIX + name for name in (*_FIGURES, *_COUNTS, *(each for name in _BUCKETS for each in (name, f"{name}_OVERFLOW")))
)
"""Names of all families."""


class LedgerSums:
    """Sums over the topics of one namespace, added topic by topic, because a page may cover a hundred thousand
    topics.
    """

    __slots__ = ("buckets", "figures")

    def __init__(self) -> None:
        self.figures = dict.fromkeys((*_FIGURES, *_COUNTS), 0.0)
        self.buckets = {name: [0] * (len(bounds) + 1) for name, (bounds, _) in _BUCKETS.items()}

    def add(self, view: TopicView) -> None:
        """Count a persistent topic."""
        for table in (_FIGURES, _COUNTS):
            for name, value in table.items():
                self.figures[name] += value(view)
        for name, (_, counts) in _BUCKETS.items():
            found = counts(view)
            if found is not None:
                self.buckets[name] = [a + b for a, b in zip(self.buckets[name], found.buckets, strict=True)]


def ledger_rows(
    cluster: str, sums: Mapping[str, LedgerSums], seconds: float
) -> Iterator[tuple[str, list[tuple[str, int | float]]]]:
    """Yield name and rows (labels, value) of each family. sums: by namespace; seconds: length of a stats period."""
    groups = {f'{cluster},namespace="{name}/persistent"': each for name, each in sums.items()}
    for factor, figures in ((1.0, _FIGURES), (seconds, _COUNTS)):
        for name in figures:
            yield PREFIX + name, [(labels, factor * each.figures[name]) for labels, each in groups.items()]
    for name, (bounds, _) in _BUCKETS.items():
        rows: list[tuple[str, int | float]] = []
        overflow: list[tuple[str, int | float]] = []
        for labels, each in groups.items():
            rates = [count / seconds if seconds > 0 else 0.0 for count in each.buckets[name]]
            rows += [
                (f'{labels},quantile="{low:.1f}_{high:.1f}"', rate)
                for low, high, rate in zip((0.0, *bounds[:-1]), bounds, rates[:-1], strict=True)
            ]
            overflow.append((labels, rates[-1]))
        yield PREFIX + name, rows
        yield f"{PREFIX}{name}_OVERFLOW", overflow
