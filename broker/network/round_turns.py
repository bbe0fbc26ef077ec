"""Turns of connections whose work together is too much for one round of the event loop.

Addresses get turns one after the other: beside hundreds of connections of an address, a connection of another address
waits for one turn of each address.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)


def host_of(transport: asyncio.BaseTransport) -> str:
    """The address of the peer without its port; empty for a peer without such an address."""
    peer = transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else ""


class RoundTurns:
    """Gives `most` turns in a round of the event loop, to the addresses one after the other, and to the connections of
    an address in the order of their requests. A turn of much work counts as several turns.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[str, deque[Callable[[], int]]] = {}
        """By address, in the order in which the addresses get their next turns."""
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

    def add(self, turn: Callable[[], int], address: str = "") -> None:
        """Call `turn` of a connection of this address in a later round; it returns the turns that its work counts as, 0
        when its connection has nothing to do, or has ended.
        """
        self._waiting.setdefault(address, deque()).append(turn)
        if not self._scheduled:
            self._schedule()

    async def wait(self, address: str = "") -> None:
        """Return when the caller, a connection of this address, has its turn."""
        future = asyncio.get_running_loop().create_future()

        def turn() -> bool:
            if future.done():  # cancelled
                return False
            future.set_result(None)
            return True

        self.add(turn, address)
        await future

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._scheduled = False
        left, count = self._most, sum(map(len, self._waiting.values()))
        while left > 0 and count:
            count -= 1
            turn = self._take()
            try:
                left -= turn()
            except Exception:  # a bug in one turn must not hold the other connections
                log.exception("turn.failed")
        if self._waiting and not self._scheduled:
            self._schedule()

    def _take(self) -> Callable[[], int]:
        """Remove the next turn; the other turns of its address follow those of the other addresses."""
        address = next(iter(self._waiting))
        turns = self._waiting.pop(address)
        turn = turns.popleft()
        if turns:
            self._waiting[address] = turns
        return turn
