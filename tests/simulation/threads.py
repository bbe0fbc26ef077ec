"""The engine's threads on the virtual clock: work waits for its turn, takes time, and is reported later.

Between its start and its report the loop goes on, so other work, clients and crashes come in between as they do with
real threads. A lane stays serial and takes everything pending at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.twins.sim_files import SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random


class SimThreads:
    """``pace_s``: the average seconds of work; ``stalled_until_s``: no work begins earlier (a slow disk);
    ``held_until_s``: the latest time until which a slow disk has held work back.
    """

    def __init__(self, chance: Random, pace_s: float, on_crash: Callable[[], None]) -> None:
        self.chance = chance
        self.pace_s = pace_s
        self.stalled_until_s = self.held_until_s = 0.0
        self.on_crash = on_crash
        self.dead = False
        self.under_way = 0

    def lane(self, name: str, work: Any, done: Any, max_batch_bytes: int = 1 << 62) -> _Lane:
        return _Lane(self, work, done, max_batch_bytes)

    def pool(self, name: str, workers: int) -> _Pool:
        return _Pool(self)

    def together(self, job: Callable[[Any], None], items: Sequence[Any], workers: int) -> None:
        for item in items:
            job(item)

    def later(self, call: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self.chance.expovariate(1 / self.pace_s) if self.pace_s else 0.0
        stalled_s = max(0.0, self.stalled_until_s - loop.time())
        if stalled_s:
            self.held_until_s = max(self.held_until_s, self.stalled_until_s)  # a later fault may end sooner
        loop.call_later(wait_s + stalled_s, call)

    def run(self, work: Callable[[], Any]) -> tuple[Any, BaseException | None] | None:
        """Do the work and return (result, error); None when the process has ended."""
        if self.dead:
            return None
        try:
            return work(), None
        except SimulatedCrash:
            self.dead = True
            self.on_crash()
            return None
        except Exception as caught:
            return None, caught


class _Idle:
    """Waits until every submitted task is reported."""

    def __init__(self) -> None:
        self.open = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        while self.open:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def finish(self, count: int) -> None:
        self.open -= count
        if not self.open:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)


class _Lane:
    def __init__(self, threads: SimThreads, work: Any, done: Any, max_batch_bytes: int) -> None:
        self._threads, self._work, self._done, self._most = threads, work, done, max_batch_bytes
        self._pending: deque[tuple[Any, int]] = deque()
        self._idle = _Idle()
        self._running = False

    def submit(self, item: Any, size: int = 0) -> None:
        self._idle.open += 1
        self._pending.append((item, size))
        if not self._running:
            self._running = True
            self._threads.later(self._step)

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        await self._idle.wait()

    def _step(self) -> None:
        batch: list[Any] = []
        size = 0
        while self._pending and (not batch or size < self._most):
            item, item_size = self._pending.popleft()
            batch.append(item)
            size += item_size
        outcome = self._threads.run(lambda: self._work(batch))
        if outcome is not None:
            self._threads.later(lambda: self._report(batch, *outcome))

    def _report(self, batch: list[Any], result: Any, error: BaseException | None) -> None:
        if self._threads.dead:
            return
        self._running = bool(self._pending)
        if self._running:
            self._threads.later(self._step)
        try:
            self._done(batch, result, error)
        finally:
            self._idle.finish(len(batch))


class _Pool:
    def __init__(self, threads: SimThreads) -> None:
        self._threads = threads
        self._idle = _Idle()

    def run(self, job: Any, done: Any) -> None:
        self._idle.open += 1
        self._threads.later(lambda: self._step(job, done))

    async def close(self) -> None:
        await self._idle.wait()

    def _step(self, job: Any, done: Any) -> None:
        outcome = self._threads.run(job)
        if outcome is not None:
            self._threads.later(lambda: self._report(done, *outcome))

    def _report(self, done: Any, result: Any, error: BaseException | None) -> None:
        if self._threads.dead:
            return
        try:
            done(result, error)
        finally:
            self._idle.finish(1)
