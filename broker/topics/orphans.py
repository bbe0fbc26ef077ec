"""The sweep of orphaned ledgers, once after the start: each kind of ledger owner lists the ledgers that it uses.

The sweep keeps the ledgers of kinds of owners that it does not know; such ledgers cost only space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.compaction.references import CompactionReferences
from magnetar.broker.topics.topic import Topic
from magnetar.delayed.catalogue import SnapshotReferences
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.managed.orphaned_ledgers import ManagedLedgerReferences, sweep_orphans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.broker.compaction.topic_compaction import TopicCompaction
    from magnetar.broker.topics.served_topic import ServedTopic
    from magnetar.storage.embedded.engine import EmbeddedStorage

__all__ = ["sweep"]


async def sweep(storage: EmbeddedStorage, loaded: Mapping[str, ServedTopic]) -> list[int]:
    """Delete ledgers from before the start that no owner names; returns their ids. Raises StorageError."""

    def compaction(name: str) -> TopicCompaction | None:
        topic_name = TopicName.from_persistence_name(name)
        topic = loaded.get(str(topic_name))
        return topic.compaction if isinstance(topic, Topic) else None

    metadata = storage.metadata
    references = (
        ManagedLedgerReferences(metadata),
        SnapshotReferences(metadata),
        CompactionReferences(metadata, compaction),
    )
    return await sweep_orphans(storage.ledgers, metadata, references, storage.recovery.newest_ledger_id)
