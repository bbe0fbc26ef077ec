"""Figures of one converter on one topic, since the topic was loaded."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magnetar.converters.outcome import FailureReason

LATENCY_BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


@dataclass(slots=True)
class Latency:
    """A histogram; `counts` has a place for each bound, and a last place for greater values."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Return for each bound the number of values up to the bound, followed by the number of all values."""
        total, out = 0, []
        for count in self.counts:
            total += count
            out.append(total)
        return out

    def merge(self, other: Latency) -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s


@dataclass(slots=True)
class ConverterCounters:
    """accepted: conversions begun.   latency: of calls, waiting for a worker included.   parked: now."""

    accepted: int = 0
    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    failures: Counter[FailureReason] = field(default_factory=Counter)
    cache_hits: int = 0
    raw: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    breaker_open: int = 0
    latency: Latency = field(default_factory=Latency)

    def merge(self, other: ConverterCounters) -> None:
        """Add the figures of `other` to these figures."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures.update(other.failures)
        self.latency.merge(other.latency)


_SUMS: Final = (
    "accepted",
    "messages",
    "bytes_in",
    "bytes_out",
    "cache_hits",
    "raw",
    "skipped",
    "dead_lettered",
    "breaker_open",
)
