"""A wall clock that is ahead; monotonic time goes on as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.interfaces import Clock


class FaultyClock:
    """`Clock` over another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def now_s(self) -> float:
        return self._clock.now_s()
