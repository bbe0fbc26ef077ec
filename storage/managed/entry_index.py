"""The broker index (PIP-90) of stored entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata
from magnetar.protocol.speed import after_prefix
from magnetar.storage import events
from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.interfaces import LedgerStore
    from magnetar.storage.managed.ledger_map import LedgerSlot

__all__ = ["LEDGER_INDEX", "broker_index", "index_after", "with_index"]

log = structlog.get_logger(__name__)

LEDGER_INDEX = "magnetar/index"
"""Property of a ledger in the stored list: broker index of its last message."""

_MAGIC_AND_SIZE_BYTES = 6
_MOST_AT_ONCE = 1024
_READ_BYTES = 1 << 20


def broker_index(body: memoryview) -> int:
    """Index of the entry's last message; -1 when the entry has none."""
    prefix_bytes = after_prefix(body)
    if not prefix_bytes:
        return -1
    metadata = BrokerEntryMetadata.FromString(bytes(body[_MAGIC_AND_SIZE_BYTES:prefix_bytes]))
    return metadata.index if metadata.HasField("index") else -1


def with_index(slot: LedgerSlot, index: int) -> None:
    """Add the broker index of the last message to the properties of a closed ledger: the next opening reads no
    entry.
    """
    slot.properties = {**slot.properties, LEDGER_INDEX: str(index)}
    slot.encoded = None


async def index_after(ledgers: LedgerStore, slots: Sequence[LedgerSlot], floor: int) -> int:
    """Return the broker index from which the index continues after the last entry of these ledgers; at least ``floor``.

    An entry without messages has no index. So the function searches from the newest entry backwards, ledger by ledger,
    for an entry with an index or a ledger with the property ``LEDGER_INDEX``. Each damaged entry behind that place,
    and each entry of a lost ledger, counts as one message.
    """
    damaged = 0
    for slot in reversed(slots):
        noted = slot.properties.get(LEDGER_INDEX)
        if noted is not None:
            return max(floor, int(noted) + damaged)
        end, count = slot.entries - 1, 1
        while end >= 0:
            first = max(0, end - count + 1)
            for index in reversed(await _indexes(ledgers, slot.ledger_id, first, end)):
                if index is None:
                    damaged += 1
                elif index >= 0:
                    return max(floor, index + damaged)
            end, count = first - 1, min(count * 4, _MOST_AT_ONCE)
    return floor + damaged


async def _indexes(ledgers: LedgerStore, ledger_id: int, first: int, last: int) -> list[int | None]:
    """Return the broker index of each entry; -1 for an entry without index, None for a damaged or lost entry."""
    found: list[int | None] = []
    while first + len(found) <= last:
        entry_id = first + len(found)
        try:
            slabs = await ledgers.read(ledger_id, entry_id, last, _READ_BYTES)
        except CorruptEntryError:
            log.warning(events.ENTRY_DAMAGED, ledger_id=ledger_id, entry_id=entry_id)
            found.append(None)
            continue
        except NoSuchLedgerError as error:
            log.warning(events.LEDGER_LOST, error=str(error))
            return [None] * (last - first + 1)
        for slab in slabs:
            span = slab.span(first + len(found), last)
            found += [broker_index(span.body(k)) for k in range(span.entries)]
    return found
