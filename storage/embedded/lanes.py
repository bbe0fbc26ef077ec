"""Lanes and pools of threads. A *lane* is one serial worker that takes all pending items together (group commit); a
*pool* runs independent jobs. ``RealThreads`` uses threads; ``InlineThreads`` runs all work on the loop in order, so
a test is deterministic and a simulated crash stops at an exact file operation.

Rules: ``work`` runs in the thread and touches only its arguments. ``done`` runs on the loop, once per batch, in the
order of the batches, and gets every error of ``work``.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Idle", "InlineThreads", "Lane", "Pool", "RealThreads", "Threads"]

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)

Work = "Callable[[list[T]], R]"


class Lane(Protocol[T_contra]):
    """Serial worker."""

    def submit(self, item: T_contra, size: int = 0) -> None: ...

    async def wait_idle(self) -> None:
        """Wait until every item submitted before this call is done."""
        ...

    async def close(self) -> None:
        """Finish the submitted jobs, then stop. Idempotent."""
        ...


class Pool(Protocol):
    """Independent jobs."""

    def run(self, job: Callable[[], R], done: Callable[[R | None, BaseException | None], None]) -> None: ...

    async def close(self) -> None: ...


class Threads(Protocol):
    """Maker of lanes and pools."""

    def lane(
        self,
        name: str,
        work: Callable[[list[T]], R],
        done: Callable[[list[T], R | None, BaseException | None], None],
        max_batch_bytes: int = 1 << 62,
    ) -> Lane[T]: ...

    def pool(self, name: str, workers: int) -> Pool: ...

    def together(self, job: Callable[[T], None], items: Sequence[T], workers: int) -> None:
        """Call the job for each item, from a thread of a lane, several at a time; return when all have ended. After an
        error no further items begin; raises the first.
        """
        ...


class Idle:
    """Counts operations under way and wakes the tasks that wait for their end. Loop side only."""

    def __init__(self) -> None:
        self.submitted = 0
        self.finished = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self) -> None:
        if self.finished < self.submitted:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self.submitted, future))
            await future

    def finish(self, count: int) -> None:
        self.finished += count
        if self._waiting:
            ready = [future for target, future in self._waiting if target <= self.finished]
            self._waiting = [(target, future) for target, future in self._waiting if target > self.finished]
            for future in ready:
                if not future.done():
                    future.set_result(None)


class _ThreadLane(Generic[T, R]):
    def __init__(
        self,
        name: str,
        work: Callable[[list[T]], R],
        done: Callable[[list[T], R | None, BaseException | None], None],
        max_batch_bytes: int,
    ) -> None:
        self._work, self._done, self._max_batch_bytes = work, done, max_batch_bytes
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[T, int] | None] = SimpleQueue()
        self._idle = Idle()
        self._name = name
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, item: T, size: int = 0) -> None:
        self._idle.submitted += 1
        if self._thread is None:  # a lane without items has no thread
            thread = threading.Thread(target=self._run, name=f"magnetar-{self._name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system gives the process no further thread
                self._loop.call_soon(self._finish, [item], None, error)
                return
            self._thread = thread
        self._queue.put((item, size))

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        await self._idle.wait()
        thread, self._thread = self._thread, None
        if thread is not None and not self._closed:
            self._closed = True
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, stop = self._gather(first)
            result, error = None, None
            try:
                result = self._work(batch)
            except BaseException as caught:  # noqa: BLE001 - the flusher's door: it reports every failure to the loop
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop is closed: no receiver is left
                self._loop.call_soon_threadsafe(self._finish, batch, result, error)
            if stop:
                return

    def _gather(self, first: tuple[T, int]) -> tuple[list[T], bool]:
        batch, size = [first[0]], first[1]
        with contextlib.suppress(Empty):
            while size < self._max_batch_bytes:
                more = self._queue.get_nowait()
                if more is None:
                    return batch, True
                batch.append(more[0])
                size += more[1]
        return batch, False

    def _finish(self, batch: list[T], result: R | None, error: BaseException | None) -> None:
        try:
            self._done(batch, result, error)
        finally:
            self._idle.finish(len(batch))


class _ThreadPool:
    def __init__(self, name: str, workers: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Callable[[], Any], Callable[[Any, Any], None]] | None] = SimpleQueue()
        self._idle = Idle()
        self._name, self._workers = name, workers
        self._threads: list[threading.Thread] = []

    def run(self, job: Callable[[], R], done: Callable[[R | None, BaseException | None], None]) -> None:
        # Threads start when the work comes: a broker without cold reads never has them.
        if len(self._threads) < self._workers and self._idle.submitted - self._idle.finished >= len(self._threads):
            thread = threading.Thread(target=self._run, name=f"magnetar-{self._name}-{len(self._threads)}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system gives the process no further thread
                if not self._threads:
                    self._idle.submitted += 1
                    self._loop.call_soon(self._finish, done, None, error)
                    return
            else:
                self._threads.append(thread)
        self._idle.submitted += 1
        self._queue.put((job, done))

    async def close(self) -> None:
        await self._idle.wait()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            job, done = task
            result, error = None, None
            try:
                result = job()
            except BaseException as caught:  # noqa: BLE001 - passed to the loop
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop is gone
                self._loop.call_soon_threadsafe(self._finish, done, result, error)

    def _finish(self, done: Callable[[Any, Any], None], result: object, error: BaseException | None) -> None:
        try:
            done(result, error)
        finally:
            self._idle.finish(1)


class RealThreads:
    """One thread per lane, up to ``workers`` threads per pool; all daemons, so a stuck disk cannot keep the process."""

    def lane(
        self,
        name: str,
        work: Callable[[list[T]], R],
        done: Callable[[list[T], R | None, BaseException | None], None],
        max_batch_bytes: int = 1 << 62,
    ) -> Lane[T]:
        return _ThreadLane(name, work, done, max_batch_bytes)

    def pool(self, name: str, workers: int) -> Pool:
        return _ThreadPool(name, workers)

    def together(self, job: Callable[[T], None], items: Sequence[T], workers: int) -> None:
        left: SimpleQueue[T] = SimpleQueue()
        for item in items:
            left.put(item)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                while not errors:
                    job(left.get_nowait())
            except Empty:
                pass
            except BaseException as caught:  # noqa: BLE001 - raised by the caller
                errors.append(caught)

        threads = [threading.Thread(target=run, name=f"magnetar-together-{n}", daemon=True) for n in range(1, workers)]
        started = []
        for thread in threads:
            with contextlib.suppress(RuntimeError):  # the system gives the process no further thread
                thread.start()
                started.append(thread)
        run()
        for thread in started:
            thread.join()
        if errors:
            raise errors[0]


class _InlineLane(Generic[T, R]):
    def __init__(
        self,
        work: Callable[[list[T]], R],
        done: Callable[[list[T], R | None, BaseException | None], None],
        max_batch_bytes: int,
    ) -> None:
        self._work, self._done, self._max_batch_bytes = work, done, max_batch_bytes
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[T, int]] = deque()
        self._scheduled = False
        self._idle = Idle()

    def submit(self, item: T, size: int = 0) -> None:
        self._idle.submitted += 1
        self._pending.append((item, size))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._step)

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        await self._idle.wait()

    def _step(self) -> None:
        batch: list[T] = []
        size = 0
        while self._pending and (not batch or size < self._max_batch_bytes):
            item, item_size = self._pending.popleft()
            batch.append(item)
            size += item_size
        result, error = None, None
        try:
            result = self._work(batch)
        except Exception as caught:  # noqa: BLE001 - passed to ``done`` as the thread's lane does; a crash passes through
            error = caught
        self._scheduled = bool(self._pending)
        if self._scheduled:
            self._loop.call_soon(self._step)
        try:
            self._done(batch, result, error)
        finally:
            self._idle.finish(len(batch))


class _InlinePool:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = Idle()

    def run(self, job: Callable[[], R], done: Callable[[R | None, BaseException | None], None]) -> None:
        self._idle.submitted += 1
        self._loop.call_soon(self._step, job, done)

    async def close(self) -> None:
        await self._idle.wait()

    def _step(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        result, error = None, None
        try:
            result = job()
        except Exception as caught:  # noqa: BLE001 - passed to ``done``
            error = caught
        try:
            done(result, error)
        finally:
            self._idle.finish(1)


class InlineThreads:
    """No threads: each lane and pool does its work in turns of the loop."""

    def lane(
        self,
        name: str,  # noqa: ARG002 - the name of a thread
        work: Callable[[list[T]], R],
        done: Callable[[list[T], R | None, BaseException | None], None],
        max_batch_bytes: int = 1 << 62,
    ) -> Lane[T]:
        return _InlineLane(work, done, max_batch_bytes)

    def pool(self, name: str, workers: int) -> Pool:  # noqa: ARG002 - nothing to size
        return _InlinePool()

    def together(self, job: Callable[[T], None], items: Sequence[T], workers: int) -> None:  # noqa: ARG002
        for item in items:
            job(item)
