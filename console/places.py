"""Places of the requests whose page is made: a few at a time, and addresses get them in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Places", "TooManyWaitError"]

AT_WORK: Final = 4
AT_WORK_OF_ADDRESS: Final = 3
MOST_WAITING: Final = 256
MOST_WAITING_OF_ADDRESS: Final = 64
"""The most requests that are worked on, and that wait, in all and of an address: they bound the console's memory."""


class TooManyWaitError(Exception):
    """As many requests wait as may."""


class Places:
    """The places of one console."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address, in the order in which the addresses get their next places."""

    @contextlib.asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[None]:
        """Hold a place, after a wait for it. Raises TooManyWaitError."""
        if self._has_room(address):
            self._held[address] += 1
        else:
            await self._wait(address)
        try:
            yield
        finally:
            self._leave(address)

    async def _wait(self, address: str) -> None:
        own = len(self._waiting.get(address, ()))
        if own >= MOST_WAITING_OF_ADDRESS or sum(map(len, self._waiting.values())) >= MOST_WAITING:
            raise TooManyWaitError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave(address)
            else:
                self._forget(address, turn)
            raise

    def _forget(self, address: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[address]

    def _has_room(self, address: str) -> bool:
        return self._held[address] < AT_WORK_OF_ADDRESS and self._held.total() < AT_WORK

    def _leave(self, address: str) -> None:
        """Give up a place; the next request of the first address with room for it gets a place."""
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
        for other in list(self._waiting):
            if not self._has_room(other):
                continue
            waiting = self._waiting.pop(other)
            turn = next((each for each in waiting if not each.done()), None)
            if turn is not None:
                waiting.remove(turn)
                self._held[other] += 1
                turn.set_result(None)
            if waiting:
                self._waiting[other] = waiting  # behind the other addresses
