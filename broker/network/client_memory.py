"""The memory of a connection's producers, consumers and watchers in its share of the memory account."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from magnetar.broker.errors import TooManyRequestsError
from magnetar.broker.limits import kept_bytes
from magnetar.broker.network.gone import GONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.consumers.consumer import Consumer
    from magnetar.broker.memory_account import MemoryShare
    from magnetar.broker.topics.list_watcher import TopicListWatcher
    from magnetar.broker.topics.producer import Producer

CLIENT_BYTES: Final = 4 * 1024
"""The assumed memory of a producer, consumer or watcher besides the texts and ranges of its command."""


class Owner(Protocol):
    """The part of a connection that has the clients."""

    @property
    def producers(self) -> Mapping[int, Producer | asyncio.Future[Producer]]: ...
    @property
    def consumers(self) -> Mapping[int, Consumer | asyncio.Future[Consumer]]: ...
    @property
    def watchers(self) -> Mapping[int, TopicListWatcher]: ...


class ClientMemory:
    """Counts the clients of one connection.

    The memory of the texts is a sum to which each command adds. Clients that left, or never came, are in the sum until
    `recount`: once per keep-alive interval, and when the memory of the connection reaches a limit.
    """

    def __init__(self, owner: Owner, share: MemoryShare) -> None:
        self._owner: Owner = owner
        self._share = share
        self._kept = 0
        self._in_sum = 0
        """The clients of the sum, with those that left, or never came."""

    def require_room(self, command: Any) -> None:
        """Count the client that the command is about to open. Raises TooManyRequestsError when there is no memory."""
        self.require(kept_bytes(command))
        self._in_sum += 1

    def require(self, kept: int) -> None:
        """Count memory of a client that opens. Raises TooManyRequestsError when there is no room."""
        self._weigh()
        if not self._share.fits(CLIENT_BYTES + kept) and self._kept:
            self.recount()
        if not self._share.fits(CLIENT_BYTES + kept):
            self._share.refused()
            raise TooManyRequestsError("No memory for another producer, consumer or watcher; see maxClientMemoryInMB")
        self._kept += kept

    def require_output(self, size: int) -> None:
        """Raise TooManyRequestsError when there is no room for an answer of that size."""
        if not self._share.fits(size):
            self._share.refused()
            raise TooManyRequestsError("No memory for a long answer; see maxClientMemoryInMB")

    def close(self) -> None:
        """Forget the connection, which has ended."""
        self._owner = GONE

    def _weigh(self) -> None:
        self._share.set("clients", CLIENT_BYTES * self._count + self._kept)

    @property
    def _count(self) -> int:
        owner = self._owner
        return len(owner.producers) + len(owner.consumers) + len(owner.watchers)

    def are_over(self) -> bool:
        """Whether the share of the connection is over a limit, with the clients that are connected now."""
        if self._share.is_over and self._in_sum != self._count:
            self.recount()
        return self._share.is_over

    def recount(self) -> None:
        """Sum up the memory of the clients that are connected now."""
        owner = self._owner
        clients = (*owner.producers.values(), *owner.consumers.values(), *owner.watchers.values())
        self._kept = sum(each.kept_bytes for each in clients if not isinstance(each, asyncio.Future))
        self._in_sum = self._count
        self._weigh()
