"""The turns of all read loops of a broker: how many of them one round of the event loop has.

A turn takes up to some ten milliseconds. If every loop with work had a turn in each round, a tenant with a hundred busy
subscriptions would make each message of other tenants wait for a hundred turns, several times.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import CallLater

log = structlog.get_logger(__name__)
ROUND_BYTES = 512 * 1024
"""Cost of the turns of one round, in bytes sent: no further turn begins when they have cost as much."""
LEAST_COST_BYTES = 1024
"""Cost of a turn that finds nothing to send."""


class DispatchTurns:
    """The loops that wait for a turn, in the order in which they asked."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._waiting: deque[Callable[[], int]] = deque()

    def wait(self, turn: Callable[[], int]) -> None:
        """Call `turn`, which returns its cost in bytes, in a later round of the event loop."""
        if not self._waiting:
            self._call_later(0, self._round)
        self._waiting.append(turn)

    async def take(self, cost: int) -> None:
        """Return when the caller has its turn, which costs so many bytes."""
        turn = asyncio.get_running_loop().create_future()

        def go_on() -> int:
            if turn.done():  # cancelled
                return 0
            turn.set_result(None)
            return cost

        self.wait(go_on)
        await turn

    def _round(self) -> None:
        waiting, cost = self._waiting, 0
        try:
            for _ in range(len(waiting)):  # a loop that asks again meanwhile waits for the next round
                try:
                    cost += max(waiting[0](), LEAST_COST_BYTES)
                except Exception:  # a bug in one turn must not cost the other loops their turns
                    log.exception("dispatch.failed")
                finally:
                    waiting.popleft()
                if cost >= ROUND_BYTES:
                    break
        finally:  # also behind an exception that is no Exception, such as CancelledError
            if waiting:
                self._call_later(0, self._round)
