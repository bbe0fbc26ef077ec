"""Turns of HTTP requests: hundreds of connections with requests one behind the other share the rounds of the loop."""

from typing import TYPE_CHECKING, Final

from magnetar.broker.network.round_turns import RoundTurns

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

REQUESTS_IN_ONE_ROUND: Final = 8


class HttpTurns:
    """Begins REQUESTS_IN_ONE_ROUND requests of the application in a round of the event loop."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app
        self._turns = RoundTurns(REQUESTS_IN_ONE_ROUND)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._turns.wait()
        await self._app(scope, receive, send)
