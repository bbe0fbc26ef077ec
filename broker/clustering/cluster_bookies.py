"""The bookies of a cluster for its brokers: their racks and groups, and which groups a namespace keeps its ledgers on.

The nodes are those of Apache Pulsar: ``/bookies`` with the racks, ``bookieAffinityGroup`` in
``/admin/local-policies/<namespace>``. The broker reads both for each new ledger, whose metadata it writes to the same
service anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from magnetar.bookkeeper.bookies.isolation import IsolationGroups, isolation_groups
from magnetar.broker.errors import UNREADABLE, MetadataError
from magnetar.broker.ownership.bundle_map import LOCAL_POLICIES
from magnetar.broker.policies.values import BookieAffinity
from magnetar.storage.errors import BadVersionError
from magnetar.storage.interfaces import MUST_NOT_EXIST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.policies.values import BundlesData
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["MANAGED_LEDGER", "ClusterBookies"]

log = structlog.get_logger(__name__)

_RACKS: Final = "/bookies"
_GROUP: Final = "bookieAffinityGroup"
MANAGED_LEDGER: Final = "pulsar/managed-ledger"
"""Property of a ledger: the name of its managed ledger."""
_ATTEMPTS: Final = 7
"""The attempts of a change while other clients change the node at the same time."""

Racks = dict[str, dict[str, dict[str, str]]]


class ClusterBookies:
    """See ``BookiesApi``. `strict`: ledgers of namespaces without groups get bookies of no group alone."""

    def __init__(
        self,
        metadata: MetadataStore,
        ledgers_root: str,
        default_bundles: Callable[[str], BundlesData | None],
        *,
        strict: bool,
    ) -> None:
        self._metadata, self._cookies = metadata, f"{ledgers_root}/cookies"
        self._default_bundles, self._strict = default_bundles, strict

    async def known(self) -> list[str]:
        return sorted(await self._metadata.children(self._cookies))

    async def racks(self) -> Racks:
        return (await self._read_racks())[0]

    async def change_racks(self, change: Callable[[Racks], Racks]) -> None:
        for _ in range(_ATTEMPTS):
            groups, version = await self._read_racks()
            try:
                await self._metadata.put(_RACKS, msgspec.json.encode(change(groups)), version)
            except BadVersionError:
                continue
            return
        raise MetadataError("The racks of bookies are being changed by others")

    async def affinity(self, namespace: str) -> tuple[bool, BookieAffinity | None]:
        found = await self._metadata.get(f"{LOCAL_POLICIES}/{namespace}")
        return found is not None, None if found is None else _affinity_in(namespace, found[0])

    async def set_affinity(self, namespace: str, groups: BookieAffinity | None) -> None:
        path = f"{LOCAL_POLICIES}/{namespace}"
        for _ in range(_ATTEMPTS):
            found = await self._metadata.get(path)
            if found is None:
                node: dict[str, object] = {"bundles": self._default_bundles(namespace), "migrated": False}
            else:
                node = _decoded(namespace, found[0])
            node.pop(_GROUP, None)
            if groups is not None:
                names = msgspec.to_builtins(groups)
                node[_GROUP] = {key: value for key, value in names.items() if value is not None}
            try:
                await self._metadata.put(path, msgspec.json.encode(node), MUST_NOT_EXIST if found is None else found[1])
            except BadVersionError:
                continue
            return
        raise MetadataError(f"The local policies of namespace {namespace} are being changed by others")

    async def isolation_of(self, properties: Mapping[str, str]) -> IsolationGroups | None:
        """Return the groups for a new ledger with these properties; None: the groups of the client. Raises
        StorageError.
        """
        name = properties.get(MANAGED_LEDGER)
        if name is None:
            return None
        namespace = "/".join(name.split("/")[:2])
        try:
            groups = (await self.affinity(namespace))[1]
        except MetadataError as error:
            log.warning("bookies.affinity_not_read", namespace=namespace, error=str(error))
            return None
        if groups is not None:
            return isolation_groups(
                groups.bookkeeper_affinity_group_primary, groups.bookkeeper_affinity_group_secondary
            )
        return IsolationGroups() if self._strict else None

    async def _read_racks(self) -> tuple[Racks, int]:
        found = await self._metadata.get(_RACKS)
        if found is None:
            return {}, MUST_NOT_EXIST
        try:
            return msgspec.json.decode(found[0] or b"{}", type=Racks), found[1]
        except UNREADABLE as error:
            raise MetadataError(f"The node {_RACKS} cannot be read: {error}") from error


def _affinity_in(namespace: str, data: bytes) -> BookieAffinity | None:
    try:
        return msgspec.convert(_decoded(namespace, data).get(_GROUP), BookieAffinity | None)
    except msgspec.ValidationError as error:
        raise MetadataError(f"The bookie affinity of namespace {namespace} cannot be read") from error


def _decoded(namespace: str, data: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except UNREADABLE as error:
        raise MetadataError(f"The local policies of namespace {namespace} cannot be read") from error
