"""The one door for background work: every task is held, its failure logged, and it ends when its owner closes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = structlog.get_logger(__name__)
_uninterrupted: set[asyncio.Task[None]] = set()


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Await `work`; when this is cancelled meanwhile, `work` goes on to its end all the same.

    For changes of the metadata store: one that is written and then not taken note of looks like another owner's.
    """
    task = asyncio.get_running_loop().create_task(work)
    _uninterrupted.add(task)
    task.add_done_callback(_ended)
    await asyncio.shield(task)


def _ended(task: asyncio.Task[None]) -> None:
    _uninterrupted.discard(task)
    if not task.cancelled():
        task.exception()  # whoever waits has it; when nobody does any more, nobody needs it


class TaskSet:
    """Tasks of one owner. `spawn` starts one, `close` cancels and awaits what is left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `coroutine` as a task named `name`; an exception that reaches its end is logged as a bug."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task.failed", task=task.get_name(), exc_info=error)

    async def settle(self) -> None:
        """Wait until all have ended by themselves; when that is cancelled, they are too."""
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await self.close()

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended; safe to call twice."""
        current = asyncio.current_task()
        tasks = [t for t in self._tasks if t is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
