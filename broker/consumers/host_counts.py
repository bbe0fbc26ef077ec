"""How many consumers of a topic come from each host, for limits that must not look at all consumers of the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.consumers.consumer import Consumer


class HostCounts:
    """The connected consumers of all subscriptions of a topic, by host."""

    __slots__ = ("_by_host", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_host: dict[str, int] = {}

    def of(self, consumer: Consumer) -> int:
        """Return the number of connected consumers from the host of this consumer."""
        return self._by_host.get(_host_of(consumer), 0)

    def joined(self, consumer: Consumer) -> None:
        host = _host_of(consumer)
        self._by_host[host] = self._by_host.get(host, 0) + 1
        self.total += 1

    def left(self, consumer: Consumer) -> None:
        host = _host_of(consumer)
        self.total -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


def _host_of(consumer: Consumer) -> str:
    return consumer.outbox.address.rpartition(":")[0]
