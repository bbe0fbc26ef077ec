"""Which broker has a bundle, read once and followed by a watch: a lookup at a broker that does not serve the topic
costs the metadata service nothing. In a large cluster that is nearly every lookup.

Cached values may be a moment old. A client that is sent to the owner before looks the topic up again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.coordination import Coordination

__all__ = ["OwnerNodes"]

_MOST_NODES: Final = 20_000


class OwnerNodes:
    """Nodes of bundles that lookups have read; missing nodes are read each time."""

    def __init__(self, metadata: Coordination, most_nodes: int = _MOST_NODES) -> None:
        self._metadata = metadata
        self._most_nodes = most_nodes
        self._watches: OrderedDict[str, Callable[[], None]] = OrderedDict()
        self._watched: set[str] = set()
        """The nodes whose watch is in place."""
        self._values: dict[str, bytes] = {}
        self._changes = 0

    async def get(self, path: str) -> bytes | None:
        """The node's value; None when there is no such node. Raises StorageError."""
        value = self._values.get(path)
        if value is not None:
            return value
        await self._watch(path)
        changes = self._changes
        found = await self._metadata.get(path)
        if found is None:
            return None
        if changes == self._changes and path in self._watched:
            self._values[path] = found[0]
        return found[0]

    def close(self) -> None:
        while self._watches:
            self._forget_oldest()

    async def _watch(self, path: str) -> None:
        if path in self._watched:
            return
        if path not in self._watches:
            self._watches[path] = self._metadata.watch(path, self._changed)
            if len(self._watches) > self._most_nodes:
                self._forget_oldest()
        await self._metadata.watching()
        if path in self._watches:
            self._watched.add(path)

    def _forget_oldest(self) -> None:
        path, stop = self._watches.popitem(last=False)
        stop()
        self._watched.discard(path)
        self._values.pop(path, None)

    def _changed(self, path: str) -> None:
        self._changes += 1
        self._values.pop(path, None)
