"""Turns of HTTP requests: hundreds of connections with requests one behind the other share the rounds of the loop.

A head of 8 KiB may have 1,500 lines, which take the parser four milliseconds, and so do some hundred chunks of a byte.
So heads and bodies have turns by their lines, and requests have turns to begin.
"""

import re
from typing import TYPE_CHECKING, Final

from magnetar.broker.network.round_turns import RoundTurns

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

REQUESTS_IN_ONE_ROUND: Final = 8
READS_IN_ONE_ROUND: Final = 32
EVENTS_IN_ONE_TURN: Final = 256
"""Events of a connection, heads and chunks, in one turn of the loop."""
LINES_A_TURN: Final = 32
_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")


def read_turns() -> RoundTurns:
    """The turns of received bytes: READS_IN_ONE_ROUND usual heads in a round of the event loop, or fewer with many
    lines.
    """
    return RoundTurns(READS_IN_ONE_ROUND)


def turns_of_head(received: bytes) -> int:
    """The turns that the first head among the received bytes counts as; 0 for a head that is not complete."""
    end = _END_OF_HEAD.search(received)
    return 1 + received.count(b"\n", 0, end.end()) // LINES_A_TURN if end is not None else 0


def turns_of_body(received: bytes) -> int:
    """The turns that received bytes of a body count as: a chunk has two lines."""
    return 1 + min(received.count(b"\n"), 2 * EVENTS_IN_ONE_TURN) // LINES_A_TURN


class HttpTurns:
    """Begins REQUESTS_IN_ONE_ROUND requests of the application in a round of the event loop; addresses have turns."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app
        self._turns = RoundTurns(REQUESTS_IN_ONE_ROUND)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        client = scope.get("client")
        await self._turns.wait(client[0] if client else "")
        await self._app(scope, receive, send)
