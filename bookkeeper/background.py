"""The only place of the room that starts tasks: holds each task, logs unexpected errors, ends tasks with their
owner.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.errors import BookKeeperError

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Background"]

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Background:
    """Tasks of one owner. After ``close`` no task runs, ``start`` returns None, and ``awaited`` cancels its task."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}  # cancelled in the order of their start
        self._closed = False

    def start(self, work: Coroutine[object, object, None], what: str) -> asyncio.Task[None] | None:
        """Run the coroutine as a task. A BookKeeperError that ends the task is expected: logged without a traceback."""
        if self._closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {what}")
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def awaited(self, work: Coroutine[object, object, T], what: str) -> asyncio.Task[T]:
        """Run a task for a caller, which receives its result or failure; ``close`` ends the task with all others."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {what}")
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        if self._closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """Cancel the running tasks and wait for their end. Idempotent."""
        self._closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # mark as retrieved: the caller may have been cancelled

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, BookKeeperError):
            log.warning(events.BACKGROUND_FAILED, task=task.get_name(), error=str(error))
        elif error is not None:
            log.error(events.BACKGROUND_CRASHED, task=task.get_name(), exc_info=error)
