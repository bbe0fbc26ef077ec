"""Namespace isolation policies of clusters, where Apache Pulsar keeps them:
``/admin/clusters/<cluster>/namespaceIsolationPolicies``, name -> policy. Memory has a copy, which changes after the
write is durable.

A node that cannot be read at the start counts as a node without policies, as for the placement of Apache Pulsar, and
no change replaces it.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import structlog

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import UNREADABLE, UnreadableRecordError
from magnetar.storage.errors import BadVersionError, NoNodeError
from magnetar.storage.interfaces import MUST_NOT_EXIST

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["ISOLATION_NODE", "IsolationPolicies"]

ISOLATION_NODE: Final = "namespaceIsolationPolicies"
Policies = dict[str, dict[str, Any]]
log = structlog.get_logger(__name__)


class IsolationPolicies:
    """The isolation policies by cluster. Other brokers write them too: ``load`` reads them again."""

    def __init__(self, metadata: "MetadataStore", clusters: str) -> None:
        self._metadata, self._clusters = metadata, clusters
        self._known: dict[str, tuple[Policies, int]] = {}
        self._unreadable: set[str] = set()
        """Clusters whose policies could not be read, and had no earlier value."""

    def get(self, cluster: str) -> Policies | None:
        """The policies of the cluster; None: it never had a policy. Raises UnreadableRecordError."""
        if cluster in self._unreadable:
            raise wire_refusals.RECORD_UNREADABLE.error(path=self._path(cluster))
        known = self._known.get(cluster)
        return None if known is None else known[0]

    def in_force(self, cluster: str) -> Policies:
        """The policies that decide about placement: none for a cluster whose policies cannot be read."""
        return {} if cluster in self._unreadable else self.get(cluster) or {}

    async def load(self, cluster: str) -> None:
        """Raises StorageError, and UnreadableRecordError while the last readable policies stay in force."""
        found = await self._metadata.get(self._path(cluster))
        if found is None:
            self._known.pop(cluster, None)
        else:
            try:
                self._known[cluster] = msgspec.json.decode(found[0] or b"{}", type=Policies), found[1]
            except UNREADABLE as error:
                if cluster not in self._known:
                    self._unreadable.add(cluster)
                raise wire_refusals.RECORD_UNREADABLE.error(path=self._path(cluster)) from error
        self._unreadable.discard(cluster)

    async def load_at_start(self, cluster: str) -> None:
        """As ``load``, and only report if the policies cannot be read."""
        try:
            await self.load(cluster)
        except UnreadableRecordError as error:
            log.warning("record.not_readable", path=self._path(cluster), reason=str(error.__cause__))

    async def update(self, cluster: str, change: Callable[[Policies], Policies], default: Policies) -> None:
        """Store ``change(policies)``, or ``change(default)`` if the cluster has no policies. Raises as ``load``."""
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
        unreadable = cluster in self._unreadable
        self._unreadable.discard(cluster)
        if self._known.pop(cluster, None) is not None or unreadable:
            with contextlib.suppress(NoNodeError):
                await self._metadata.delete(self._path(cluster))

    def _path(self, cluster: str) -> str:
        return f"{self._clusters}/{quote(cluster, safe='')}/{ISOLATION_NODE}"
