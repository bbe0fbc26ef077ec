"""The world's own clock: plans of clients and faults survive the broker's process and its event loop."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from tests.model.virtual_loop import VirtualLoop
from tests.simulation.history import ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TURNS = 200_000


class Timers:
    """Callbacks at times of the world, in order; callbacks of the same time in the order of the calls of ``after``."""

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
        """Call all callbacks that are due at ``now_s``; a callback may add others."""
        while self._heap and self._heap[0][0] <= now_s:
            due_s, _, call = heapq.heappop(self._heap)
            self.now_s = max(self.now_s, due_s)
            call()
        self.now_s = max(self.now_s, now_s)


class SimLoop(VirtualLoop):
    """The loop of one life of the broker; the world's timers fire with its time. An error that they raise ends the run."""

    def __init__(self, timers: Timers) -> None:
        super().__init__()
        self.now_s = timers.now_s
        self._world = timers
        self._turns = 0

    def wait(self) -> None:
        due_s = self._world.next_s
        if due_s is None:
            super().wait()
            return
        own_s = self.next_s()
        self.now_s = max(self.now_s, due_s if own_s is None else min(due_s, own_s))

    def _run_once(self) -> None:
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise ViolationError(f"the history does not end: {MOST_TURNS} turns")
        super()._run_once()
        if not self._stopping:
            self._world.run_due(self.now_s)


class WallClock:
    """The broker's clocks: elapsed time runs with the loop, and the wall clock beside it may be set. Clients' clocks
    are right.
    """

    def __init__(self, epoch_ms: int) -> None:
        self._epoch_ms = epoch_ms
        self.loop: SimLoop | None = None
        self._ahead_s = 0
        self.most_ahead_s = 0
        """The most seconds that the wall clock was ever ahead."""
        self._settings: list[tuple[float, int]] = [(0.0, 0)]
        """(since when, seconds ahead), ascending."""

    def set_by(self, seconds: int) -> None:
        """Set the wall clock so many seconds ahead of the right time; a negative number sets it back."""
        self._ahead_s = seconds
        self._settings.append((0.0 if self.loop is None else self.loop.now_s, seconds))
        self.most_ahead_s = max(self.most_ahead_s, seconds)

    def now_ms(self) -> int:
        assert self.loop is not None
        return self._epoch_ms + round((self.loop.now_s + self._ahead_s) * 1000)

    def ahead_since(self, since_s: float) -> tuple[int, int]:
        """The least and the most seconds that the wall clock was ahead from that time until now."""
        known = [ahead_s for at_s, ahead_s in self._settings if at_s >= since_s]
        known += [ahead_s for at_s, ahead_s in self._settings if at_s < since_s][-1:]
        return min(known), max(known)

    def when(self, stamp_ms: int) -> float:
        """The elapsed time at which ``now_ms`` returned the stamp."""
        seconds = (stamp_ms - self._epoch_ms) / 1000
        now_s = float("inf") if self.loop is None else self.loop.now_s
        ends = [since_s for since_s, _ in self._settings[1:]] + [now_s]
        for (since_s, ahead_s), end_s in reversed(list(zip(self._settings, ends, strict=True))):
            if since_s - 0.001 <= seconds - ahead_s <= end_s + 0.001:
                return seconds - ahead_s
        raise AssertionError(f"no clock showed {stamp_ms}")

    def now_s(self) -> float:
        assert self.loop is not None
        return self.loop.now_s
