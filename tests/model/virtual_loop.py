"""An event loop whose time passes only when nothing else is to be done: a minute of waiting costs nothing, and the same
calls give the same history.
"""

from __future__ import annotations

import asyncio
import selectors


class _NoSockets(selectors.SelectSelector):
    """Nothing ever arrives; waiting moves the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("everything waits and nothing is left that could happen")
        self.now_s += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while there is work; what would go to a thread is done on the spot."""

    def __init__(self) -> None:
        self._clock = _NoSockets()
        super().__init__(self._clock)
        self.problems: list[dict] = []
        self.set_exception_handler(lambda _loop, context: self.problems.append(context))

    def time(self) -> float:
        return self._clock.now_s

    def run_in_executor(self, executor, func, *args):
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    def _write_to_self(self) -> None:
        """Nobody sleeps in `select`."""


class LoopClock:
    """The storage's `Clock`, running with the loop; the wall clock begins in November 2023."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self._loop.time() * 1000)

    def now_s(self) -> float:
        return self._loop.time()
