"""The binary listeners: plain and TLS sockets that make connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.broker.network.acceptor import Acceptor
from magnetar.broker.network.bind import bind, told_by_setting
from magnetar.broker.network.connection import Connection
from magnetar.broker.network.tls import CertificateWatch, tls_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.network.connection_resources import ConnectionResources
    from magnetar.broker.network.seats import Seat, Seats


class BinaryServer:
    """Listens on brokerServicePort and, when configured, brokerServicePortTls."""

    def __init__(self, resources: ConnectionResources, seats: Seats) -> None:
        self._resources = resources
        self._settings = resources.settings
        self._seats = seats
        self._services: ClientServices
        self._acceptors: list[Acceptor] = []
        self.certificates: CertificateWatch | None = None
        """The watch over the files of the TLS port; None without this port."""
        self.port: int | None = None
        self.port_tls: int | None = None
        self.wrap: Callable[[Connection], asyncio.BaseProtocol] | None = None
        """Wraps each new connection; None except in the fault kit of ``testing``."""

    async def start(self, services: ClientServices) -> None:
        """Bind; port 0 takes a free port. Clients wait for ``accept``. Raises OSError whose text names the setting that
        cannot be used.
        """
        self._services, settings = services, self._settings
        if settings.broker_service_port is not None:
            self.port = await self._listen("brokerServicePort", settings.broker_service_port, None)
        if settings.broker_service_port_tls is not None:
            context = tls_context(settings)
            self.certificates = CertificateWatch(context, settings)
            self.certificates.start(asyncio.get_running_loop())
            self.port_tls = await self._listen("brokerServicePortTls", settings.broker_service_port_tls, context)

    def accept(self) -> None:
        """Serve the clients that have connected, and those to come."""
        for acceptor in self._acceptors:
            acceptor.start()

    async def _listen(self, key: str, port: int, context: ssl.SSLContext | None) -> int:
        loop, settings = asyncio.get_running_loop(), self._settings
        bound = 0
        with told_by_setting(key, settings.bind_address, port):
            for listening in await bind(loop, settings.bind_address, port):
                acceptor = Acceptor(
                    loop,
                    listening,
                    self._seats,
                    lambda seat: self._accepted(seat, tls=context is not None),
                    self._resources.tasks,
                    context=context,
                    handshake_s=settings.keep_alive_interval_seconds,
                )
                self._acceptors.append(acceptor)
                bound = bound or acceptor.port
        return bound

    def _accepted(self, seat: Seat, *, tls: bool) -> asyncio.BaseProtocol:
        connection = Connection(self._resources, self._services, tls=tls, seat=seat)
        if self.wrap is not None:
            return self.wrap(connection)
        if self._settings.ha_proxy_protocol_enabled:
            from magnetar.broker.network.proxied import ProxiedConnection  # noqa: PLC0415 - few brokers are behind one

            return ProxiedConnection(connection)
        return connection

    def stop_accepting(self) -> None:
        if self.certificates is not None:
            self.certificates.stop()
        for acceptor in self._acceptors:
            acceptor.close()
