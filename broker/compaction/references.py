"""Which ledgers a topic's compaction names, for the sweep of orphaned ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.broker.compaction.record import CompactionRecord
from magnetar.broker.compaction.topic_compaction import COMPACTED, COMPACTION_CURSOR
from magnetar.storage.errors import CursorStateError
from magnetar.storage.managed.cursors.state import decode_state
from magnetar.storage.managed.cursors.store import cursor_path
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo
from magnetar.storage.managed.orphaned_ledgers import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.broker.compaction.topic_compaction import TopicCompaction
    from magnetar.storage.interfaces import MetadataStore

__all__ = ["CompactionReferences"]


class CompactionReferences:
    """See ``storage.orphaned_ledgers.References``. ``loaded`` returns the compaction of a loaded topic, by the name of
    its managed ledger.

    For a topic that is not loaded, only the cursor state within the metadata counts; when the state is in a cursor
    ledger, which the topic alone reads, the verdict is UNKNOWN.
    """

    def __init__(self, metadata: MetadataStore, loaded: Callable[[str], TopicCompaction | None]) -> None:
        self._metadata = metadata
        self._loaded = loaded

    async def verdict(self, ledger_id: int, properties: Mapping[str, str]) -> Verdict | None:
        name = properties.get(COMPACTED)
        if name is None:
            return None
        record = await self._metadata.get(cursor_path(name, COMPACTION_CURSOR))
        compaction = self._loaded(name)
        if compaction is not None:
            return Verdict.NAMED if ledger_id in compaction.ledger_ids else Verdict.FREE
        if record is None:
            return Verdict.OWNERLESS  # in doubt: a repair of the metadata does not make a lost record anew
        try:
            stored = ManagedCursorInfo.FromString(record[0])
            if stored.cursorsLedgerId != -1:
                return Verdict.UNKNOWN
            state = decode_state(stored.state)
        except (DecodeError, CursorStateError):
            return Verdict.UNKNOWN
        return Verdict.NAMED if ledger_id in CompactionRecord.of(state.properties).ledger_ids else Verdict.FREE
