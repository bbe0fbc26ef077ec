"""The only place of the room that starts tasks: holds each task, logs unexpected errors, ends tasks with their
owner.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.errors import BookKeeperError, ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Background"]

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Background:
    """Tasks of one owner. After ``close`` no task runs, ``start`` returns None, and tasks of ``awaited`` fail."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}  # cancelled in the order of their start
        self._unbegun: set[asyncio.Task[Any]] = set()
        """Tasks of ``awaited`` before their first step, where a cancellation could not become a typed error."""
        self.is_closed = False

    def start(self, work: Coroutine[object, object, None], what: str) -> asyncio.Task[None] | None:
        """Run the coroutine as a task. A BookKeeperError that ends the task is expected: logged without a traceback."""
        if self.is_closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name} {what}")
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def awaited(self, work: Coroutine[object, object, T], what: str) -> asyncio.Task[T]:
        """Run a task for a caller, which receives its result or failure; ClientClosedError when ``close`` ends it."""
        task = asyncio.get_running_loop().create_task(self._until_closed(work), name=f"{self._name} {what}")
        self._tasks[task] = None
        self._unbegun.add(task)
        task.add_done_callback(partial(self._forget, work))
        return task

    async def _until_closed(self, work: Coroutine[object, object, T]) -> T:
        task = asyncio.current_task()
        assert task is not None, "``awaited`` has made it"
        self._unbegun.discard(task)
        if self.is_closed:
            raise ClientClosedError("the client is closed")
        try:
            return await work
        except asyncio.CancelledError:
            if self.is_closed:
                raise ClientClosedError("the client is closed") from None
            raise

    async def close(self) -> None:
        """Cancel the running tasks and wait for their end. Idempotent."""
        self.is_closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            if task not in self._unbegun:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, work: Coroutine[object, object, object], task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        self._unbegun.discard(task)
        work.close()  # without effect unless the task ended before its first step
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
