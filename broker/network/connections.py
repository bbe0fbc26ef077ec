"""All connections of the broker: limits in total and per address, counts of opened and closed connections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals

if TYPE_CHECKING:
    from magnetar.broker.network.output import Output


@dataclass(slots=True)
class ConnectionCounters:
    """Since the start of the broker."""

    created: int = 0
    refused: int = 0
    closed: int = 0


class Closable(Protocol):
    """The part of a connection that the counting needs."""

    @property
    def output(self) -> Output: ...

    def close(self) -> None: ...


class Connections:
    """The open connections. Enforces brokerMaxConnections and brokerMaxConnectionsPerIp (0 = no limit)."""

    def __init__(self, max_total: int, max_per_address: int) -> None:
        self.counters = ConnectionCounters()
        self._max_total = max_total
        self._max_per_address = max_per_address
        self._open: dict[Closable, str] = {}
        self._per_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204 - over a copy: connections close while they are walked
        return iter(list(self._open))

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait in memory for the sockets of clients."""
        return sum(connection.output.waiting_bytes for connection in self._open)

    def admit(self, connection: Closable, address: str) -> str | None:
        """Count a new connection and return None, or return the reason for refusing it and do not count it."""
        if self._max_total > 0 and len(self._open) >= self._max_total:
            self.counters.refused += 1
            return wire_refusals.TOO_MANY_CONNECTIONS
        if self._max_per_address > 0 and self._per_address[address] >= self._max_per_address:
            self.counters.refused += 1
            return wire_refusals.TOO_MANY_CONNECTIONS_OF_ADDRESS
        self._open[connection] = address
        self._per_address[address] += 1
        self.counters.created += 1
        return None

    def forget(self, connection: Closable) -> None:
        """Count a closed connection; no-op for a connection that was refused."""
        address = self._open.pop(connection, None)
        if address is None:
            return
        self.counters.closed += 1
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
