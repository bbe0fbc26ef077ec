"""All connections of the broker: limits in total and per address, the count of what came and went."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.broker.errors import TooManyRequestsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.broker.network.connection import Connection


@dataclass(slots=True)
class ConnectionCounters:
    """Since the start of the broker."""

    created: int = 0
    refused: int = 0
    closed: int = 0


@dataclass(slots=True)
class LookupCounters:
    """LOOKUPs since the start of the broker, and requests about topics in progress."""

    answers: int = 0
    failures: int = 0
    in_progress: int = 0

    @contextlib.contextmanager
    def slot(self, most: int) -> Iterator[None]:
        """Be one of at most so many requests in progress (maxConcurrentLookupRequest); raises TooManyRequestsError."""
        if self.in_progress >= most:
            raise TooManyRequestsError("Failed due to too many pending lookup requests")
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1


class Connections:
    """The open connections; brokerMaxConnections and brokerMaxConnectionsPerIp (0 = no limit) are kept here."""

    def __init__(self, max_total: int, max_per_address: int) -> None:
        self.counters = ConnectionCounters()
        self._max_total = max_total
        self._max_per_address = max_per_address
        self._open: dict[Connection, str] = {}
        self._per_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204 - over a copy: connections close while they are walked
        return iter(list(self._open))

    def admit(self, connection: Connection, address: str) -> str | None:
        """Count a new connection; the reason when it is one too many (it is not counted then)."""
        if self._max_total > 0 and len(self._open) >= self._max_total:
            self.counters.refused += 1
            return "Reached the maximum number of connections"
        if self._max_per_address > 0 and self._per_address[address] >= self._max_per_address:
            self.counters.refused += 1
            return "Reached the maximum number of connections on address"
        self._open[connection] = address
        self._per_address[address] += 1
        self.counters.created += 1
        return None

    def forget(self, connection: Connection) -> None:
        """A connection is gone; one that was never admitted is unknown here."""
        address = self._open.pop(connection, None)
        if address is None:
            return
        self.counters.closed += 1
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
