"""Opens connections to bookies with TLS, with credentials, or with both, and returns plain ``BookieConnection``s.

The order is TCP, AUTH, START_TLS, the TLS handshake: a bookie that demands credentials grants TLS only to an
authenticated connection. DIGEST-MD5 does not send the password. The transport gets the ``BookieConnection`` as its
protocol object after the handshake, so that no request can overtake the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
from typing import TYPE_CHECKING

from magnetar.bookkeeper.bookies.tls import TlsContexts, TlsFilesError
from magnetar.bookkeeper.deadlines import deadline
from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digest_md5 import DigestMd5
from magnetar.bookkeeper.wire.handshake import (
    FREE_SPACE_REQUEST,
    MAX_HANDSHAKE_BYTES,
    START_TLS_REQUEST,
    auth_answer,
    auth_request,
    free_space,
    start_tls_status,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from magnetar.bookkeeper.bookies.connection import BookieConnection
    from magnetar.bookkeeper.bookies.tls import BookieSecurity
    from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
    from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials

__all__ = ["SecureConnect"]

_SERVICE = b"bookkeeper/bookkeeper"
"""Protocol and host in DIGEST-MD5: every bookie uses this same name."""
_ANSWER_S = 5.0
_U32 = struct.Struct(">I")


class SecureConnect:
    """The ``connect`` argument of ``BookiePool`` for secured bookies. The constructor raises TlsFilesError."""

    def __init__(self, security: BookieSecurity) -> None:
        self._contexts = None if security.tls is None else TlsContexts(security.tls)
        self._credentials = security.credentials

    async def __call__(self, make: Callable[[], BookieConnection], address: BookieAddress) -> BookieConnection:
        """Open a connection. Raises OSError, with the reason when the bookie refuses or does not prove its identity."""
        async with self._opened(address) as (transport, handshake):
            connection = make()
            handshake.hand_over(transport, connection)
        return connection

    async def free_space(self, address: BookieAddress) -> int:
        """Return the free bytes of the bookie's ledger disks. The request gets a connection of its own, because it is
        of protocol V3 and a bookie reads only V2 after the first V2 request of a connection. Raises OSError.
        """
        async with self._opened(address) as (transport, handshake):
            transport.write(FREE_SPACE_REQUEST)
            found = free_space(await handshake.frame())
            transport.close()
        return found

    @contextlib.asynccontextmanager
    async def _opened(self, address: BookieAddress) -> AsyncIterator[tuple[asyncio.Transport, _Handshake]]:
        """Yield a connection after its handshake; an error in the ``async with`` block aborts it. Raises OSError."""
        loop = asyncio.get_running_loop()
        transport, handshake = await loop.create_connection(_Handshake, address.host, address.port)
        try:
            if self._credentials is not None:
                await _authenticate(transport, handshake, self._credentials)
            if self._contexts is not None:
                transport = await self._start_tls(transport, handshake, address.host, self._contexts)
            yield transport, handshake
        except (WireError, TlsFilesError) as error:
            transport.abort()
            raise ConnectionError(str(error)) from error
        except BaseException:
            transport.abort()
            raise

    @staticmethod
    async def _start_tls(
        transport: asyncio.Transport, handshake: _Handshake, host: str, contexts: TlsContexts
    ) -> asyncio.Transport:
        transport.write(START_TLS_REQUEST)
        status = start_tls_status(await handshake.frame())
        if status:
            raise WireError(f"the bookie does not offer TLS (status {status})")
        context = contexts.current()
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(transport, handshake, context, server_hostname=host)
        if secured is None:
            raise ConnectionError("the connection was closed during the handshake of TLS")
        return secured


class _Handshake(asyncio.Protocol):
    """Protocol object during the handshake: reads one frame after the other until ``hand_over``."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._lost: Exception | None = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._give()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc or ConnectionError("the bookie closed the connection during the handshake")
        self._give()

    async def frame(self) -> bytes:
        """Return the next frame without its length field. Raises OSError, WireError."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._give()
        return await self._waiting

    def hand_over(self, transport: asyncio.Transport, connection: BookieConnection) -> None:
        """Make `connection` the protocol object of the transport: it gets all further bytes. Raises OSError,
        WireError.
        """
        if self._lost is not None:
            raise self._lost
        if self._buffer:
            raise WireError("a bookie sent more than its handshake")
        transport.set_protocol(connection)
        connection.connection_made(transport)

    def _give(self) -> None:
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        size = _U32.unpack_from(self._buffer)[0] if len(self._buffer) >= 4 else 0
        if size > MAX_HANDSHAKE_BYTES:
            waiting.set_exception(WireError(f"a bookie sent a frame of {size} bytes in its handshake"))
        elif len(self._buffer) >= 4 + size > 4:
            waiting.set_result(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]
        elif self._lost is not None:
            waiting.set_exception(self._lost)


async def _authenticate(transport: asyncio.Transport, handshake: _Handshake, credentials: DigestCredentials) -> None:
    digest = DigestMd5(credentials, _SERVICE, secrets.token_hex(16).encode())
    transport.write(auth_request(b""))
    challenge = auth_answer(await handshake.frame())
    if challenge is None:
        return  # the bookie asks for no credentials
    transport.write(auth_request(digest.respond(challenge)))
    try:
        async with deadline(_ANSWER_S):  # bookies of version 4.18 do not answer a wrong password
            answer = auth_answer(await handshake.frame())
    except (ConnectionError, TimeoutError) as error:
        raise WireError("the bookie refuses the credentials") from error
    digest.check(answer or b"")
