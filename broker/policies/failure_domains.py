"""Failure domains of clusters, where Apache Pulsar keeps them: ``/admin/clusters/<cluster>/failureDomain/<name>``.

Each failure domain is a list of brokers. Memory has a copy, which changes after the write is durable.
"""

import contextlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec
import structlog

from magnetar.broker.errors import UNREADABLE
from magnetar.storage.errors import NoNodeError

if TYPE_CHECKING:
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["DOMAINS_NODE", "FailureDomains"]

log = structlog.get_logger(__name__)

DOMAINS_NODE: Final = "failureDomain"
Domains = dict[str, dict[str, Any]]


class FailureDomains:
    """The failure domains by cluster. Other brokers write them too: ``load`` reads them again."""

    def __init__(self, metadata: "MetadataStore", clusters: str) -> None:
        self._metadata, self._clusters = metadata, clusters
        self._known: dict[str, Domains] = {}

    def get(self, cluster: str) -> Domains:
        return self._known.get(cluster, {})

    def brokers(self, cluster: str) -> dict[str, str]:
        """Broker id -> domain."""
        found: dict[str, str] = {}
        for name, each in self.get(cluster).items():
            brokers = each.get("brokers")
            found |= (
                {broker: name for broker in brokers if isinstance(broker, str)} if isinstance(brokers, list) else {}
            )
        return found

    async def load(self, cluster: str) -> None:
        """Read all domains; ignore unreadable nodes, so that they do not prevent the start. Raises StorageError."""
        found: Domains = {}
        for child in await self._metadata.children(f"{self._clusters}/{quote(cluster, safe='')}/{DOMAINS_NODE}"):
            name = unquote(child)
            node = await self._metadata.get(self._path(cluster, name))
            try:
                if node is not None:
                    found[name] = msgspec.json.decode(node[0] or b"{}", type=dict[str, Any])
            except UNREADABLE as error:
                log.warning("failure_domain.unreadable", cluster=cluster, domain=name, error=str(error))
        self._known[cluster] = found

    async def put(self, cluster: str, name: str, domain: dict[str, Any]) -> None:
        """Raises StorageError."""
        await self._metadata.put(self._path(cluster, name), msgspec.json.encode(domain))
        self._known[cluster] = self.get(cluster) | {name: domain}

    async def delete(self, cluster: str, name: str) -> None:
        """Delete the domain; no error when it does not exist. Raises StorageError."""
        with contextlib.suppress(NoNodeError):
            await self._metadata.delete(self._path(cluster, name))
        self._known[cluster] = {key: each for key, each in self.get(cluster).items() if key != name}

    async def forget(self, cluster: str) -> None:
        """Delete all domains: ZooKeeper deletes no cluster that has a domain. Raises StorageError."""
        for name in list(self.get(cluster)):
            await self.delete(cluster, name)
        with contextlib.suppress(NoNodeError):
            await self._metadata.delete(f"{self._clusters}/{quote(cluster, safe='')}/{DOMAINS_NODE}")
        self._known.pop(cluster, None)

    def _path(self, cluster: str, name: str) -> str:
        return f"{self._clusters}/{quote(cluster, safe='')}/{DOMAINS_NODE}/{quote(name, safe='')}"
