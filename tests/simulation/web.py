"""The broker's web port without sockets: its application and connections on simulated links."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.server import ServerState

from magnetar.broker.admin.admin_server import _config
from magnetar.broker.admin.app import build_app
from magnetar.broker.admin.http_connection import HttpConnection
from magnetar.broker.network.seats import Seats

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from magnetar.broker.broker import Broker
    from magnetar.broker.settings import Settings


logging.getLogger("uvicorn.error").disabled = True  # lines about requests that the end of the broker cancels


class _Current:
    """Stands for the present broker, so that a single application, which takes long to build, serves all brokers of a
    process.
    """

    broker: Broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker.admin, name)


_current = _Current()
_apps: dict[str, Any] = {}


def _application(settings: Settings) -> Any:
    """uvicorn's configuration with the application in it."""
    if "config" not in _apps:
        _apps["config"] = _config(build_app(_current), settings, None)  # type: ignore[arg-type]
    return _apps["config"]


class WebPort:
    """The web port of one life of the broker."""

    def __init__(self, broker: Broker) -> None:
        self._config = _application(broker.settings)
        self._state = ServerState()
        self._seats = Seats(50)
        self._acts: set[asyncio.Task[Any]] = set()
        self.failed: BaseException | None = None
        self.closed = False

    @classmethod
    async def open(cls, broker: Broker) -> WebPort:
        _current.broker = broker
        unreported: Any = None  # no figures of the machine in a history
        broker.admin = broker.admin_services(None, unreported)
        port = cls(broker)
        broker.listeners.web = port  # type: ignore[assignment]
        return port

    def connection(self) -> HttpConnection:
        return HttpConnection(self._config, self._state, {}, self._seats.take())

    def spawn(self, act: Coroutine[Any, Any, Any]) -> None:
        """Start an administrator's act; an error that it raises ends the history."""
        task = asyncio.get_running_loop().create_task(act, name="world")
        self._acts.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._acts.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failed = self.failed or task.exception()

    def stop_accepting(self) -> None:
        """Close the listening sockets, of which a simulated port has none."""

    async def close(self) -> None:
        """Stop as uvicorn's server does: cancel requests in progress."""
        self.closed = True
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._state.tasks.clear()

    async def give_up(self) -> None:
        """The broker's process has ended: end the waits of administrators whose links report no end."""
        for act in self._acts:
            act.cancel()
        await asyncio.gather(*self._acts, return_exceptions=True)
