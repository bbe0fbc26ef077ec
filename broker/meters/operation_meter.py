"""Durations of operations for /metrics: lookups, loads of topics, the work on schemas."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from magnetar.broker.meters.distributions import FINE_MS, BucketMeter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOOKUP_QUANTILES: Final = (0.5, 0.99, 0.999, 1.0)
LOAD_QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999)
SCHEMA_QUANTILES: Final = (*LOAD_QUANTILES, 1.0)


class OperationMeter:
    """Durations of one kind of operation: quantiles of the last stats period; count, sum and failures since the start.

    Only successful operations count with a duration, as in Apache Pulsar. The clock is that of the running loop.
    """

    __slots__ = ("_period", "count", "failures", "sum_ms")

    def __init__(self) -> None:
        self._period = BucketMeter(FINE_MS)
        self.count = self.failures = 0
        self.sum_ms = 0.0

    @contextlib.contextmanager
    def timed(self, *, repeated_after: type[Exception] | None = None) -> Iterator[None]:
        """Count the operation in the ``with`` block; an exception counts as a failure. A cancellation is not counted,
        nor is ``repeated_after``, an exception after which the caller repeats the operation.
        """
        time = asyncio.get_running_loop().time
        begun = time()
        try:
            yield
        except Exception as error:
            self.failures += repeated_after is None or not isinstance(error, repeated_after)
            raise
        milliseconds = (time() - begun) * 1000
        self._period.add(milliseconds)
        self.count += 1
        self.sum_ms += milliseconds

    def roll(self) -> None:
        """End a period."""
        self._period.roll()

    def quantiles(self, wanted: Sequence[float]) -> dict[float, float]:
        """Return milliseconds by quantile of the last period: upper bounds, within a fifth; NaN after a period without
        operations.
        """
        return self._period.quantiles(wanted, empty=float("nan"))

    @property
    def period_count(self) -> int:
        """Operations of the last period."""
        return sum(self._period.last().buckets)

    @property
    def period_mean_ms(self) -> float:
        """Mean duration in the last period; NaN after a period without operations."""
        count = self.period_count
        return self._period.last().total / count if count else float("nan")


class SchemaMeters:
    """Reads, writes and deletions of the schemas of one namespace, and the decisions of the strategy
    about new schemas.
    """

    __slots__ = ("compatible", "delete", "get", "idle_s", "incompatible", "put")

    def __init__(self) -> None:
        self.get, self.put, self.delete = OperationMeter(), OperationMeter(), OperationMeter()
        self.compatible = self.incompatible = 0
        self.idle_s = 0.0
        """Seconds of the periods that have ended since the owner of these meters last set 0."""

    def roll(self, seconds: float) -> None:
        """End a period of so many seconds."""
        self.idle_s += seconds
        for each in (self.get, self.put, self.delete):
            each.roll()
