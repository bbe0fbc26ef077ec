"""The ports of a broker for the binary protocol and for HTTP, and the addresses that clients get."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.advertised import AdvertisedAddresses
from magnetar.broker.network.binary_server import BinaryServer
from magnetar.broker.network.first_visit import FirstVisit
from magnetar.broker.network.web_doors import WebDoors, web_doors_or_none
from magnetar.broker.start_up import import_later, require
from magnetar.broker.tasks import TaskSet

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from magnetar.broker.admin.admin_server import AdminServer
    from magnetar.broker.admin.api import BrokerApi
    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.network.connection_resources import ConnectionResources
    from magnetar.broker.network.seats import Seats

__all__ = ["Listeners"]

log = structlog.get_logger(__name__)

_WEB_LIBRARIES = ("uvicorn", "starlette", "h11")
_AGAIN_S, _MOST_AGAIN_S = 1.0, 60.0


class Listeners:
    """``open`` binds all ports, ``accept`` serves the binary protocol, ``serve_web`` the web ports. With
    ``on_first_visit`` a task begins with the first HTTP client, which waits until ``serve_web``.
    """

    def __init__(self, resources: ConnectionResources, seats: Seats) -> None:
        self.binary = BinaryServer(resources, seats)
        self.web: AdminServer | None = None
        self.http_port: int | None = None
        self.http_port_tls: int | None = None
        self.addresses = AdvertisedAddresses(resources.settings)
        self._settings = resources.settings
        self._doors = WebDoors(None, None)
        self._first_visit: FirstVisit | None = None
        self._loading = TaskSet()
        self._accepting = True

    async def open(self, services: ClientServices) -> None:
        """Bind the ports. Raises OSError that names the setting of an unusable port or certificate of the binary
        protocol, ModuleNotFoundError without the libraries of a web port; a web port that cannot be bound is only an
        error in the log.
        """
        if (self._settings.web_service_port, self._settings.web_service_port_tls) != (None, None):
            require(*_WEB_LIBRARIES)
        await self.binary.start(services)
        self._doors = await web_doors_or_none(self._settings)
        self.http_port, self.http_port_tls = self._doors.ports
        self.addresses.bound(self.binary.port, self.binary.port_tls, *self._doors.ports)

    def accept(self) -> None:
        """Serve the clients of the binary protocol."""
        self.binary.accept()

    @property
    def has_web(self) -> bool:
        """Whether a web port is bound."""
        return self._doors.ports != (None, None)

    @property
    def certificate_ends_s(self) -> float | None:
        """The end of the certificate of the TLS ports, in seconds since 1970; None without TLS."""
        web = self._doors.tls.certificates if self._doors.tls is not None else None
        ends = [watch.ends_s for watch in (self.binary.certificates, web) if watch is not None]
        return min((end for end in ends if end is not None), default=None)

    def on_first_visit(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `start` as a task when the first client connects to a web port. When `start` fails, the log has the
        error and the ports close; behind an error that passes by itself (no descriptor, thread or memory) the clients
        wait, and `start` runs again a second later, then after longer times.
        """

        async def started() -> None:
            again_s = _AGAIN_S
            try:
                while self._accepting and self.web is None:
                    try:
                        await start()
                    except (OSError, RuntimeError, MemoryError) as error:
                        log.warning("admin.load_failed", error=repr(error), again_s=again_s)
                        await asyncio.sleep(again_s)
                        again_s = min(2 * again_s, _MOST_AGAIN_S)
            finally:
                if self.web is None:
                    self._doors.close()

        def visited() -> None:
            self._loading.spawn(started(), "admin.load")

        self._first_visit = FirstVisit(asyncio.get_running_loop(), self._doors.listening, visited)

    async def serve_web(self, api: BrokerApi) -> None:
        """Begin to answer requests at the bound web ports, unless they closed meanwhile."""
        server = await import_later("magnetar.broker.admin.admin_server")
        app = await asyncio.to_thread(server.build_app, api)  # some 30 ms
        if self._accepting:
            self.web = await server.start_admin(api, self._doors, app)

    def stop_accepting(self) -> None:
        """Close the listening sockets, so that another broker may bind their ports; open connections stay."""
        self.binary.stop_accepting()
        self._close_doors()

    async def close_web(self) -> None:
        """Close the web ports and end their requests; safe to call twice."""
        self._close_doors()
        await self._loading.close()
        if self.web is not None:
            await self.web.close()

    def _close_doors(self) -> None:
        self._accepting = False
        if self._first_visit is not None:
            self._first_visit.stop()
        if self.web is not None:
            self.web.stop_accepting()
        else:
            self._doors.close()
