"""Latency histogram with fixed buckets (a twin of the histogram of the metrics endpoint)."""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["BUCKET_SECONDS", "Histogram"]

BUCKET_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds; a last bucket counts slower observations."""


class Histogram:
    """Counts observations per bucket."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKET_SECONDS) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKET_SECONDS, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)
