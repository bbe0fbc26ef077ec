"""Figures of a delayed index: counters kept while it runs, and the frozen picture for metrics and admin API."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "LATENCY_BOUNDS_MS",
    "LATENESS_BOUNDS_MS",
    "OPERATIONS",
    "DelayIndexStats",
    "IndexCounters",
    "OperationStats",
]

OPERATIONS: Final = ("create", "load", "delete", "merge")
LATENCY_BOUNDS_MS: Final = (50, 100, 500, 1000, 5000, 30000, 60000)
"""Upper ends of pulsar_delayed_message_index_bucket_op_latency_ms; larger values are overflow."""
LATENESS_BOUNDS_MS: Final = (0, 10, 100, 1000, 10000, 60000)


@dataclass(frozen=True, slots=True)
class OperationStats:
    """One type of work on buckets."""

    succeed: int
    failed: int
    latency_counts: tuple[int, ...]
    """A counter per bound and an overflow counter; not cumulative."""
    latency_sum_ms: float

    @property
    def all(self) -> int:
        return self.succeed + self.failed


@dataclass(frozen=True, slots=True)
class DelayIndexStats:
    """One topic's index."""

    bucket_total: int = 0
    """Immutable buckets and the mutable bucket."""
    loaded: int = 0
    """Indexes in memory."""
    snapshot_size_bytes: int = 0
    memory_bytes: int = 0
    pending: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    cancelled: int = 0
    covered: str = ""
    coverage_gap_entries: int = 0
    fired: int = 0
    lateness_counts: tuple[int, ...] = ()
    """Fired entries by lateness: a counter per bound of LATENESS_BOUNDS_MS and an overflow counter."""
    lateness_sum_ms: float = 0.0
    rebuilds: int = 0
    collected: int = 0
    """Deleted snapshots that a crash or a failure had left."""
    spills: int = 0
    shelved: int = 0
    """Bitmaps in the scratch file because of the budget."""
    operations: Mapping[str, OperationStats] = field(default_factory=dict)


class _Operation:
    __slots__ = ("counts", "failed", "succeed", "sum_ms")

    def __init__(self) -> None:
        self.succeed = self.failed = 0
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def stats(self) -> OperationStats:
        return OperationStats(self.succeed, self.failed, tuple(self.counts), self.sum_ms)


_NEVER: Final = _Operation().stats()
_NONE_FIRED: Final = (0,) * (len(LATENESS_BOUNDS_MS) + 1)


class IndexCounters:
    """Counts since the index was opened. The objects of the counts are made at the first count, because most topics
    have no delayed entries.
    """

    def __init__(self) -> None:
        self.fired = 0
        self.rebuilds = 0
        self.collected = 0
        self.spills = 0
        self.lateness_sum_ms = 0.0
        self.lateness: tuple[int, ...] = _NONE_FIRED
        self._operations: dict[str, _Operation] = {}

    def ended(self, operation: str, took_ms: float, *, failed: bool = False) -> None:
        """Count a piece of work on a bucket that ended."""
        assert operation in OPERATIONS
        each = self._operations.get(operation)
        if each is None:
            each = self._operations[operation] = _Operation()
        if failed:
            each.failed += 1
            return
        each.succeed += 1
        each.sum_ms += took_ms
        each.counts[bisect_left(LATENCY_BOUNDS_MS, took_ms)] += 1

    def note_fired(self, times: Sequence[int], now_ms: int) -> None:
        """Count entries with these ascending times, which fired now."""
        self.fired += len(times)
        self.lateness_sum_ms += max(now_ms * len(times) - sum(times), 0)
        end = len(times)
        lateness = list(self.lateness)
        for k, bound in enumerate(LATENESS_BOUNDS_MS):
            start = bisect_right(times, now_ms - bound - 1, 0, end)
            lateness[k] += end - start
            end = start
        lateness[-1] += end
        self.lateness = tuple(lateness)

    def operations(self) -> dict[str, OperationStats]:
        return {name: each.stats() if (each := self._operations.get(name)) else _NEVER for name in OPERATIONS}
