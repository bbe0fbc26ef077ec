"""Bounds the large values of the metadata, which are in memory as long as they are stored: properties of topics and
subscriptions, schemas, policies. A role chooses their sizes, so without a bound the roles of a tenant could fill the
memory, and that of each later start.

Beyond the bound an owner with more than an even share adds no large values. A changed value may always become shorter.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LargeValues"]

SMALL_BYTES: Final = 1 << 10
"""The bytes of a value that do not count: a node needs hundreds of bytes beside them."""
_ROOTS: Final = (
    "/managed-ledgers/",
    "/schemas/",
    "/admin/policies/",
    "/admin/topic-policies/",
    "/admin/partitioned-topics/",
)
"""The first name below names the owner of a node, the tenant."""


class LargeValues:
    """The bytes of large values by owner."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._by_owner: Counter[str] = Counter()
        self.total_bytes = 0

    def count_all(self, nodes: Mapping[str, tuple[bytes, int]]) -> None:
        """Count the values of these nodes."""
        for path, (value, _) in nodes.items():
            if len(value) > SMALL_BYTES:
                self.changed(path, 0, len(value))

    def changed(self, path: str, before: int, after: int) -> None:
        """Count a node whose value has so many bytes instead of those before; 0: no node."""
        more = max(0, after - SMALL_BYTES) - max(0, before - SMALL_BYTES)
        if not more or not (owner := owner_of(path)):
            return
        self.total_bytes += more
        self._by_owner[owner] += more
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def has_room(self, path: str, growth: int) -> bool:
        """Whether the value of the node may grow by so many bytes."""
        if growth <= SMALL_BYTES or self.total_bytes + growth <= self._most:
            return True
        if not (owner := owner_of(path)):
            return True
        owners = len(self._by_owner) + (owner not in self._by_owner)
        return self._by_owner[owner] + growth <= self._most // owners


def owner_of(path: str) -> str:
    """Return the owner of a node; empty for a node of the broker, which does not count."""
    for root in _ROOTS:
        if path.startswith(root):
            return path[len(root) :].partition("/")[0]
    return ""
