"""The figures of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.storage.histogram import BUCKET_SECONDS

if TYPE_CHECKING:
    from magnetar.storage.embedded.parts import EngineParts
    from magnetar.storage.entry_cache import CacheStats
    from magnetar.storage.histogram import Histogram

__all__ = ["EngineStats", "HistogramStats", "collect_stats"]


@dataclass(frozen=True, slots=True)
class HistogramStats:
    """Observations per bucket; the last bucket has no upper bound."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start unless noted otherwise."""

    appended_entries: int
    appended_bytes: int
    journal_frames: int
    journal_bytes: int
    journal_batches: int
    journal_sync: HistogramStats
    unwritten_bytes: int
    """Confirmed bytes that are not in ledger files now."""
    checkpoints: int
    checkpoint_duration: HistogramStats
    file_reads: int
    file_read_bytes: int
    read_aheads: int
    corrupt_entries: int
    cache: CacheStats
    open_files: int
    """Files that are open now."""
    loaded_ledgers: int
    """Ledgers that are loaded now."""
    state: str
    """running, full or failed."""
    full_sources: tuple[str, ...]
    """The parts of the engine that have no space now."""
    disk_used_part: float | None
    """The used part of the file system, 0 to 1, at the last measurement; None before the first measurement, and where
    the engine does not watch the disk.
    """


def _histogram(found: Histogram) -> HistogramStats:
    return HistogramStats(BUCKET_SECONDS, tuple(found.counts), found.total_s)


def collect_stats(parts: EngineParts) -> EngineStats:
    """Return the present figures of all parts."""
    appends, checkpointer, reads, health = parts.appends, parts.checkpointer, parts.reads, parts.health
    return EngineStats(
        appended_entries=appends.entries,
        appended_bytes=appends.bytes,
        journal_frames=appends.frames,
        journal_bytes=appends.frame_bytes,
        journal_batches=appends.batches,
        journal_sync=_histogram(appends.sync_seconds),
        unwritten_bytes=checkpointer.unwritten_bytes,
        checkpoints=checkpointer.checkpoints,
        checkpoint_duration=_histogram(checkpointer.seconds),
        file_reads=reads.file_reads,
        file_read_bytes=reads.file_read_bytes,
        read_aheads=reads.read_aheads,
        corrupt_entries=reads.corrupt_entries,
        cache=parts.cache.stats(),
        open_files=parts.ledger_files.open_files,
        loaded_ledgers=parts.ledgers.loaded_ledgers,
        state="failed" if health.failed else "full" if health.full else "running",
        full_sources=tuple(health.full_sources),
        disk_used_part=None if parts.disk_usage is None else parts.disk_usage.used_part,
    )
