"""The web ports before a server uses them: bound, listening, with their TLS settings read.

Early clients wait in the backlog of the sockets. So the broker is ready for clients of the binary protocol, and reports
its readiness, without the libraries of the web port. Changed certificates are read even before the first client comes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import structlog

from magnetar.broker.network.bind import bind, told_by_setting
from magnetar.broker.network.tls import CertificateWatch, tls_context

if TYPE_CHECKING:
    import socket
    import ssl

    from magnetar.broker.settings import Settings

log = structlog.get_logger(__name__)


class WebDoor(NamedTuple):
    """The sockets of one web port. context: its TLS context, with the watch over its files; both None without TLS."""

    listening: list[socket.socket]
    context: ssl.SSLContext | None
    certificates: CertificateWatch | None = None

    @property
    def port(self) -> int:
        number: int = self.listening[0].getsockname()[1]
        return number


class WebDoors(NamedTuple):
    """The web ports that the settings open."""

    plain: WebDoor | None
    tls: WebDoor | None

    @property
    def ports(self) -> tuple[int | None, int | None]:
        """The bound ports, without TLS and with."""
        return self.plain and self.plain.port, self.tls and self.tls.port

    @property
    def listening(self) -> list[socket.socket]:
        """The sockets of all ports."""
        return [each for door in self if door is not None for each in door.listening]

    def close(self) -> None:
        """Stop listening; safe to call twice."""
        for each in self.listening:
            each.close()
        if self.tls is not None and self.tls.certificates is not None:
            self.tls.certificates.stop()


async def open_web_doors(settings: Settings) -> WebDoors:
    """Raises: OSError when a port cannot be bound or the certificate cannot be read; nothing listens then."""
    plain = None
    if settings.web_service_port is not None:
        plain = await _door("webServicePort", settings.bind_address, settings.web_service_port, None)
    try:
        if settings.web_service_port_tls is None:
            return WebDoors(plain, None)
        context = tls_context(settings, web=True)
        tls = await _door("webServicePortTls", settings.bind_address, settings.web_service_port_tls, context)
        certificates = CertificateWatch(context, settings, web=True)
        certificates.start(asyncio.get_running_loop())
        tls = tls._replace(certificates=certificates)
    except BaseException:
        WebDoors(plain, None).close()
        raise
    return WebDoors(plain, tls)


async def web_doors_or_none(settings: Settings) -> WebDoors:
    """Like `open_web_doors`; if the ports cannot be opened, log the error and return no ports: the broker serves binary
    clients nevertheless.
    """
    try:
        return await open_web_doors(settings)
    except OSError as e:
        log.error("admin.failed", reason=e.strerror or str(e))  # noqa: TRY400 - an operator reads it, no traceback needed
        return WebDoors(None, None)


async def _door(key: str, address: str, port: int, context: ssl.SSLContext | None) -> WebDoor:
    with told_by_setting(key, address, port):
        return WebDoor(await bind(asyncio.get_running_loop(), address, port), context)
