"""Namespace isolation policies of clusters, where Apache Pulsar keeps them:
``/admin/clusters/<cluster>/namespaceIsolationPolicies``, name -> policy. Memory has a copy, which changes after the
write is durable.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from magnetar.storage.errors import BadVersionError, NoNodeError
from magnetar.storage.interfaces import MUST_NOT_EXIST

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["ISOLATION_NODE", "IsolationPolicies"]

ISOLATION_NODE: Final = "namespaceIsolationPolicies"
Policies = dict[str, dict[str, Any]]


class IsolationPolicies:
    """The isolation policies by cluster. Other brokers write them too: ``load`` reads them again."""

    def __init__(self, metadata: "MetadataStore", clusters: str) -> None:
        self._metadata, self._clusters = metadata, clusters
        self._known: dict[str, tuple[Policies, int]] = {}

    def get(self, cluster: str) -> Policies | None:
        """The policies of the cluster; None: it never had a policy."""
        known = self._known.get(cluster)
        return None if known is None else known[0]

    async def load(self, cluster: str) -> None:
        """Raises StorageError, msgspec.DecodeError."""
        found = await self._metadata.get(self._path(cluster))
        if found is None:
            self._known.pop(cluster, None)
        else:
            self._known[cluster] = msgspec.json.decode(found[0] or b"{}", type=Policies), found[1]

    async def update(self, cluster: str, change: Callable[[Policies], Policies], default: Policies) -> None:
        """Store ``change(policies)``, or ``change(default)`` if the cluster has no policies. Raises StorageError."""
        while True:
            known, version = self._known.get(cluster, (default, MUST_NOT_EXIST))
            policies = change(known)
            try:
                stored = await self._metadata.put(self._path(cluster), msgspec.json.encode(policies), version)
            except BadVersionError:
                await self.load(cluster)
                continue
            self._known[cluster] = policies, stored
            return

    async def forget(self, cluster: str) -> None:
        """Delete the node of policies: ZooKeeper deletes no cluster that has child nodes. Raises StorageError."""
        if self._known.pop(cluster, None) is not None:
            with contextlib.suppress(NoNodeError):
                await self._metadata.delete(self._path(cluster))

    def _path(self, cluster: str) -> str:
        return f"{self._clusters}/{quote(cluster, safe='')}/{ISOLATION_NODE}"
