"""One connection per bookie, opened at the first use and again after a loss; and the bookies in quarantine."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.bookies.connection import BookieConnection
from magnetar.bookkeeper.deadlines import deadline
from magnetar.bookkeeper.errors import BookieUnreachableError, ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.bookkeeper.background import Background
    from magnetar.bookkeeper.metadata.bookie_info import BookieAddress
    from magnetar.bookkeeper.metadata.ports import BookieRegistry
    from magnetar.bookkeeper.options import ClientOptions

    Connect = Callable[[Callable[[], BookieConnection], BookieAddress], Awaitable[BookieConnection]]

__all__ = ["BookiePool", "connect_tcp"]

log = structlog.get_logger(__name__)


async def connect_tcp(make: Callable[[], BookieConnection], address: BookieAddress) -> BookieConnection:
    """Open a TCP connection; `make` creates its protocol object. Raises OSError."""
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(make, address.host, address.port))[1]


class BookiePool:
    """``get`` returns the connection to a bookie. `connect` opens a connection: by TCP, or in a test's network."""

    def __init__(
        self,
        registry: BookieRegistry,
        options: ClientOptions,
        background: Background,
        connect: Connect = connect_tcp,
    ) -> None:
        self._registry, self._options, self._background, self._connect = registry, options, background, connect
        self._loop = asyncio.get_running_loop()
        self._connections: dict[str, BookieConnection] = {}
        self._attempts: dict[str, asyncio.Future[BookieConnection]] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        """Bookie: (no attempt before this time, length of the pause)."""
        self._quarantined: dict[str, float] = {}
        self._closed = False

    def connected(self, bookie_id: str) -> BookieConnection | None:
        """Return the open connection to the bookie; None when there is no open connection. Never waits."""
        return self._connections.get(bookie_id)

    async def get(self, bookie_id: str, *, at_once: bool = False) -> BookieConnection:
        """Return the connection to the bookie; open it if necessary. After a failed attempt, calls without `at_once`
        fail without an attempt until a pause has passed; the pause doubles with each failure, up to
        ``longest_reconnect_delay_s``.

        Raises BookieUnreachableError, ClientClosedError.
        """
        connection = self._connections.get(bookie_id)
        if connection is not None:
            return connection
        if self._closed:
            raise ClientClosedError("the client is closed")
        attempt = self._attempts.get(bookie_id)
        if attempt is None:
            pause = self._pauses.get(bookie_id)
            if pause is not None and not at_once and self._loop.time() < pause[0]:
                raise BookieUnreachableError(bookie_id, "not reachable a moment ago")
            attempt = self._attempts[bookie_id] = self._loop.create_future()
            self._background.start(self._attempt(bookie_id, attempt), f"connect {bookie_id}")
        return await asyncio.shield(attempt)

    def quarantine(self, bookie_id: str) -> None:
        """With the probability ``quarantine_ratio``, leave the bookie out of new ensembles for ``quarantine_s``, as
        long as other bookies suffice.
        """
        if random.random() >= self._options.quarantine_ratio:  # noqa: S311 - spreads load, keeps no secret
            return
        if bookie_id not in self._quarantined:
            log.warning(events.BOOKIE_QUARANTINED, bookie=bookie_id, seconds=self._options.quarantine_s)
        self._quarantined[bookie_id] = self._loop.time() + self._options.quarantine_s

    def is_quarantined(self, bookie_id: str) -> bool:
        until = self._quarantined.get(bookie_id)
        if until is None:
            return False
        if until <= self._loop.time():
            del self._quarantined[bookie_id]
            return False
        return True

    def close(self) -> None:
        """Drop all connections; reads that wait for an answer or for a connection fail. Idempotent."""
        self._closed = True
        for attempt in self._attempts.values():
            _fail(attempt, ClientClosedError("the client is closed"))
        for connection in list(self._connections.values()):
            connection.abort("the client is closed")

    async def _attempt(self, bookie_id: str, attempt: asyncio.Future[BookieConnection]) -> None:
        try:
            connection = await self._open(bookie_id)
        except BookieUnreachableError as error:
            length_s = self._pauses.get(bookie_id, (0.0, self._options.reconnect_delay_s / 2))[1] * 2
            length_s = min(length_s, self._options.longest_reconnect_delay_s)
            self._pauses[bookie_id] = (self._loop.time() + length_s, length_s)
            _fail(attempt, error)
        except BaseException:
            _fail(attempt, ClientClosedError("the client is closed"))
            raise
        else:
            self._pauses.pop(bookie_id, None)
            if not attempt.done():
                attempt.set_result(connection)
        finally:
            self._attempts.pop(bookie_id, None)

    async def _open(self, bookie_id: str) -> BookieConnection:
        address = self._registry.address(bookie_id)
        if address is None:
            raise BookieUnreachableError(bookie_id, "its address is not known")
        try:
            async with deadline(self._options.connect_timeout_s):
                make = partial(BookieConnection, bookie_id, self._options, self._lost)
                connection = await self._connect(make, address)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: no resolver takes the host
            detail = str(error) or f"no connection within {self._options.connect_timeout_s:g} s"
            raise BookieUnreachableError(bookie_id, detail) from error
        if self._closed or not connection.is_open:
            connection.abort("the client is closed")
            raise BookieUnreachableError(bookie_id, "the connection was closed at once")
        self._connections[bookie_id] = connection
        log.info(events.BOOKIE_CONNECTED, bookie=bookie_id, address=f"{address.host}:{address.port}")
        return connection

    def _lost(self, connection: BookieConnection) -> None:
        if self._connections.get(connection.bookie_id) is connection:
            del self._connections[connection.bookie_id]
            log.info(events.BOOKIE_LOST, bookie=connection.bookie_id)


def _fail(attempt: asyncio.Future[BookieConnection], error: Exception) -> None:
    if not attempt.done():
        attempt.set_exception(error)
        attempt.exception()  # mark as retrieved: the waiting callers may have been cancelled
