"""Metrics of the broker's resources: client memory, connections, the ledger store, the processor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.storage.embedded.engine_stats import EngineStats, HistogramStats

__all__ = ["ResourceFigures", "resource_metrics"]

Samples = list[tuple[str, float]]
FULL_SOURCES: Final = ("journal", "write-behind", "checkpoint", "disk-usage")
"""Parts of the embedded engine that can run out of space. Each part always has a sample: an alert needs data."""


class BalancingCounts(Protocol):
    """Numbers of bundles that this broker, as the leader of its cluster, has moved and split since its start."""

    unloaded_brokers: int
    unloaded_bundles: int
    splits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFigures:
    """The broker's resources. Counters count since the start; `engine` is None before the store is open."""

    broker_id: str = ""
    client_memory_used_bytes: int = 0
    client_memory_limit_bytes: int = 0
    client_memory_most_bytes: int = 0
    client_memory_waiting: int = 0
    client_memory_waits: int = 0
    client_memory_refusals: int = 0
    connections_limit: int = 0
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    bandwidth_in_percent: float = 0.0
    bandwidth_out_percent: float = 0.0
    balancing: BalancingCounts | None = None
    certificate_ends_s: float | None = None
    engine: EngineStats | None = None


_PLAIN: Final[tuple[tuple[str, str, Callable[[ResourceFigures], float]], ...]] = (
    ("magnetar_client_memory_used_bytes", "gauge", lambda f: f.client_memory_used_bytes),
    ("magnetar_client_memory_limit_bytes", "gauge", lambda f: f.client_memory_limit_bytes),
    ("magnetar_client_memory_most_bytes", "gauge", lambda f: f.client_memory_most_bytes),
    ("magnetar_client_memory_waiting_connections", "gauge", lambda f: f.client_memory_waiting),
    ("magnetar_client_memory_waits_total", "counter", lambda f: f.client_memory_waits),
    ("magnetar_client_memory_refusals_total", "counter", lambda f: f.client_memory_refusals),
    ("magnetar_connections_limit", "gauge", lambda f: f.connections_limit),
)
_LOAD: Final[tuple[tuple[str, Callable[[ResourceFigures], float]], ...]] = (
    ("pulsar_lb_cpu_usage", lambda f: f.cpu_percent),
    ("pulsar_lb_memory_usage", lambda f: f.memory_percent),
    ("pulsar_lb_directMemory_usage", lambda f: _percent(f.client_memory_used_bytes, f.client_memory_limit_bytes)),
    ("pulsar_lb_bandwidth_in_usage", lambda f: f.bandwidth_in_percent),
    ("pulsar_lb_bandwidth_out_usage", lambda f: f.bandwidth_out_percent),
)
"""Rows of Apache Pulsar's load report; its labels are broker and metric="loadBalancing"."""
_BALANCING: Final[tuple[tuple[str, str, Callable[[BalancingCounts], int]], ...]] = (
    ("pulsar_lb_unload_broker_total", "bundleUnloading", lambda f: f.unloaded_brokers),
    ("pulsar_lb_unload_bundle_total", "bundleUnloading", lambda f: f.unloaded_bundles),
    ("pulsar_lb_bundles_split_total", "bundlesSplit", lambda f: f.splits),
)
"""Rows of a member of a cluster, with the label metric."""
_ENGINE: Final[tuple[tuple[str, str, Callable[[EngineStats], float]], ...]] = (
    ("magnetar_storage_writable", "gauge", lambda s: int(s.state == "running")),
    ("magnetar_storage_failed", "gauge", lambda s: int(s.state == "failed")),
    ("magnetar_storage_appended_entries_total", "counter", lambda s: s.appended_entries),
    ("magnetar_storage_appended_bytes_total", "counter", lambda s: s.appended_bytes),
    ("magnetar_journal_batches_total", "counter", lambda s: s.journal_batches),
    ("magnetar_journal_bytes_total", "counter", lambda s: s.journal_bytes),
    ("magnetar_storage_unwritten_bytes", "gauge", lambda s: s.unwritten_bytes),
    ("magnetar_storage_checkpoints_total", "counter", lambda s: s.checkpoints),
    ("magnetar_storage_file_reads_total", "counter", lambda s: s.file_reads),
    ("magnetar_storage_file_read_bytes_total", "counter", lambda s: s.file_read_bytes),
    ("magnetar_storage_corrupt_entries_total", "counter", lambda s: s.corrupt_entries),
    ("magnetar_storage_open_files", "gauge", lambda s: s.open_files),
)


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def resource_metrics(figures: ResourceFigures, cluster: str) -> Iterator[tuple[str, str, Samples]]:
    """Yield (name, type, [(labels, value)]) of each metric; the labels of a histogram begin after its name."""
    for name, kind, value in _PLAIN:
        yield name, kind, [(cluster, value(figures))]
    if figures.certificate_ends_s is not None:
        yield "magnetar_tls_certificate_end_seconds", "gauge", [(cluster, figures.certificate_ends_s)]
    load = f'{cluster},broker="{figures.broker_id}",metric="loadBalancing"'
    for name, of in _LOAD:
        yield name, "gauge", [(load, of(figures))]
    if (balancing := figures.balancing) is not None:
        for name, metric, counted in _BALANCING:
            yield name, "gauge", [(f'{cluster},metric="{metric}"', counted(balancing))]
    if figures.engine is not None:
        yield from _engine_metrics(figures.engine, cluster)


def _engine_metrics(engine: EngineStats, cluster: str) -> Iterator[tuple[str, str, Samples]]:
    for name, kind, value in _ENGINE:
        yield name, kind, [(cluster, value(engine))]
    sources = sorted({*FULL_SOURCES, *engine.full_sources})
    full = [(f'{cluster},source="{source}"', float(source in engine.full_sources)) for source in sources]
    yield "magnetar_storage_full", "gauge", full
    if engine.disk_used_part is not None:
        yield "magnetar_storage_disk_used_ratio", "gauge", [(cluster, engine.disk_used_part)]
    yield "magnetar_journal_sync_seconds", "histogram", _histogram(engine.journal_sync, cluster)
    yield "magnetar_storage_checkpoint_seconds", "histogram", _histogram(engine.checkpoint_duration, cluster)


def _histogram(found: HistogramStats, cluster: str) -> Samples:
    bounds = (*map(str, found.bounds_s), "+Inf")
    counts = list(accumulate(found.counts))
    return [
        *((f'_bucket{{{cluster},le="{bound}"', count) for bound, count in zip(bounds, counts, strict=True)),
        (f"_sum{{{cluster}", found.total_s),
        (f"_count{{{cluster}", counts[-1]),
    ]
