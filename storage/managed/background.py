"""Background tasks of storage on the event loop: keeps references to the tasks, logs failures, waits at close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from magnetar.storage import events
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Background"]

log = structlog.get_logger(__name__)
T = TypeVar("T")


class Background:
    """Tasks of one managed ledger (or of a factory)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, work: Coroutine[object, object, None], what: str) -> None:
        """Run the coroutine as a task. A StorageError is an expected failure: it is logged without a traceback."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {what}")
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def begun(self, work: Coroutine[object, object, T], what: str) -> asyncio.Task[T]:
        """Run the coroutine as a task, whose owner awaits its result; a failure that no caller gets is not logged."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {what}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def together(self, *works: Coroutine[object, object, Any]) -> list[Any]:
        """Await the coroutines, which run at the same time, and return their results. Behind a failure, or for a
        cancelled caller, the others are cancelled, and have ended when the error is raised.
        """
        tasks = [self.begun(work, "together") for work in works]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise

    async def uninterrupted(self, work: Coroutine[object, object, T], what: str) -> T:
        """Await the coroutine, which runs to its end even if the caller is cancelled meanwhile.

        A stored change of the list that this process has not recorded looks like a change by another owner. Behind a
        cancellation of the caller a failure is logged, as that of a task of ``start``.
        """
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {what}")
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._done)
            raise

    async def wait_idle(self) -> None:
        """Wait until no task runs, including tasks started meanwhile."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._forget(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved, else asyncio logs the error

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._forget(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, StorageError):
            log.warning(events.BACKGROUND_FAILED, task=task.get_name(), error=str(error))
        elif isinstance(error, MemoryError):
            raise error  # to the event loop's exception handler
        elif error is not None:
            log.error(events.BACKGROUND_CRASHED, task=task.get_name(), exc_info=error)
