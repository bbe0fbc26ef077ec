"""The only place that starts background work: holds every task, logs its failure, and ends it when its owner closes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = structlog.get_logger(__name__)
T = TypeVar("T")
_awaited: set[asyncio.Task[Any]] = set()


def awaited(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a task that the caller awaits. The module holds the task until it ends, even if the caller is cancelled. A
    failure goes to the caller; it is dropped if the caller was cancelled.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    _awaited.add(task)
    task.add_done_callback(_ended)
    return task


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Await `work`, which runs to its end even if the caller is cancelled meanwhile.

    For changes of the metadata store: a written change that this process has not recorded looks like a change by
    another owner.
    """
    await asyncio.shield(awaited(work, "uninterrupted"))


def _ended(task: asyncio.Task[Any]) -> None:
    _awaited.discard(task)
    if not task.cancelled():
        task.exception()  # mark as retrieved, else asyncio logs the error


class TaskSet:
    """The tasks of an owner. `spawn` starts a task, `close` cancels and awaits the remaining tasks."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # cancelled in the order of their start

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `coroutine` as a task named `name`; an exception that reaches its end is logged as a bug."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, MemoryError):
                raise error  # to the event loop's exception handler
            log.error("task.failed", task=task.get_name(), exc_info=error)

    async def settle(self) -> None:
        """Wait until all tasks have ended by themselves; if the wait is cancelled, cancel the tasks."""
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel the running tasks and wait for their end; safe to call twice."""
        current = asyncio.current_task()
        tasks = [t for t in self._tasks if t is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001 - asyncio calls it so
    """An exception handler of the event loop: an error of a timer or a callback is logged as a bug and stops no other
    work.
    """
    log.error("loop.failed", reason=context.get("message"), exc_info=context.get("exception"))
