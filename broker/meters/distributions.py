"""Distributions and rates for /metrics. They are updated once per burst, by a bisection and two additions each."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from magnetar.broker.meters.rates import ZERO_RATE, Rate, RateMeter
from magnetar.storage.managed.log_counters import LogCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.managed.log_counters import LogCounters

WRITE_LATENCY_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""Upper bounds of Apache Pulsar's buckets of write latency; one more bucket has no bound."""
ENTRY_SIZES: Final = (128, 512, 1024, 2048, 4096, 16_384, 102_400, 1_048_576)
"""Upper bounds of Apache Pulsar's buckets of entry sizes; one more bucket has no bound."""
QUOTA_CHECK_S: Final = (5, 10, 30, 60, 300)
"""Upper bounds of Apache Pulsar's buckets of quota checks; one more bucket has no bound."""
FINE_MS: Final = tuple(0.05 * 1.2**k for k in range(80))
NO_COUNTS: Final = LogCounts()
QUANTILES: Final = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)


class CountedLog(Protocol):
    """The counters of a topic's log that the meters read."""

    @property
    def entries_added(self) -> int: ...
    @property
    def counters(self) -> LogCounters: ...


class Counts(NamedTuple):
    """The counts of one period: observations per bucket, and their sum."""

    buckets: tuple[int, ...]
    total: float


@cache
def _none(buckets: int) -> Counts:
    return Counts((0,) * buckets, 0.0)


class BucketMeter:
    """Observations per bucket, of the last full period and of the present period. All periods without observations
    share one object.
    """

    __slots__ = ("_counts", "_last", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self._counts: list[int] | None = None
        self._sum = 0.0
        self._last = _none(len(bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        counts = self._counts
        if counts is None:
            counts = self._counts = [0] * (len(self.bounds) + 1)
        counts[bisect_left(self.bounds, value)] += times
        self._sum += value * times

    def roll(self) -> None:
        """End a period."""
        if self._counts is None:
            self._last = _none(len(self.bounds) + 1)
        else:
            self._last = Counts(tuple(self._counts), self._sum)
            self._counts, self._sum = None, 0.0

    def last(self) -> Counts:
        return self._last

    def present(self) -> Counts:
        """The counts of the present period: of all time, for a meter whose periods never end."""
        return _none(len(self.bounds) + 1) if self._counts is None else Counts(tuple(self._counts), self._sum)

    def quantiles(self, wanted: Sequence[float], *, empty: float) -> dict[float, float]:
        """Return each quantile of the last full period, as the upper bound of its bucket; `empty` for a period without
        observations.
        """
        counts = self._last.buckets
        total = sum(counts)
        if not total:
            return dict.fromkeys(wanted, empty)
        found: dict[float, float] = {}
        for quantile in wanted:
            rank, seen = max(1, quantile * total), 0
            for bound, count in zip((*self.bounds, self.bounds[-1]), counts, strict=True):
                seen += count
                if seen >= rank:
                    found[quantile] = round(bound, 3)
                    break
        return found


class LatencyMeter:
    """Publish latency of the whole broker: quantiles of the last period (within a fifth), count and sum since start."""

    def __init__(self) -> None:
        self.period = BucketMeter(FINE_MS)
        """Gets the observations, in milliseconds."""
        self._ended_count = 0
        self._ended_ms = 0.0

    @property
    def count(self) -> int:
        return self._ended_count + sum(self.period.present().buckets)

    @property
    def sum_ms(self) -> float:
        return self._ended_ms + self.period.present().total

    def roll(self) -> None:
        present = self.period.present()
        self._ended_count += sum(present.buckets)
        self._ended_ms += present.total
        self.period.roll()

    def quantiles(self) -> dict[float, float]:
        """Return milliseconds by quantile: the upper bound of the quantile's bucket; 0 after a period without a
        publish.
        """
        return self.period.quantiles(QUANTILES, empty=0.0)


class TopicMeters:
    """The distributions of writes and reads of one persistent topic."""

    def __init__(self, broker: LatencyMeter) -> None:
        self.write_latency_ms = BucketMeter(WRITE_LATENCY_MS)
        self.entry_sizes = BucketMeter(ENTRY_SIZES)
        self.written = RateMeter()
        self.counts = NO_COUNTS
        """The counts of the log in the last full period."""
        self._period_s = 0.0
        self._switches_ms: BucketMeter | None = None
        self._counted = NO_COUNTS
        self._broker = broker

    def stored(self, entries: int, size_bytes: int, seconds: float) -> None:
        """Count a run that is on the disk; each entry counts with the mean size of the run's entries."""
        milliseconds = seconds * 1000
        self.write_latency_ms.add(milliseconds, entries)
        self.entry_sizes.add(size_bytes / entries, entries)
        self._broker.period.add(milliseconds, entries)

    def roll(self, ledger: CountedLog, seconds: float) -> None:
        """End a period of written entries and of entries read from the store."""
        for buckets in (self.write_latency_ms, self.entry_sizes):
            buckets.roll()
        self._roll_switches(ledger.counters)
        counted = ledger.counters.counts()
        self.counts = NO_COUNTS if counted == self._counted else counted.since(self._counted)
        self._counted, self._period_s = counted, seconds
        self.written.add(ledger.entries_added - self.written.total_messages, 0)
        self.written.roll(seconds)

    def read_rate(self) -> Rate:
        """Entries and bytes that the cache lacked."""
        entries, size = self.counts.read_entries, self.counts.read_bytes
        if not entries or self._period_s <= 0:
            return ZERO_RATE
        return Rate(entries / self._period_s, size / self._period_s, size / entries)

    def mark_delete_rate(self) -> float:
        """Saves of cursors a second."""
        return self.counts.mark_deletes / self._period_s if self._period_s > 0 else 0.0

    def ledger_switches_ms(self) -> Counts:
        """The times of the new ledgers of the last full period."""
        return _none(len(WRITE_LATENCY_MS) + 1) if self._switches_ms is None else self._switches_ms.last()

    def _roll_switches(self, counters: LogCounters) -> None:
        if not counters.switches_ms and self._switches_ms is None:
            return
        times, counters.switches_ms = counters.switches_ms, ()
        meter = self._switches_ms = self._switches_ms or BucketMeter(WRITE_LATENCY_MS)
        for milliseconds in times:
            meter.add(milliseconds)
        meter.roll()


class CacheMeter:
    """Rates of the entry cache of all topics."""

    def __init__(self) -> None:
        self.hits, self.misses = RateMeter(), RateMeter()

    def roll(self, hits: tuple[int, int], misses: tuple[int, int], seconds: float) -> None:
        """End a period. hits, misses: (look-ups, bytes) since the start."""
        for meter, (count, size) in ((self.hits, hits), (self.misses, misses)):
            meter.add(count - meter.total_messages, size - meter.total_bytes)
            meter.roll(seconds)
