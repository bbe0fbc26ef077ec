"""Connections by broker address: a pool with one connection per broker, shared by many producers, or a single
connection at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.client.connection import BrokerConnection, open_connection
from magnetar.client.errors import RetryError
from magnetar.client.producers import Producers
from magnetar.client.readers import Readers

if TYPE_CHECKING:
    from magnetar.client.address import Address, Credentials


class ConnectionPool:
    """Opens a connection to a broker when the first caller needs it, and again after it was lost; after the end of the
    pool calls raise RetryError, also those that wait for a connection at the end.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._open: dict[Address, tuple[BrokerConnection, Producers, Readers]] = {}
        self._opening: dict[Address, asyncio.Lock] = {}
        self._closed = False

    async def get(self, address: Address) -> BrokerConnection:
        """Raises: RefusedError, RetryError, InputError."""
        return (await self._get(address))[0]

    async def producers(self, address: Address) -> Producers:
        """Return the producers of the connection to this broker. Raises: as `get`."""
        return (await self._get(address))[1]

    async def readers(self, address: Address) -> Readers:
        """Return the readers of the connection to this broker. Raises: as `get`."""
        return (await self._get(address))[2]

    async def _get(self, address: Address) -> tuple[BrokerConnection, Producers, Readers]:
        async with self._opening.setdefault(address, asyncio.Lock()):
            self._check_open()
            known = self._open.get(address)
            if known is None or known[0].lost is not None:
                connection = await open_connection(address, self._credentials)
                if self._closed:
                    await connection.wait_closed()
                    self._check_open()
                known = self._open[address] = connection, Producers(connection), Readers(connection)
            return known

    def _check_open(self) -> None:
        if self._closed:
            raise RetryError("the connections of this client are closed")

    def close(self) -> None:
        """End all connections; safe to call twice."""
        self._closed = True
        for connection, _, _ in self._open.values():
            connection.close()
        self._open.clear()

    async def wait_closed(self) -> None:
        """End all connections and return when their sockets are closed."""
        self._closed = True
        ended, self._open = self._open, {}
        await asyncio.gather(*(connection.wait_closed() for connection, _, _ in ended.values()))


class OneConnection:
    """Keeps the connection to the last requested broker; closes it before it connects to another broker."""

    def __init__(self, credentials: Credentials, *, entry_metadata: bool = False) -> None:
        self._credentials, self._entry_metadata = credentials, entry_metadata
        self._address: Address | None = None
        self._connection: BrokerConnection | None = None

    async def get(self, address: Address) -> BrokerConnection:
        """Raises: RefusedError, RetryError, InputError."""
        if self._connection is None or self._address != address or self._connection.lost is not None:
            self.close()
            self._connection = await open_connection(address, self._credentials, entry_metadata=self._entry_metadata)
            self._address = address
        return self._connection

    def close(self) -> None:
        """End the connection; safe to call twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
