"""A connection that may come through a proxy (haProxyProtocolEnabled): removes the proxy header before the connection
gets its first byte.

The limits of connections count the peer from the start, by the address of its socket. The deadline of the handshake
includes the header: a partial header closes the connection like a partial CONNECT. Any peer of the listener may claim
any address, so enable the setting only where no client but proxies can reach the listener.

A read takes no more bytes than the largest header has: the connection bounds its own reads, and its bytes behind a
header are few.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import structlog

from magnetar.protocol.proxy_header import MAX_V2_BYTES, MalformedProxyHeaderError, parse_proxy_header

if TYPE_CHECKING:
    from magnetar.broker.network.connection import Connection

log = structlog.get_logger(__name__)


class ProxiedConnection(asyncio.BufferedProtocol):
    """Reads the proxy header, if there is one, then gives the transport to the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._data = bytearray(MAX_V2_BYTES)
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connection.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio calls it so
        return memoryview(self._data)[self._size :]

    def buffer_updated(self, nbytes: int) -> None:
        connection, transport = self._connection, self._transport
        if connection.closed or transport is None:
            return
        self._size += nbytes  # room is left: parsing ends at the largest header
        data = bytes(memoryview(self._data)[: self._size])
        try:
            header = parse_proxy_header(data)
        except MalformedProxyHeaderError as e:
            log.info("connection.refused", conn=connection.connection_id, address=connection.address, reason=str(e))
            connection.abort()
            return
        if header is None:
            return
        if header.address:
            connection.address = f"{header.address}:{header.port}"  # as Apache Pulsar shows it, without a slash
        transport.set_protocol(connection)
        _feed(connection, memoryview(data)[header.size :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


def _feed(connection: Connection, rest: memoryview) -> None:
    """Give the connection the bytes behind the header, as if the socket had just received them."""
    while rest and not connection.closed:
        room = connection.get_buffer(len(rest))
        size = min(len(room), len(rest))
        room[:size] = rest[:size]
        connection.buffer_updated(size)
        rest = rest[size:]
