"""Reads of a backlog: whole chunks for a reader that goes through a ledger, and the next chunk while a chunk is
delivered.

A dispatcher asks for a hundred entries at a time. A request to a bookie for a hundred entries takes as long as a
request for a thousand. A read that continues the previous read therefore takes a chunk and begins to read the next
chunk. The cache holds the chunks: at most one chunk ahead of each ledger, and a bounded number of chunks at a time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from magnetar.bookkeeper.background import Background
from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from magnetar.bookkeeper.ledgers.reader import LedgerReader
    from magnetar.storage.entry_cache import EntryCache

__all__ = ["ReadAhead"]

CHUNK_BYTES: Final = 1 << 20
_MOST_CHUNKS: Final = 32
"""The most chunks that are read at the same time."""
_MOST_LEDGERS: Final = 1000
"""The most ledgers for which the position of the last read is kept."""
_MOST_ENTRIES: Final = 10_000


class ReadAhead:
    """Reads chunks of entries into the cache. Loop only."""

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._background = Background("read ahead")
        self._expected: OrderedDict[int, int] = OrderedDict()
        """Ledger id -> the entry behind the last read."""
        self._fronts: dict[int, tuple[int, LedgerReader]] = {}
        """Ledger id -> the first entry of the chunk that is furthest ahead; a read of that chunk begins the next
        chunk.
        """
        self._running: dict[tuple[int, int], asyncio.Task[Slab]] = {}

    async def read(self, reader: LedgerReader, first: int, last: int, max_bytes: int) -> Slab:
        """Return entries from `first` on, at least one; up to `last`, or further for a reader that goes through the
        ledger.

        Raises as ``LedgerReader.read``.
        """
        ledger_id = reader.ledger_id
        running = self._running.get((ledger_id, first))
        if running is not None:
            try:
                slab = await asyncio.shield(running)
            except BookKeeperError:
                pass  # the error is about the moment when the read began: read again
            else:
                self._go_on(reader, slab)
                return slab
        goes_through = self._expected.get(ledger_id) == first
        if goes_through:
            last, max_bytes = min(first + _MOST_ENTRIES, reader.last_add_confirmed), max(max_bytes, CHUNK_BYTES)
        slab = await self._fetch(reader, first, last, max_bytes)
        self._expect(ledger_id, slab.last_entry_id + 1)
        if goes_through:
            self._go_on(reader, slab)
        return slab

    def touched(self, slab: Slab) -> None:
        """Called when a reader gets this slab from the cache: begins the next chunk if the slab is furthest ahead."""
        front = self._fronts.get(slab.ledger_id)
        if front is not None and front[0] == slab.first_entry_id:
            self._go_on(front[1], slab)

    def forget(self, ledger_id: int) -> None:
        self._expected.pop(ledger_id, None)
        self._fronts.pop(ledger_id, None)

    async def close(self) -> None:
        await self._background.close()

    def _go_on(self, reader: LedgerReader, slab: Slab) -> None:
        """Begin to read the entries behind the slab."""
        ledger_id, first = slab.ledger_id, slab.last_entry_id + 1
        self._fronts.pop(ledger_id, None)
        if first > reader.last_add_confirmed or len(self._running) >= _MOST_CHUNKS:
            return
        where = (ledger_id, first)
        if where in self._running or self._cache.peek(ledger_id, first) is not None:
            return
        self._fronts[ledger_id] = (first, reader)
        last = min(first + _MOST_ENTRIES, reader.last_add_confirmed)
        task = self._running[where] = self._background.awaited(
            self._fetch(reader, first, last, CHUNK_BYTES), f"ledger {ledger_id}"
        )
        task.add_done_callback(lambda ended: self._ended(where, ended))

    def _ended(self, where: tuple[int, int], task: asyncio.Task[Slab]) -> None:
        del self._running[where]
        ledger_id, first = where
        if task.cancelled() or task.exception() is not None:
            self._fronts.pop(ledger_id, None)
        elif self._expected.get(ledger_id) == first:
            self._expect(ledger_id, task.result().last_entry_id + 1)

    async def _fetch(self, reader: LedgerReader, first: int, last: int, max_bytes: int) -> Slab:
        found = await reader.read_records(first, last, max(max_bytes, 1))
        slab = Slab(reader.ledger_id, found.first, found.data, found.offsets)
        self._cache.put(slab)
        return slab

    def _expect(self, ledger_id: int, entry_id: int) -> None:
        self._expected[ledger_id] = entry_id
        self._expected.move_to_end(ledger_id)
        if len(self._expected) > _MOST_LEDGERS:
            self.forget(next(iter(self._expected)))
