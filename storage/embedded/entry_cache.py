"""Recent slabs of all ledgers, bounded in bytes, oldest out first. Loop only."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.slab import Slab

__all__ = ["CacheStats", "EntryCache"]

_OVERHEAD_BYTES = 600
"""Python objects around a slab of one entry, roughly."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since start, and what is held now."""

    hits: int
    hit_bytes: int
    """Of the slabs found, whole."""
    misses: int
    evictions: int
    held_bytes: int
    held_slabs: int
    max_bytes: int


class _Shelf:
    """Slabs of one ledger, ascending by first entry, not overlapping."""

    __slots__ = ("firsts", "slabs")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.slabs: list[Slab] = []


class EntryCache:
    """Keyed by (ledger, entry). First in, first out: a tail is read soon after it was written or never, and
    a read-ahead chunk once.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._shelves: dict[int, _Shelf] = {}
        self._order: deque[Slab] = deque()
        self._held_bytes = 0
        self._hits = self._hit_bytes = self._misses = self._evictions = 0

    def put(self, slab: Slab) -> None:
        """Keep the slab, unless its first entry is in the cache already; the oldest slabs go when it gets too much."""
        shelf = self._shelves.get(slab.ledger_id)
        if shelf is None:
            shelf = self._shelves[slab.ledger_id] = _Shelf()
        if not shelf.slabs or shelf.slabs[-1].last_entry_id < slab.first_entry_id:
            shelf.firsts.append(slab.first_entry_id)
            shelf.slabs.append(slab)
        else:
            index = bisect_right(shelf.firsts, slab.first_entry_id)
            if index and shelf.slabs[index - 1].last_entry_id >= slab.first_entry_id:
                return
            shelf.firsts.insert(index, slab.first_entry_id)
            shelf.slabs.insert(index, slab)
        self._order.append(slab)
        self._held_bytes += slab.size_bytes + _OVERHEAD_BYTES
        while self._held_bytes > self.max_bytes and self._order:
            self._evict()

    def get(self, ledger_id: int, entry_id: int) -> Slab | None:
        """The slab with this entry."""
        slab = self.peek(ledger_id, entry_id)
        if slab is None:
            self._misses += 1
        else:
            self._hits += 1
            self._hit_bytes += slab.size_bytes
        return slab

    def peek(self, ledger_id: int, entry_id: int) -> Slab | None:
        """``get`` without counting."""
        shelf = self._shelves.get(ledger_id)
        if shelf is None:
            return None
        index = bisect_right(shelf.firsts, entry_id) - 1
        if index < 0:
            return None
        slab = shelf.slabs[index]
        return slab if entry_id <= slab.last_entry_id else None

    def drop_ledger(self, ledger_id: int) -> None:
        """Forget the ledger (deleted)."""
        shelf = self._shelves.pop(ledger_id, None)
        if shelf is not None:
            gone = set(map(id, shelf.slabs))
            self._order = deque(slab for slab in self._order if id(slab) not in gone)
            self._held_bytes -= sum(slab.size_bytes + _OVERHEAD_BYTES for slab in shelf.slabs)

    def stats(self) -> CacheStats:
        return CacheStats(
            self._hits,
            self._hit_bytes,
            self._misses,
            self._evictions,
            self._held_bytes,
            len(self._order),
            self.max_bytes,
        )

    def _evict(self) -> None:
        slab = self._order.popleft()
        shelf = self._shelves[slab.ledger_id]
        index = 0 if shelf.slabs[0] is slab else bisect_right(shelf.firsts, slab.first_entry_id) - 1
        del shelf.slabs[index], shelf.firsts[index]
        if not shelf.slabs:
            del self._shelves[slab.ledger_id]
        self._held_bytes -= slab.size_bytes + _OVERHEAD_BYTES
        self._evictions += 1
