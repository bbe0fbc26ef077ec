"""The HTTP listeners: uvicorn servers as tasks of the broker's own loop, without signal handlers and without its
logging.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import JSONResponse

from magnetar.broker.admin.app import build_app
from magnetar.broker.admin.http_connection import HttpConnection
from magnetar.broker.admin.http_turns import HttpTurns, read_turns
from magnetar.broker.admin.upgrades import Upgrades
from magnetar.broker.logs import adopt_library
from magnetar.broker.network.acceptor import Acceptor
from magnetar.broker.network.seats import Seat, Seats
from magnetar.broker.network.web_doors import WebDoor, WebDoors, open_web_doors
from magnetar.broker.tasks import TaskSet

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from magnetar.broker.admin.api import BrokerApi
    from magnetar.broker.network.round_turns import RoundTurns
    from magnetar.broker.settings import Settings


_TICK_S = 0.1


class AdminServer:
    """The running listeners. `port` and `port_tls` are None without such a listener."""

    def __init__(self, doors: WebDoors, seats: Seats, upgrades: Upgrades | None = None) -> None:
        self._doors = doors
        self.port: int | None = None
        self.port_tls: int | None = None
        self.seats = seats
        self._upgrades = upgrades
        self._turns = read_turns()
        self._servers: list[_Server] = []
        self._tasks = TaskSet()
        self._serving: list[asyncio.Task[None]] = []

    def serve(self, app: "ASGIApp", settings: "Settings", door: WebDoor) -> int:
        """Serve a port from now on; returns its number."""
        config = _config(app, settings, door.context)
        server = _Server(config, door.listening, self.seats, self._tasks, self._upgrades, self._turns)
        self._serving.append(self._tasks.spawn(server.serve(), "admin.http"))
        self._servers.append(server)
        return door.port

    def stop_accepting(self) -> None:
        """Close the listening sockets; safe to call twice."""
        for server in self._servers:
            server.stop_accepting()
        self._doors.close()

    async def close(self) -> None:
        """Stop listening, end requests in progress, wait for both. Safe to call twice."""
        self.stop_accepting()
        for server in self._servers:
            server.end()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._tasks.close()


class _Server(uvicorn.Server):
    """A uvicorn server that handles no signals and accepts connections through the broker's acceptors."""

    def __init__(
        self,
        config: uvicorn.Config,
        listening: list[socket.socket],
        seats: Seats,
        tasks: TaskSet,
        upgrades: Upgrades | None,
        turns: "RoundTurns",
    ) -> None:
        super().__init__(config)
        self._upgrades = upgrades
        self._turns = turns
        self._ending = asyncio.Event()
        config.loaded_app = _CutShort(config.loaded_app, self._ending)
        self._acceptors = [
            Acceptor(
                asyncio.get_running_loop(),
                each,
                seats,
                self._accepted,
                tasks,
                context=config.ssl,
                handshake_s=config.timeout_keep_alive,
            )
            for each in listening
        ]

    def _accepted(self, seat: Seat) -> HttpConnection:
        return HttpConnection(self.config, self.server_state, self.lifespan.state, seat, self._upgrades, self._turns)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - they are the acceptors'
        """Begin to accept."""
        self.servers = []
        self.started = True
        for acceptor in self._acceptors:
            acceptor.start()

    def end(self) -> None:
        """End the main loop at once, so that `serve` returns."""
        self.should_exit = self.force_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Run uvicorn's main loop; `end` interrupts its wait for the next tick."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, and end the requests that remain; without connections and tasks return at once."""
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            for connection in list(self.server_state.connections):
                assert isinstance(connection, HttpConnection), "_accepted makes no others"
                connection.cut_short()
            requests = list(self.server_state.tasks)
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    def install_signal_handlers(self) -> None:
        """No effect: the broker handles signals. Older versions of uvicorn call this method."""

    def capture_signals(self) -> Any:
        """No effect: the broker handles signals. Newer versions of uvicorn call this method."""
        return contextlib.nullcontext()


class _CutShort:
    """The application of a server. A request that the end of the server cancels is answered with 503, where no answer
    has begun; uvicorn would log a traceback and answer with 500.
    """

    def __init__(self, app: "ASGIApp", ending: asyncio.Event) -> None:
        self._app = app
        self._ending = ending

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._ending.is_set():
                raise
            answer = JSONResponse({"reason": "the broker is stopping"}, 503, headers={"Connection": "close"})
            await answer(scope, receive, send)


def _is_new(record: logging.LogRecord) -> bool:
    """Drop uvicorn's line about invalid bytes: `HttpConnection` logs them as `request.refused`, with the address."""
    return record.msg != "Invalid HTTP request received."


def _config(app: "ASGIApp", settings: "Settings", context: ssl.SSLContext | None) -> uvicorn.Config:
    adopt_library("uvicorn", "http.server")
    logging.getLogger("uvicorn.error").addFilter(_is_new)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.http_server_idle_timeout // 1000,
        h11_max_incomplete_event_size=settings.http_max_request_header_size,
        timeout_graceful_shutdown=1,
    )
    config.load()
    config.ssl = context
    return config


async def start_admin(api: "BrokerApi", doors: WebDoors | None = None, app: "ASGIApp | None" = None) -> AdminServer:
    """Serve the configured web ports over the broker, which may be open already. ``app``: the result of ``build_app``.

    Raises: OSError when a port cannot be bound or the certificate cannot be read; nothing listens then.
    """
    settings = api.settings
    doors = doors or await open_web_doors(settings)
    app = HttpTurns(app or build_app(api))
    upgrades = Upgrades(api.web_sockets, settings, time.monotonic) if api.web_sockets is not None else None
    server = AdminServer(doors, Seats(api.descriptors.web_connections, api.descriptors.extra), upgrades)
    if doors.plain is not None:
        server.port = server.serve(app, settings, doors.plain)
    if doors.tls is not None:
        server.port_tls = server.serve(app, settings, doors.tls)
    return server
