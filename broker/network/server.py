"""The binary listeners: plain and TLS sockets that make connections."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from magnetar.broker.listen_error import told_by_setting
from magnetar.broker.network.connection import Connection
from magnetar.broker.network.proxied import ProxiedConnection
from magnetar.broker.network.tls import CertificateWatch, tls_context

if TYPE_CHECKING:
    import ssl

    from magnetar.broker.broker import Broker

_BACKLOG = 1024


class BinaryServer:
    """Listens on brokerServicePort and, when configured, brokerServicePortTls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._servers: list[asyncio.Server] = []
        self._certificates: CertificateWatch | None = None
        self.port: int | None = None
        self.port_tls: int | None = None

    async def start(self) -> None:
        """Bind and accept; port 0 takes a free one. Raises OSError that names the setting which cannot be met."""
        settings = self._broker.settings
        if settings.broker_service_port is not None:
            self.port = await self._listen("brokerServicePort", settings.broker_service_port, None)
        if settings.broker_service_port_tls is not None:
            context = tls_context(settings)
            self._certificates = CertificateWatch(context, settings)
            self._certificates.start(asyncio.get_running_loop())
            self.port_tls = await self._listen("brokerServicePortTls", settings.broker_service_port_tls, context)

    async def _listen(self, key: str, port: int, context: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        host = self._broker.settings.bind_address
        with told_by_setting(key, host, port):
            server = await loop.create_server(
                lambda: self._accepted(tls=context is not None),
                host,
                port,
                ssl=context,
                backlog=_BACKLOG,
                family=socket.AF_UNSPEC,
            )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _accepted(self, *, tls: bool) -> asyncio.BaseProtocol:
        connection = Connection(self._broker, tls=tls)
        if self._broker.settings.ha_proxy_protocol_enabled:
            return ProxiedConnection(connection)
        return connection

    def stop_accepting(self) -> None:
        if self._certificates is not None:
            self._certificates.stop()
        for server in self._servers:
            server.close()
