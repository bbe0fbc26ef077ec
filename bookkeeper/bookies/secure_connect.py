"""Connections to bookies with TLS, with credentials, or with both; they end up as plain ``BookieConnection``s.

TCP, then AUTH, then START_TLS and TLS's own handshake: a bookie that wants credentials gives TLS to authenticated
connections alone. DIGEST-MD5 sends no password. The connection gets its protocol object at the end, so that no request
can overtake the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
from typing import TYPE_CHECKING

from magnetar.bookkeeper.bookies.tls import TlsContexts, TlsFilesError
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
"""Protocol and host in DIGEST-MD5: bookies have this name for all of them."""
_ANSWER_S = 5.0
_U32 = struct.Struct(">I")


class SecureConnect:
    """A ``Connect`` of ``BookiePool``. Raises TlsFilesError when it is made."""

    def __init__(self, security: BookieSecurity) -> None:
        self._contexts = None if security.tls is None else TlsContexts(security.tls)
        self._credentials = security.credentials

    async def __call__(self, make: Callable[[], BookieConnection], address: BookieAddress) -> BookieConnection:
        """Raises OSError, with the reason when the bookie refuses or proves to be another bookie."""
        async with self._opened(address) as (transport, handshake):
            connection = make()
            handshake.hand_over(transport, connection)
        return connection

    async def free_space(self, address: BookieAddress) -> int:
        """The free bytes of the bookie's ledger disks, by a connection for this request alone: a bookie that has read
        a request of V2 understands no other. Raises OSError.
        """
        async with self._opened(address) as (transport, handshake):
            transport.write(FREE_SPACE_REQUEST)
            found = free_space(await handshake.frame())
            transport.close()
        return found

    @contextlib.asynccontextmanager
    async def _opened(self, address: BookieAddress) -> AsyncIterator[tuple[asyncio.Transport, _Handshake]]:
        """A connection after its handshake; a failure of its user aborts it. Raises OSError."""
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
    """Reads frames one after the other, until the connection gets its protocol object."""

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
        """The next frame without its length. Raises OSError, WireError."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._give()
        return await self._waiting

    def hand_over(self, transport: asyncio.Transport, connection: BookieConnection) -> None:
        """Pass all further bytes of the bookie to the connection."""
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
        async with asyncio.timeout(_ANSWER_S):  # bookies of version 4.18 do not answer a wrong password
            answer = auth_answer(await handshake.frame())
    except (ConnectionError, TimeoutError) as error:
        raise WireError("the bookie refuses the credentials") from error
    digest.check(answer or b"")
