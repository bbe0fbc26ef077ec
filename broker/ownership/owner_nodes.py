"""A cache of the nodes of bundles, kept current by watches: a lookup at a broker that does not serve the topic causes
no read of the metadata service. In a large cluster nearly every lookup is of this kind.

Cached values may be a moment old. A client that is directed to the previous owner looks the topic up again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from magnetar.storage.errors import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.coordination import Coordination

__all__ = ["OwnerNodes"]

_MOST_NODES: Final = 20_000
_WATCHED_WITHIN_S: Final = 10.0
"""The longest wait of a lookup for the watch: a watch is set once the metadata service answers, however late."""


class OwnerNodes:
    """The nodes of bundles that lookups have read. Missing nodes are not cached."""

    def __init__(self, metadata: Coordination, most_nodes: int = _MOST_NODES) -> None:
        self._metadata = metadata
        self._most_nodes = most_nodes
        self._watches: OrderedDict[str, Callable[[], None]] = OrderedDict()
        self._watched: set[str] = set()
        """The nodes whose watch is set."""
        self._values: dict[str, bytes] = {}
        self._changes = 0

    def knows(self, path: str) -> bool:
        """Whether ``get`` answers from memory."""
        return path in self._values

    async def get(self, path: str) -> bytes | None:
        """The node's value; None when there is no such node. Raises StorageError; when the metadata service does not
        answer, StorageUnavailableError in bounded time.
        """
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
        try:
            async with asyncio.timeout(_WATCHED_WITHIN_S):
                await self._metadata.watching()
        except TimeoutError as error:
            raise StorageUnavailableError(f"no watch of {path} within {_WATCHED_WITHIN_S:g} s") from error
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
