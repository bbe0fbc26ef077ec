"""How many commands of all connections the broker handles in a round of the event loop.

Each connection handles some hundred commands in its turn. If fifty connections send requests without waiting for the
answers, or hundreds send PINGs, the messages of all other clients wait for as many turns, several times.

The connections that wait share the rounds fairly, as the packets of fair queueing do: in a time that counts commands, a
turn starts where the last turn of its connection ended, or now if that has passed, and the turn with the earliest end
is next. Now is the latest start of the turns that have begun, and goes on with their commands, divided by the number of
connections that wait, so that connections that come anew hold up no other for ever. So a command of a few KiB passes
turns of hundreds of commands, however many connections wait with such turns.
"""

from __future__ import annotations

import asyncio
import itertools
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

log = structlog.get_logger(__name__)
REQUESTS_IN_ONE_ROUND = 64
COMMANDS_OF_A_REQUEST = 16
"""Commands that are done within their call, and together take about as long as a request that has to wait."""
FEW_REQUESTS = 16
"""Requests that a connection begins in any round, however many other connections begin."""
LARGE_COMMAND_BYTES = 512
"""From this size on a command, for example an acknowledgement of many messages, counts by its bytes."""
_BYTES_OF_A_COMMAND = 256
PATTERN_COMMANDS = 256
"""Commands that a pattern which waits for its turn is counted as: four of them are compiled in a round."""
_COMMANDS_IN_ONE_ROUND = REQUESTS_IN_ONE_ROUND * COMMANDS_OF_A_REQUEST
_ENTRIES_OF_A_REQUEST = 512
_SLOWER = 4
"""Time goes by so much slower than even shares would make it: a new connection with few commands comes early."""


def request_cost(entries: int) -> int:
    """Count a request that moves so many entries in commands: tens of thousands of entries fill a round."""
    return COMMANDS_OF_A_REQUEST * (1 + entries // _ENTRIES_OF_A_REQUEST)


def cost_of(items: Iterable[Sequence[Any]]) -> int:
    """Count the work of the commands and runs of a turn, as far as a round has room for it."""
    cost = 0
    for item in items:
        large = len(item) == 2 and len(item[1]) >= LARGE_COMMAND_BYTES
        cost += len(item[1]) // _BYTES_OF_A_COMMAND if large else 1
        if cost >= _COMMANDS_IN_ONE_ROUND:
            break
    return cost


class RequestTurns:
    """Counts the commands of a round, and holds the connections that wait for a later round."""

    def __init__(self) -> None:
        self.round = 0
        """Changes between two rounds in which commands count."""
        self._done = 0
        """Commands of this round, a request counted as COMMANDS_OF_A_REQUEST."""
        self.waiting: list[tuple[float, int, Callable[[], None], int]] = []
        """A heap of the connections that wait for a later round: the ends of their turns, and the commands of each."""
        self._numbers = itertools.count()
        self._now = self._last_end = 0.0
        """The present time of the turns, and the end of the turn that began last."""
        self._ends: dict[object, float] = {}
        """Ends of the last turns of connections, but for those that have passed."""
        self._scheduled = False

    def takes(self, loop: asyncio.AbstractEventLoop, size: int) -> bool:
        """Count a command of so many bytes; return whether the round has room for it. A command that waits for a later
        round finds room in its turn.
        """
        if self._done >= _COMMANDS_IN_ONE_ROUND:
            return False
        self.count(loop, size // _BYTES_OF_A_COMMAND)
        return True

    def count(self, loop: asyncio.AbstractEventLoop, commands: int = COMMANDS_OF_A_REQUEST) -> bool:
        """Count a request that begins, or some commands; return whether the round has as many as it may."""
        self._done += commands
        if not self._scheduled:
            self._schedule(loop)
        return self._done >= _COMMANDS_IN_ONE_ROUND

    def wait(
        self,
        go_on: Callable[[], None],
        commands: int = FEW_REQUESTS * COMMANDS_OF_A_REQUEST,
        connection: object = None,
    ) -> None:
        """Call `go_on`, which handles about so many commands, in a later round; only after a `count` in this round. A
        turn of no `connection` starts behind the turn that began last.
        """
        if connection is None:
            end = self._last_end + commands
        else:
            end = self._ends[connection] = max(self._ends.get(connection, 0.0), self._now) + commands
        heappush(self.waiting, (end, next(self._numbers), go_on, commands))

    async def room(self, loop: asyncio.AbstractEventLoop, commands: int) -> None:
        """Return when this round has room for more commands, at once or in a later round; the caller's next commands
        take about as long as `commands`.
        """
        if self._done >= _COMMANDS_IN_ONE_ROUND or self.waiting:
            ready = asyncio.Event()
            self.count(loop, 0)
            self.wait(ready.set, commands)
            await ready.wait()

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = True
        loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        self.round += 1
        self._done = 0
        left, connections = _COMMANDS_IN_ONE_ROUND, len(self.waiting)
        while connections and left > 0 and self._done < _COMMANDS_IN_ONE_ROUND:
            connections -= 1
            self._last_end, _, go_on, commands = heappop(self.waiting)
            start = max(self._now, self._last_end - commands)
            self._now = start + commands / (_SLOWER * (len(self.waiting) + 1))
            left -= commands
            try:
                go_on()
            except Exception:  # a bug in one request must not hold the other connections for ever
                log.exception("request.failed")
        if len(self._ends) > 2 * len(self.waiting):
            self._ends = {each: end for each, end in self._ends.items() if end > self._now} if self.waiting else {}
        if self.waiting and not self._scheduled:
            self._schedule(loop)
