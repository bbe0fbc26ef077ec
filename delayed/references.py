"""Which snapshots' ledgers a topic's catalogue names, for the sweep of orphaned ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.delayed.catalogue import catalogue_path, decode
from magnetar.delayed.errors import CatalogueError
from magnetar.delayed.snapshot_store import COMPONENT
from magnetar.storage.managed.orphaned_ledgers import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.storage.interfaces import MetadataStore

__all__ = ["SnapshotReferences"]


class SnapshotReferences:
    """See ``storage.orphaned_ledgers.References``."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def verdict(self, ledger_id: int, properties: Mapping[str, str]) -> Verdict | None:
        if properties.get("component") != COMPONENT:
            return None
        name = properties.get("pulsar/managed-ledger")
        if name is None:
            return Verdict.UNKNOWN
        found = await self._metadata.get(catalogue_path(name))
        if found is None:
            return Verdict.OWNERLESS
        try:
            record = decode(found[0])
        except CatalogueError:
            return Verdict.UNKNOWN
        named = ledger_id in record.doomed or any(bucket.ledger_id == ledger_id for bucket in record.buckets)
        return Verdict.NAMED if named else Verdict.FREE
