"""Recent slabs of all ledgers, bounded in bytes, oldest out first. Loop only.

A slab counts with its whole buffer: a slab that was cut out of a piece of a ledger file keeps the piece in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.slab import Slab

__all__ = ["CacheStats", "EntryCache"]

_OVERHEAD_BYTES = 600
"""Approximate bytes of the Python objects around a slab of one entry."""
_PAGE_BITS = 6
_WIDE_BITS = 12
_NARROW_ENTRIES = 1 << _PAGE_BITS
_FREED_AT_ONCE = 64
_SPARE_PLACES = 64
_FIRST = attrgetter("first_entry_id")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since the start, and the present content."""

    hits: int
    hit_bytes: int
    """The bytes of the slabs found, counted whole."""
    misses: int
    evictions: int
    inserted_entries: int
    held_bytes: int
    held_slabs: int
    held_entries: int
    max_bytes: int


class _Shelf:
    """The slabs of one ledger, found by page of entry ids and by order of arrival (``queue``).

    A slab of up to 64 entries is in ``pages``, whose pages have 64 entry ids; a larger slab is in ``wide_pages`` of
    4,096 entry ids, so that it is on one or two pages as well.
    """

    __slots__ = ("dropped", "held_bytes", "held_entries", "pages", "queue", "wide_pages")

    def __init__(self) -> None:
        self.pages: dict[int, list[Slab]] = {}
        """Page -> slabs, ascending by first entry. A slab is on every page that contains one of its entries."""
        self.wide_pages: dict[int, list[Slab]] = {}
        self.queue: deque[tuple[int, Slab]] = deque()
        """(number, slab) in order of arrival; the number counts the arrivals of all ledgers."""
        self.held_bytes = self.held_entries = 0
        self.dropped = False

    def add(self, slab: Slab, number: int) -> bool:
        """Add the slab; return False, and add nothing, when the shelf already has a slab with its first entry."""
        first = slab.first_entry_id
        page, wide_page = self.pages.get(first >> _PAGE_BITS), self.wide_pages.get(first >> _WIDE_BITS)
        if (
            (page is not None and page[-1].last_entry_id >= first)
            or (wide_page is not None and wide_page[-1].last_entry_id >= first)
        ) and self.find(first) is not None:
            return False
        pages, bits = (self.pages, _PAGE_BITS) if slab.count <= _NARROW_ENTRIES else (self.wide_pages, _WIDE_BITS)
        for at in range(first >> bits, (slab.last_entry_id >> bits) + 1):
            page = pages.get(at)
            if page is None:
                pages[at] = [slab]
            elif page[-1].first_entry_id < first:
                page.append(slab)
            else:
                page.insert(bisect_right(page, first, key=_FIRST), slab)
        self.queue.append((number, slab))
        self.held_bytes += len(slab.data) + _OVERHEAD_BYTES
        self.held_entries += slab.count
        return True

    def find(self, entry_id: int) -> Slab | None:
        page = self.pages.get(entry_id >> _PAGE_BITS)
        if page is not None:
            slab: Slab | None = page[-1]
            if page[-1].first_entry_id > entry_id:
                index = bisect_right(page, entry_id, key=_FIRST) - 1
                slab = page[index] if index >= 0 else None
            if slab is not None and entry_id <= slab.last_entry_id:
                return slab
        page = self.wide_pages.get(entry_id >> _WIDE_BITS)
        if page is not None:
            slab = page[-1] if page[-1].first_entry_id <= entry_id else _before(page, entry_id)
            if slab is not None and entry_id <= slab.last_entry_id:
                return slab
        return None

    def remove_oldest(self) -> Slab:
        _, slab = self.queue.popleft()
        pages, bits = (self.pages, _PAGE_BITS) if slab.count <= _NARROW_ENTRIES else (self.wide_pages, _WIDE_BITS)
        for at in range(slab.first_entry_id >> bits, (slab.last_entry_id >> bits) + 1):
            page = pages[at]
            if len(page) == 1:
                del pages[at]
            else:
                index = 0 if page[0] is slab else bisect_right(page, slab.first_entry_id, key=_FIRST) - 1
                del page[index]
        self.held_bytes -= len(slab.data) + _OVERHEAD_BYTES
        self.held_entries -= slab.count
        return slab


def _before(page: list[Slab], entry_id: int) -> Slab | None:
    """Return the last slab of the page that begins at or before this entry."""
    index = bisect_right(page, entry_id, key=_FIRST) - 1
    return page[index] if index >= 0 else None


class EntryCache:
    """Slabs keyed by (ledger, entry), evicted first in, first out: readers read the tail of a ledger soon after it was
    written or never, and a read-ahead chunk once.

    Pieces of ledger files leave first where appended slabs would leave that memory holds in any case
    (``protected_bytes``): such an eviction would free no memory.

    The cost of a call does not grow with the number of slabs: a page has at most 64 slabs, the cache finds the oldest
    slab among the oldest slabs of the ledgers, and later calls of ``put``, ``put_piece`` and ``drop_ledger`` free the
    slabs of a deleted ledger a few at a time.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.protected_bytes: Callable[[], int] = int
        """The bytes of the newest appended slabs that are in memory outside the cache as well. The cache keeps them
        instead of pieces, up to half of its size.
        """
        self._shelves: dict[int, _Shelf] = {}
        """By ledger id; the pieces of a ledger are at ``~`` of its id."""
        self._oldest: list[tuple[int, _Shelf]] = []
        """A heap of (number, shelf): the number of the shelf's oldest slab, or of an older slab that was evicted."""
        self._oldest_pieces: list[tuple[int, _Shelf]] = []
        """The same of the shelves with pieces."""
        self._graves: list[_Shelf] = []
        self._arrivals = 0
        self._held_bytes = self._held_slabs = self._piece_bytes = self._buried_bytes = 0
        self._hits = self._hit_bytes = self._misses = self._evictions = 0
        self._inserted_entries = self._held_entries = 0

    def put(self, slab: Slab) -> None:
        """Add an appended slab unless its first entry is in such a slab; evict slabs while the cache is too large."""
        self._arrivals = number = self._arrivals + 1
        shelf = self._shelves.get(slab.ledger_id)
        if shelf is None:
            shelf = self._shelves[slab.ledger_id] = _Shelf()
            heappush(self._oldest, (number, shelf))
        if not shelf.add(slab, number):
            return
        self._held_slabs += 1
        self._held_entries += slab.count
        self._inserted_entries += slab.count
        self._held_bytes += len(slab.data) + _OVERHEAD_BYTES
        if self._graves:
            self._free_some()
        while self._held_bytes + self._buried_bytes > self.max_bytes and self._held_slabs:
            self._evict()

    def put_piece(self, slab: Slab) -> None:
        """Add a slab that was read from a file, unless its first entry is in the cache; evict slabs as ``put``."""
        if self.peek(slab.ledger_id, slab.first_entry_id) is not None:
            return
        self._arrivals = number = self._arrivals + 1
        key = ~slab.ledger_id
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = _Shelf()
            heappush(self._oldest_pieces, (number, shelf))
        shelf.add(slab, number)
        self._held_slabs += 1
        self._held_entries += slab.count
        self._inserted_entries += slab.count
        self._held_bytes += len(slab.data) + _OVERHEAD_BYTES
        self._piece_bytes += len(slab.data) + _OVERHEAD_BYTES
        if self._graves:
            self._free_some()
        while self._held_bytes + self._buried_bytes > self.max_bytes and self._held_slabs:
            self._evict()

    def get(self, ledger_id: int, entry_id: int) -> Slab | None:
        """Return the slab that contains this entry, or None; count the hit or miss."""
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
        slab = None if shelf is None else shelf.find(entry_id)
        if slab is None and self._piece_bytes:
            shelf = self._shelves.get(~ledger_id)
            slab = None if shelf is None else shelf.find(entry_id)
        return slab

    def drop_ledger(self, ledger_id: int) -> None:
        """Remove all slabs of a deleted ledger."""
        for key in (ledger_id, ~ledger_id):
            shelf = self._shelves.pop(key, None)
            if shelf is not None:
                self._bury(shelf)
                if key < 0:
                    self._piece_bytes -= shelf.held_bytes
        if len(self._oldest) + len(self._oldest_pieces) > 2 * len(self._shelves) + _SPARE_PLACES:
            self._oldest = [(shelf.queue[0][0], shelf) for key, shelf in self._shelves.items() if key >= 0]
            self._oldest_pieces = [(shelf.queue[0][0], shelf) for key, shelf in self._shelves.items() if key < 0]
            heapify(self._oldest)
            heapify(self._oldest_pieces)

    def stats(self) -> CacheStats:
        return CacheStats(
            self._hits,
            self._hit_bytes,
            self._misses,
            self._evictions,
            self._inserted_entries,
            self._held_bytes + self._buried_bytes,
            self._held_slabs,
            self._held_entries,
            self.max_bytes,
        )

    def _evict(self) -> None:
        heap = self._oldest_pieces if self._piece_bytes and self._piece_leaves_first() else self._oldest
        _oldest_number(heap)
        shelf = heap[0][1]
        slab = shelf.remove_oldest()
        size = len(slab.data) + _OVERHEAD_BYTES
        if heap is self._oldest_pieces:
            self._piece_bytes -= size
        if not shelf.queue:
            heappop(heap)
            del self._shelves[slab.ledger_id if heap is self._oldest else ~slab.ledger_id]
        self._held_slabs -= 1
        self._held_entries -= slab.count
        self._held_bytes -= size
        self._evictions += 1

    def _piece_leaves_first(self) -> bool:
        """Whether the oldest piece leaves before the oldest appended slab. Precondition: there is a piece."""
        appended_bytes = self._held_bytes - self._piece_bytes
        if not appended_bytes or _oldest_number(self._oldest_pieces) < _oldest_number(self._oldest):
            return True
        _, slab = self._oldest[0][1].queue[0]
        left_bytes = appended_bytes - len(slab.data) - _OVERHEAD_BYTES
        return appended_bytes <= self.max_bytes // 2 and left_bytes < self.protected_bytes()

    def _bury(self, shelf: _Shelf) -> None:
        shelf.dropped = True
        shelf.pages, shelf.wide_pages = {}, {}
        self._held_slabs -= len(shelf.queue)
        self._held_entries -= shelf.held_entries
        self._held_bytes -= shelf.held_bytes
        self._buried_bytes += shelf.held_bytes
        self._graves.append(shelf)
        self._free_some()

    def _free_some(self) -> None:
        """Free a few slabs of deleted ledgers: freeing all of them at once would block the event loop."""
        for _ in range(_FREED_AT_ONCE):
            while self._graves and not self._graves[-1].queue:
                self._graves.pop()
            if not self._graves:
                return
            _, slab = self._graves[-1].queue.popleft()
            self._buried_bytes -= len(slab.data) + _OVERHEAD_BYTES


def _oldest_number(heap: list[tuple[int, _Shelf]]) -> int:
    """Bring the shelf with the oldest slab to the front of the heap; returns the number of the slab. Precondition: a
    shelf of the heap has slabs.
    """
    while True:
        number, shelf = heap[0]
        if shelf.dropped:
            heappop(heap)
        elif shelf.queue[0][0] != number:
            heapreplace(heap, (shelf.queue[0][0], shelf))
        else:
            return number
