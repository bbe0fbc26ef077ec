"""The memory for the names of producers that have left, in even shares.

The topics with deduplication of a broker share a room, which their clients can fill. A room is divided among tenants,
namespaces and topics, each a room inside that of its owner, so that a role which fills the room takes nothing from
those that use less than their share.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

__all__ = ["NamesRoom"]

MOST_ABSENT_BYTES_OF_ALL: Final = 64 << 20
"""The names of all topics together; beyond it a topic that uses more than its shares takes no new names."""
FREE_ABSENT_BYTES: Final = 1 << 20
"""Thousands of usual names. A topic with fewer bytes takes new names in any case; the further all topics together are
beyond the room, the less that is.
"""


class NamesRoom:
    """The room of all topics, or that of a tenant, a namespace or a topic within the room of its owner."""

    __slots__ = ("__weakref__", "_free", "_inner", "_most", "_owner", "_taken", "used")

    def __init__(
        self,
        most: int = MOST_ABSENT_BYTES_OF_ALL,
        free: int = FREE_ABSENT_BYTES,
        owner: NamesRoom | None = None,
    ) -> None:
        self.used = 0
        self._most = most
        self._free = free
        self._owner = owner
        self._inner: WeakValueDictionary[str, NamesRoom] | None = None  # topics have none, and are many
        self._taken = 0
        """The inner rooms that are not empty."""

    def of_topic(self, tenant: str, namespace: str) -> NamesRoom:
        """Return a room for a topic that is being loaded."""
        return NamesRoom(self._most, self._free, self.within(tenant).within(namespace))

    def within(self, name: str) -> NamesRoom:
        """Return the room of a tenant, or within that the room of a namespace."""
        if self._inner is None:
            self._inner = WeakValueDictionary()
        inner = self._inner.get(name)
        if inner is None:
            self._inner[name] = inner = NamesRoom(self._most, self._free, self)
        return inner

    def count(self, delta: int) -> None:
        """Count bytes that this room takes, or gives up."""
        was_taken = self.used > 0
        self.used += delta
        if self._owner is not None:
            self._owner._taken += (self.used > 0) - was_taken  # noqa: SLF001 - a room of the same kind
            self._owner.count(delta)

    def has_more(self) -> bool:
        """Whether this room may take more: the whole has room, or this room or one of its owners uses no more than its
        even share of the room around it.
        """
        path = [self]
        while (owner := path[-1]._owner) is not None:  # noqa: SLF001
            path.append(owner)
        share = self._most
        for room in reversed(path):
            if room.used <= share:
                return True
            share //= room._taken or 1  # noqa: SLF001
        return self.used <= self._free * self._most // path[-1].used
