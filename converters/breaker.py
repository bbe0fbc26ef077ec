"""Decides when to stop calling a defective converter (guarantee G8). A pure state machine: time is an argument.

    closed --(share of defects among the last `window` calls > `failure_percent`)--> open
    open --(`open_ms` later)--> half-open: one probe may run
    half-open --(probe succeeded)--> closed;  --(probe failed)--> open again

One breaker per converter and topic, so that entries of one topic cannot stop conversion for other topics.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass


class BreakerState(enum.StrEnum):
    """The states of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """window: number of last calls that count.   minimum_calls: with fewer calls, the breaker stays closed.
    open_ms: pause before a probe.
    """

    window: int = 100
    minimum_calls: int = 10
    failure_percent: int = 50
    open_ms: int = 30_000

    def __post_init__(self) -> None:
        if not 0 < self.minimum_calls <= self.window or not 0 <= self.failure_percent < 100 or self.open_ms < 0:
            raise ValueError(f"impossible breaker settings: {self}")


DEFAULT_BREAKER_SETTINGS = BreakerSettings()


class Breaker:
    """Call `allows` before a conversion and `record` after it."""

    def __init__(self, settings: BreakerSettings = DEFAULT_BREAKER_SETTINGS) -> None:
        self._settings = settings
        self._results: deque[bool] = deque(maxlen=settings.window)
        self._opened_at_ms: int | None = None
        self._probing = False

    def state(self, now_ms: int) -> BreakerState:
        if self._opened_at_ms is None:
            return BreakerState.CLOSED
        waited = now_ms - self._opened_at_ms
        return BreakerState.HALF_OPEN if waited >= self._settings.open_ms else BreakerState.OPEN

    def wait_ms(self, now_ms: int) -> int:
        """Return for how long the breaker stays open; 0 when it is not open."""
        return 0 if self._opened_at_ms is None else max(0, self._opened_at_ms + self._settings.open_ms - now_ms)

    def allows(self, now_ms: int) -> bool:
        """Whether the converter may be called now. In half-open, True takes the only probe: `record` must follow."""
        match self.state(now_ms):
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN:
                return False
            case BreakerState.HALF_OPEN:
                if self._probing:
                    return False
                self._probing = True
                return True

    def record(self, *, ok: bool, now_ms: int) -> None:
        """Note the result of one call. `ok` is False for defects and timeouts, not for bad data."""
        if self._opened_at_ms is not None:
            self._record_while_open(ok=ok, now_ms=now_ms)
            return
        self._results.append(ok)
        failures = self._results.count(False)
        calls = len(self._results)
        if calls >= self._settings.minimum_calls and failures * 100 > self._settings.failure_percent * calls:
            self._opened_at_ms = now_ms
            self._probing = False

    def _record_while_open(self, *, ok: bool, now_ms: int) -> None:
        # Calls that began before the breaker opened may be recorded late: only the probe decides.
        if not self._probing:
            return
        self._probing = False
        if ok:
            self._opened_at_ms = None
            self._results.clear()
        else:
            self._opened_at_ms = now_ms
