"""The broker index (PIP-90) of stored entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata
from magnetar.protocol.speed import after_prefix
from magnetar.storage import events
from magnetar.storage.errors import CorruptEntryError

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerStore

__all__ = ["broker_index", "index_of_last_entry"]

log = structlog.get_logger(__name__)

_MAGIC_AND_SIZE_BYTES = 6


def broker_index(body: memoryview) -> int:
    """Index of the entry's last message; -1 when the entry has none."""
    prefix_bytes = after_prefix(body)
    if not prefix_bytes:
        return -1
    metadata = BrokerEntryMetadata.FromString(bytes(body[_MAGIC_AND_SIZE_BYTES:prefix_bytes]))
    return metadata.index if metadata.HasField("index") else -1


async def index_of_last_entry(ledgers: LedgerStore, ledger_id: int, last_entry_id: int) -> int:
    """Broker index to go on from after this entry; -1 when there is no entry or it has no index.

    When the last entry is damaged, the one before it is asked, and so on; each damaged entry counts as one message.
    """
    for entry_id in range(last_entry_id, -1, -1):
        try:
            slabs = await ledgers.read(ledger_id, entry_id, entry_id, 1)
        except CorruptEntryError:
            log.warning(events.ENTRY_DAMAGED, ledger_id=ledger_id, entry_id=entry_id)
            continue
        index = broker_index(slabs[0].body(entry_id - slabs[0].first_entry_id))
        return index + last_entry_id - entry_id if index >= 0 else -1
    return -1
