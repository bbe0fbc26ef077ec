"""The producers and consumers of a connection that ended leave in turns, a few in a round of the event loop.

A client may have thousands of consumers on a connection, or consumers that hold tens of thousands of messages. Until
its turn a consumer counts as connected, but it cannot take messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import structlog

from magnetar.broker.handlers.request_turns import FEW_REQUESTS, request_cost

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from magnetar.broker.handlers.request_turns import RequestTurns

log = structlog.get_logger(__name__)


class Leaver(Protocol):
    """A producer or a consumer."""

    @property
    def held_entries(self) -> int:
        """Entries that go back to the subscription when the consumer leaves."""
        ...

    def connection_lost(self) -> None:
        """Leave the topic or the subscription."""
        ...


class Leaving:
    """The clients of one connection that have yet to leave."""

    def __init__(self, clients: Iterable[Leaver], turns: RequestTurns, loop: asyncio.AbstractEventLoop) -> None:
        self._clients = deque(clients)
        self._turns = turns
        self._loop = loop

    def begin(self) -> None:
        """Let the first clients leave at once, unless the round has much work, and the others in later rounds."""
        if self._clients:
            cost = self._cost()
            if self._turns.count(self._loop, cost):
                self._turns.wait(self._leave, cost)
            else:
                self._leave()

    def _cost(self) -> int:
        few = min(len(self._clients), FEW_REQUESTS)
        return max(few * request_cost(0), request_cost(self._clients[0].held_entries))

    def _leave(self) -> None:
        left = FEW_REQUESTS * request_cost(0)
        while self._clients and left > 0:
            client = self._clients.popleft()
            left -= request_cost(client.held_entries)
            try:
                client.connection_lost()
            except Exception:  # a bug in one client must not keep the others
                log.exception("client.leave_failed")
        if self._clients:
            cost = self._cost()
            self._turns.count(self._loop, cost)
            self._turns.wait(self._leave, cost)
