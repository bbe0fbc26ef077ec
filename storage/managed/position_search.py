"""Finding an entry by time with few reads.

The entry timestamp is broker_timestamp if the entry has that field, else publish_time. The search assumes that "older
than t" holds for a prefix of the log: true for broker timestamps while the broker's clock does not jump back; with the
producers' own clocks the search finds one of several boundaries (as in Pulsar). About log2(n) entries are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol.runs import EntryFlag
from magnetar.protocol.speed import entry_facts
from magnetar.storage.errors import CorruptEntryError, NoSuchEntryError, NoSuchLedgerError

if TYPE_CHECKING:
    from magnetar.storage.interfaces import LedgerStore
    from magnetar.storage.managed.ledger_map import LedgerMap
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Slab

__all__ = ["PositionSearch", "entry_timestamp"]

_U64 = 1 << 64


def entry_timestamp(slab: Slab, index: int) -> int | None:
    """Milliseconds since 1970; None when the entry has no broker timestamp and its metadata cannot be read."""
    facts = entry_facts(slab.data, slab.offsets, index, index + 1, False)
    stamped: int = memoryview(facts.broker_timestamp).cast("q")[0]
    if stamped >= 0:
        return stamped
    if facts.any_flags & EntryFlag.UNREADABLE:
        return None
    published: int = memoryview(facts.publish_time).cast("q")[0]
    return published if published >= 0 else published + _U64


class PositionSearch:
    """``entries_read`` counts the entries that searches have read, for tests of their cost."""

    def __init__(self, store: LedgerStore, ledgers: LedgerMap) -> None:
        self.entries_read = 0
        self._store = store
        self._ledgers = ledgers

    async def first_at_or_after(self, timestamp_ms: int, after: Position | None = None) -> Position:
        """Return the first entry behind ``after`` whose entry timestamp is at least ``timestamp_ms``; the end of the
        ledgers when all are older. With ``after`` the first entry behind decides alone if it is not older, whatever
        times follow.
        """
        ledgers = self._ledgers
        low = ledgers.ordinal_after(after) if after is not None else 0
        first = ledgers.first_position
        high = ledgers.total_entries
        looks_at_first = after is not None
        while low < high:
            middle = low if looks_at_first else (low + high) // 2
            looks_at_first = False
            is_older, probed = await self._is_older(middle, high, timestamp_ms)
            if ledgers.first_position != first:
                return await self.first_at_or_after(timestamp_ms, after)  # trimmed during the wait
            if is_older:
                low = probed + 1
            else:
                high = middle
        return ledgers.at(low) if low < ledgers.total_entries else ledgers.end

    async def _is_older(self, ordinal: int, high: int, timestamp_ms: int) -> tuple[bool, int]:
        """Return (whether the entry is older than ``timestamp_ms``, the ordinal of the entry that decided). For an
        entry without a time the next entry with a time decides.
        """
        while ordinal < min(high, self._ledgers.total_entries):  # fewer when ledgers are dropped meanwhile
            timestamp = await self._timestamp(self._ledgers.at(ordinal))
            if timestamp is not None:
                return timestamp < timestamp_ms, ordinal
            ordinal += 1
        return False, ordinal

    async def _timestamp(self, position: Position) -> int | None:
        self.entries_read += 1
        ledger_id, entry_id = position
        slab = self._store.read_cached(ledger_id, entry_id, entry_id, 1)
        if slab is None:
            try:
                slab = (await self._store.read(ledger_id, entry_id, entry_id, 1))[0]
            except CorruptEntryError:
                return None
            except (NoSuchLedgerError, NoSuchEntryError):
                if self._ledgers.is_valid(position):
                    raise
                return None
        return entry_timestamp(slab, entry_id - slab.first_entry_id)
