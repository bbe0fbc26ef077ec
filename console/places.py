"""Places of requests that take much memory or time: a few at a time, and addresses get them in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Places", "TooManyWaitError"]


class TooManyWaitError(Exception):
    """As many requests wait as may."""


class Places:
    """Places for ``at_work`` requests, of an address ``of_address``. Of an address ``waiting_of_address`` more wait."""

    def __init__(self, at_work: int, of_address: int, waiting_of_address: int, waiting: int | None = None) -> None:
        """``waiting``: the most requests that wait in all; None: each address has its own bound alone."""
        self._at_work, self._of_address = at_work, of_address
        self._most_of_address, self._most = waiting_of_address, waiting
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address, in the order in which the addresses get their next places."""

    @contextlib.asynccontextmanager
    async def place(self, address: str) -> AsyncIterator[bool]:
        """Hold a place; the value is whether the request had to wait. Raises TooManyWaitError."""
        has_waited = await self.take(address)
        try:
            yield has_waited
        finally:
            self.leave(address)

    async def take(self, address: str) -> bool:
        """Take a place, which the caller gives up by ``leave``; return whether the request had to wait. Raises
        TooManyWaitError.
        """
        if self._has_room(address):
            self._held[address] += 1
            return False
        await self._wait(address)
        return True

    async def _wait(self, address: str) -> None:
        own = len(self._waiting.get(address, ()))
        if own >= self._most_of_address:
            raise TooManyWaitError
        if self._most is not None and sum(map(len, self._waiting.values())) >= self._most:
            raise TooManyWaitError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave(address)
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
        return self._held[address] < self._of_address and self._held.total() < self._at_work

    def leave(self, address: str) -> None:
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
