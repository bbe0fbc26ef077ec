"""Threads that take turns at file operations, in an order that a seed decides: every run of a seed is the same.

Each piece of work runs in a thread of its own, but only one thread runs at a time: a worker stops before each operation of
the simulated disk, and the loop lets a waiting worker continue to its next operation. So two lanes meet at every place
where the system could switch between them, and a crash comes at an exact operation.

The creation of a file is no such place: the engine holds a lock meanwhile.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.twins.sim_files import SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.twins.sim_files import SimDisk

__all__ = ["InterleavingThreads"]

_UNDER_LOCK = frozenset({"create"})


class _Worker:
    """One piece of work, stopped before each of its operations."""

    def __init__(
        self, turns: _Turns, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._turns, self._work, self._done = turns, work, done
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.finished = False
        self._result: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._main, name="simulated", daemon=True).start()

    def advance(self) -> None:
        """Called by the loop: let the work run to its next operation, or to its end."""
        self._go.release()
        self._stopped.acquire()

    def stop(self) -> None:
        """Called by the worker before an operation: wait for the next turn."""
        self._stopped.release()
        self._go.acquire()

    def tell(self) -> None:
        """Called by the loop: report the result. Raises SimulatedCrash, without a report, after a crash."""
        if isinstance(self._error, SimulatedCrash):
            raise self._error
        self._done(self._result, self._error)

    def _main(self) -> None:
        self._go.acquire()
        self._turns.current.worker = self
        try:
            self._result = self._work()
        except BaseException as caught:
            self._error = caught
        self.finished = True
        self._stopped.release()


class _Turns:
    """The order of turns."""

    def __init__(self, disk: SimDisk, seed: int) -> None:
        self.current = threading.local()
        self._chance = random.Random(seed)
        self._waiting: list[_Worker] = []
        self._disk = disk
        disk.before_step = self._before_step

    def begin(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._waiting.append(_Worker(self, work, done))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._tick)

    def _before_step(self, kind: str) -> None:
        worker = getattr(self.current, "worker", None)
        if worker is not None and kind not in _UNDER_LOCK:
            worker.stop()

    def _tick(self) -> None:
        """Let some of the waiting workers continue; sometimes none of them."""
        try:
            for _ in range(self._chance.choice((0, 1, 1, 2, 5))):
                if self._waiting:
                    self._advance(self._chance.choice(self._waiting))
        finally:
            if self._disk.crashed:
                self._end()
            elif self._waiting:
                asyncio.get_running_loop().call_soon(self._tick)

    def _advance(self, worker: _Worker) -> None:
        worker.advance()
        if worker.finished:
            self._waiting.remove(worker)
            worker.tell()

    def _end(self) -> None:
        """Run the waiting workers to their end: after a crash each next operation on the disk fails."""
        waiting, self._waiting = self._waiting, []
        for worker in waiting:
            while not worker.finished:
                worker.advance()


class _Lane:
    def __init__(self, turns: _Turns, work: Any, done: Any, max_batch_bytes: int) -> None:
        self._turns, self._work, self._done, self._max_batch_bytes = turns, work, done, max_batch_bytes
        self._pending: deque[tuple[Any, int]] = deque()
        self._busy = False
        self._submitted = self._finished = 0
        self._idle: list[tuple[int, asyncio.Future[None]]] = []

    def submit(self, item: Any, size: int = 0) -> None:
        self._submitted += 1
        self._pending.append((item, size))
        self._begin()

    async def wait_idle(self) -> None:
        if self._finished < self._submitted:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append((self._submitted, future))
            await future

    async def close(self) -> None:
        await self.wait_idle()

    def _begin(self) -> None:
        if self._busy or not self._pending:
            return
        self._busy = True
        batch: list[Any] = []
        size = 0
        while self._pending and (not batch or size < self._max_batch_bytes):
            item, item_size = self._pending.popleft()
            batch.append(item)
            size += item_size

        def done(result: Any, error: BaseException | None) -> None:
            self._busy = False
            self._begin()
            try:
                self._done(batch, result, error)
            finally:
                self._finished += len(batch)
                ready = [future for target, future in self._idle if target <= self._finished]
                self._idle = [(target, future) for target, future in self._idle if target > self._finished]
                for future in ready:
                    if not future.done():
                        future.set_result(None)

        self._turns.begin(lambda: self._work(batch), done)


class _Pool:
    def __init__(self, turns: _Turns) -> None:
        self._turns = turns
        self._running = 0
        self._idle: list[asyncio.Future[None]] = []

    def run(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._running += 1

        def ended(result: Any, error: BaseException | None) -> None:
            self._running -= 1
            try:
                done(result, error)
            finally:
                waiting, self._idle = (self._idle, []) if not self._running else ([], self._idle)
                for future in waiting:
                    future.set_result(None)

        self._turns.begin(job, ended)

    async def close(self) -> None:
        if self._running:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future


class InterleavingThreads:
    """``Threads`` of one simulated process on ``disk``."""

    def __init__(self, disk: SimDisk, seed: int) -> None:
        self._turns = _Turns(disk, seed)

    def lane(self, name: str, work: Any, done: Any, max_batch_bytes: int = 1 << 62) -> Any:
        return _Lane(self._turns, work, done, max_batch_bytes)

    def pool(self, name: str, workers: int) -> Any:
        return _Pool(self._turns)

    def together(self, job: Any, items: Any, workers: int) -> None:
        for item in items:
            job(item)
