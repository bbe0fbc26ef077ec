"""The world's own clock: what clients and faults have planned survives the broker's process and its event loop."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Timers:
    """Callbacks at times of the world, in order; equal times in the order of their making."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now_s + seconds, next(self._numbers), call))

    @property
    def next_s(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_s: float) -> None:
        """Call everything due until then; callbacks may plan more."""
        while self._heap and self._heap[0][0] <= now_s:
            due_s, _, call = heapq.heappop(self._heap)
            self.now_s = max(self.now_s, due_s)
            call()
        self.now_s = max(self.now_s, now_s)
