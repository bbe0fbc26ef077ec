"""Turns of connections whose work together is too much for one round of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)


class RoundTurns:
    """Gives `most` turns in a round of the event loop, in the order of the requests. A turn of much work counts as
    several turns.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Callable[[], int]] = deque()
        self._scheduled = False
        self._at_once = 0

    def at_once(self, cost: int) -> bool:
        """Whether work that counts as `cost` turns may begin in this round, because no turn waits and other such work
        has left room; counts the work.
        """
        if self._waiting or self._at_once >= self._most:
            return False
        if not self._at_once:
            asyncio.get_running_loop().call_soon(self._next_round)
        self._at_once += cost
        return True

    def _next_round(self) -> None:
        self._at_once = 0

    def add(self, turn: Callable[[], int]) -> None:
        """Call `turn` in a later round; it returns the turns that its work counts as, 0 when its connection has nothing
        to do, or has ended.
        """
        self._waiting.append(turn)
        if not self._scheduled:
            self._schedule()

    async def wait(self) -> None:
        """Return when the caller has its turn."""
        future = asyncio.get_running_loop().create_future()

        def turn() -> bool:
            if future.done():  # cancelled
                return False
            future.set_result(None)
            return True

        self.add(turn)
        await future

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        left, count = self._most, len(self._waiting)
        while left > 0 and count:
            count -= 1
            try:
                left -= self._waiting.popleft()()
            except Exception:  # a bug in one turn must not hold the other connections
                log.exception("turn.failed")
        if self._waiting and not self._scheduled:
            self._schedule()
