"""An event loop whose time passes only while no callback is ready: a minute of waiting takes no real time, and the same
calls give the same history.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from typing import Any


class VirtualLoop(asyncio.BaseEventLoop):
    """Time stands still while callbacks are ready; work for executors runs at once, on the loop. There are no sockets.

    Callbacks with the same time run in the order of the calls that made them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.problems: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _loop, context: self.problems.append(context))
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self.now_s

    def run_in_executor(self, executor, func, *args):
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    def next_s(self) -> float | None:
        """The time of the next callback that is not cancelled; None without one."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def wait(self) -> None:
        """Move time to the next callback; called while none is ready."""
        due_s = self.next_s()
        if due_s is None:
            raise RuntimeError("everything waits and nothing is left that could happen")
        self.now_s = max(self.now_s, due_s)

    # --- parts that asyncio.BaseEventLoop leaves to subclasses, and its turn without sockets and tolerance of clocks
    # ---

    def call_at(self, when, callback, *args, context=None):
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle) -> None:
        """Do nothing: the loop skips a cancelled handle when its time comes."""

    def _write_to_self(self) -> None:
        """Wake no `select`: this loop never sleeps."""

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            self.wait()
        while timers and timers[0][0] <= self.now_s:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        handle = timer = None  # as in asyncio: an error whose traceback ends in this frame would be in a cycle


class EarlyLoop(VirtualLoop):
    """A loop whose timers run up to a millisecond before their time, as those of real event loops do."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(11)

    def call_at(self, when, callback, *args, context=None):
        early_s = self._chance.choice((0.0, 0.0005, 0.000999))
        return super().call_at(max(self.now_s, when - early_s), callback, *args, context=context)


class LoopClock:
    """The storage's `Clock`, running with the loop; the wall clock begins in November 2023."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.now_s * 1000 + 1e-6)

    def now_s(self) -> float:
        return self._loop.now_s
