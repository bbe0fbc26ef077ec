"""Worker processes that topics share fairly: topics take turns, and a topic has at most a quarter of the workers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.foreign_entries.worker_process import WorkerError, WorkerProcess, WorkerTimeoutError
from magnetar.broker.tasks import TaskSet
from magnetar.converters.outcome import ConversionFailure, FailureReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.foreign_entries.frames import Answer

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Job:
    topic: str
    converter: str
    entry: bytes
    done: asyncio.Future[Answer]


class WorkerPool:
    """Converts submitted entries. The pool starts a worker when an entry waits and no worker is idle, up to `size`."""

    def __init__(self, size: int, timeout_s: float, new_worker: Callable[[], WorkerProcess]) -> None:
        self.size = size
        self.share = max(1, size // 4)
        """The number of workers that a topic may use at a time."""
        self._timeout_s = timeout_s
        self._new_worker = new_worker
        self._tasks = TaskSet()
        self._idle: list[WorkerProcess] = []
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._running: dict[str, int] = {}
        self._closed = False

    @property
    def busy(self) -> int:
        """The number of workers that convert an entry now."""
        return sum(self._running.values())

    def adopt(self, worker: WorkerProcess) -> None:
        """Add an idle worker that the caller has started."""
        self._idle.append(worker)

    def submit(self, topic: str, converter: str, entry: bytes) -> asyncio.Future[Answer]:
        """Convert `entry` when it is the topic's turn. A failure is a ConversionFailure, not an exception of the
        future; `close` cancels the future.
        """
        job = _Job(topic, converter, entry, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(topic, deque()).append(job)
        self._pump()
        return job.done

    def _pump(self) -> None:
        while not self._closed and self.busy < self.size and (job := self._next()) is not None:
            self._running[job.topic] = self._running.get(job.topic, 0) + 1
            self._tasks.spawn(self._run(job), "converting.worker")

    def _next(self) -> _Job | None:
        """Take the first job of the next topic below its share, and move that topic behind the others."""
        for topic, jobs in self._waiting.items():
            if self._running.get(topic, 0) < self.share:
                job = jobs.popleft()
                if jobs:
                    self._waiting.move_to_end(topic)
                else:
                    del self._waiting[topic]
                return job
        return None

    async def _run(self, job: _Job) -> None:
        worker = self._idle.pop() if self._idle else self._new_worker()
        answer: Answer | None = None
        try:
            answer = await worker.convert(job.entry, self._timeout_s)
            self._idle.append(worker)
        except WorkerError as error:
            log.warning("converting.worker_lost", topic=job.topic, converter=job.converter, reason=str(error))
            reason = FailureReason.TIMEOUT if isinstance(error, WorkerTimeoutError) else FailureReason.EXCEPTION
            answer = ConversionFailure(reason, job.converter, str(error), defect=error.started)
        finally:
            self._running[job.topic] -= 1
            if not self._running[job.topic]:
                del self._running[job.topic]
            if not job.done.done():
                if answer is None:
                    job.done.cancel()
                else:
                    job.done.set_result(answer)
            self._pump()

    async def close(self) -> None:
        """Cancel all jobs, and end the worker processes. Every process has ended on return."""
        self._closed = True
        for jobs in self._waiting.values():
            for job in jobs:
                job.done.cancel()
        self._waiting.clear()
        await self._tasks.close()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.close() for worker in idle))
