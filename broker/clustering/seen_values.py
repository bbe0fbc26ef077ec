"""The bound of large values in the shared metadata, as far as this broker sees them.

The metadata of a cluster are in the memory of ZooKeeper, and a role chooses the sizes of its values: properties of
topics and subscriptions, policies, grants. No broker knows all values. Each broker counts the large values that it
reads and writes, those of a topic until the topic closes, and then refuses a large value by the rules of a broker alone
(``LargeValues``). So the roles of a tenant have at most this bound at each broker.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from magnetar.storage.embedded.metadata.large_values import SMALL_BYTES, LargeValues, owner_of
from magnetar.storage.errors import StorageError, StorageFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SeenValues"]

_LOGS: Final = "/managed-ledgers/"
_LOG_PARTS: Final = 6
"""The parts of the path of a log: /managed-ledgers/tenant/namespace/domain/topic."""
_MOST_NODES: Final = 100_000
"""The nodes with large values that are counted; the values read first are forgotten beyond them."""


class SeenValues:
    """The sizes of the large values that this broker has seen."""

    def __init__(self, most_bytes: int, most_nodes: int = _MOST_NODES) -> None:
        self._large = LargeValues(most_bytes)
        self._most_nodes = most_nodes
        self._sizes: dict[str, int] = {}
        self._by_log: dict[str, set[str]] = {}

    @property
    def total_bytes(self) -> int:
        return self._large.total_bytes

    @contextlib.contextmanager
    def growing(self, path: str, size: int) -> Iterator[None]:
        """Count the node with a value of so many bytes, as it was before if the block, which stores the value, fails.
        Raises StorageFullError when the node may not have that value.
        """
        before = self._sizes.get(path, 0)
        if size > SMALL_BYTES and not self._large.has_room(path, size - before):
            raise StorageFullError(
                "the large values of this tenant in the metadata take all the room that they may take"
            )
        self.saw(path, size)  # at once, since many creations are under way at the same time
        try:
            yield
        except StorageError:
            self.saw(path, before)
            raise

    def saw(self, path: str, size: int) -> None:
        """Count the node with a value of so many bytes; 0: no node."""
        before = self._sizes.pop(path, 0)
        if before or (size > SMALL_BYTES and owner_of(path)):
            self._count(path, before, size)
            if len(self._sizes) > self._most_nodes:
                self.saw(next(iter(self._sizes)), 0)

    def log_closed(self, managed_ledger: str) -> None:
        """Forget the values of a topic that another broker may change from now on."""
        for path in list(self._by_log.get(_LOGS + managed_ledger, ())):
            self.saw(path, 0)

    def _count(self, path: str, before: int, size: int) -> None:
        self._large.changed(path, before, size)
        log = _log_of(path)
        if size > SMALL_BYTES:
            self._sizes[path] = size
            if log:
                self._by_log.setdefault(log, set()).add(path)
        elif log:
            paths = self._by_log[log]
            paths.discard(path)
            if not paths:
                del self._by_log[log]


def _log_of(path: str) -> str:
    return "/".join(path.split("/")[:_LOG_PARTS]) if path.startswith(_LOGS) else ""
