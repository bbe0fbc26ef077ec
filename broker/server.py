"""The binary listeners: plain and TLS sockets that make connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from magnetar.broker.connection import Connection

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.settings import Settings

_BACKLOG = 1024


class BinaryServer:
    """Listens on brokerServicePort and, when configured, brokerServicePortTls."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._servers: list[asyncio.Server] = []
        self.port = 0
        self.port_tls: int | None = None

    async def start(self) -> None:
        """Bind and accept; port 0 takes a free one."""
        settings = self._broker.settings
        if settings.broker_service_port is not None:
            self.port = await self._listen(settings.bind_address, settings.broker_service_port, None)
        if settings.broker_service_port_tls is not None:
            context = tls_context(settings)
            self.port_tls = await self._listen(settings.bind_address, settings.broker_service_port_tls, context)

    async def _listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self._broker, tls=context is not None),
            host,
            port,
            ssl=context,
            backlog=_BACKLOG,
            family=socket.AF_UNSPEC,
        )
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()


def tls_context(settings: Settings) -> ssl.SSLContext:
    """A server context from the tls* settings; a client certificate is asked for when a trust store is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls_certificate_file_path, settings.tls_key_file_path)
    if settings.tls_trust_certs_file_path:
        context.load_verify_locations(settings.tls_trust_certs_file_path)
        required = settings.tls_require_trusted_client_cert_on_connect
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context
