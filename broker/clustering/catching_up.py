"""Has memory catch up with the metadata store for requests with unknown names, at one time for all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.errors import ServiceNotReadyError
from magnetar.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.broker.tasks import TaskSet

__all__ = ["CatchingUp"]

log = structlog.get_logger(__name__)
_WITHIN_S: Final = 10.0
"""The longest run. A request waits for the run that is under way and for its own: less than clients wait."""


class CatchingUp:
    """Runs ``catch_up`` as often as requests need it, one run at a time: the requests that come during a run share the
    next run, since the run may have begun before the change that they ask about.
    """

    def __init__(self, catch_up: Callable[[], Awaitable[None]], tasks: TaskSet) -> None:
        self._catch_up = catch_up
        self._tasks = tasks
        self._next: asyncio.Future[str] | None = None
        """The end of the run that has not begun yet: the reason of its failure, or an empty text."""
        self._is_running = False

    async def wait(self) -> None:
        """Return when memory has every change that was complete before the call. Raises ServiceNotReadyError if the
        metadata store does not answer.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if not self._is_running:
                self._is_running = True
                self._tasks.spawn(self._run(), "clustering.catching_up")
        if problem := await asyncio.shield(self._next):
            raise ServiceNotReadyError(problem)

    async def _run(self) -> None:
        run: asyncio.Future[str] | None = None
        try:
            while (run := self._next) is not None:
                self._next = None
                run.set_result(await self._problem())
        finally:
            self._is_running = False
            for left in (run, self._next):
                if left is not None and not left.done():
                    left.set_result("The broker is stopping")
            self._next = None

    async def _problem(self) -> str:
        """The reason why a run has failed; an empty text if it has not."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._catch_up()
        except (StorageError, TimeoutError) as error:
            log.warning("cluster.not_caught_up", reason=str(error) or f"no end within {_WITHIN_S:g} s")
            return "The metadata store does not answer"
        return ""
