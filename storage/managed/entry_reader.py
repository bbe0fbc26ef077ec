"""Reading entries of a managed ledger: from the cache at once, or from the store with a wait.

``masks(ledger_id)`` returns the bitmaps of unwanted entries (acknowledged, delayed). They cost nothing while they have
no bits in the range of the read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.bitmaps import first_absent, runs_absent
from magnetar.storage.errors import StorageError
from magnetar.storage.position import Position
from magnetar.storage.slab import Slab, Span

if TYPE_CHECKING:
    from pyroaring import BitMap

    from magnetar.storage.interfaces import LedgerStore
    from magnetar.storage.managed.ledger_map import LedgerMap
    from magnetar.storage.managed.log_counters import LogCounters

__all__ = ["EntryReader", "Masks", "ReadLimits", "take", "without"]

Masks = Callable[[int], "Sequence[BitMap]"]


class ReadLimits(NamedTuple):
    """The bounds of a read: at most ``max_entries``, at most ``max_bytes`` (but always one entry), nothing behind
    ``upto``.
    """

    max_entries: int
    max_bytes: int
    upto: Position | None = None


@dataclass(slots=True)
class _Room:
    """The limits that remain during a read, and the spans read so far."""

    entries: int
    size_bytes: int
    spans: list[Span]

    @property
    def is_over(self) -> bool:
        return self.entries <= 0 or (self.size_bytes <= 0 and bool(self.spans))


class EntryReader:
    """Reads entries for all cursors of a managed ledger, and counts those that the cache lacks."""

    def __init__(self, store: LedgerStore, ledgers: LedgerMap, counters: LogCounters) -> None:
        self._store = store
        self._ledgers = ledgers
        self._counters = counters

    def read_cached(self, start: Position, limits: ReadLimits, masks: Masks) -> tuple[list[Span], Position, bool]:
        """Return (spans, position of the next read, whether the next wanted entry exists but is not in the cache)."""
        room = _Room(limits.max_entries, limits.max_bytes, [])
        position = start
        spans, last_confirmed = room.spans, self._ledgers.last_confirmed
        while room.entries > 0 and (room.size_bytes > 0 or not spans):
            place = self._place(position, limits.upto, masks)
            if place is None:
                if limits.upto is None:
                    position = max(position, self._ledgers.end)
                break
            ledger_id, first, last, left_out = place
            slab = self._store.read_cached(ledger_id, first, last, room.size_bytes)
            position = Position(ledger_id, first)
            if slab is None:
                return spans, position, True
            following = take(slab, first, last, left_out, room)
            if following == first:
                break
            position = Position(ledger_id, following)
            if position > last_confirmed:
                break
        return spans, position, False

    async def read_stored(
        self, start: Position, limits: ReadLimits, masks: Masks, floor: Callable[[], Position]
    ) -> tuple[list[Span], Position]:
        """Read entries of one ledger; return (spans, position of the next read). The spans are empty when no wanted
        entry is left in the range.

        ``floor()`` returns, after the wait, the position before which no entry is wanted any more.
        Raises CorruptEntryError(position) when the next wanted entry is damaged, StorageError.
        """
        place = self._place(start, limits.upto, masks)
        if place is None:
            return [], start
        ledger_id, first, last, _ = place
        last = min(last, first + limits.max_entries - 1)
        try:
            slabs = await self._store.read(ledger_id, first, last, limits.max_bytes)
        except StorageError:
            if self._ledgers.slot(ledger_id) is not None:
                self._counters.failed_reads += 1
                raise
            return [], start  # trimmed during the wait
        wanted = max(Position(ledger_id, first), floor())
        if wanted.ledger_id != ledger_id:
            return [], wanted
        room = _Room(limits.max_entries, limits.max_bytes, [])
        following = wanted.entry_id
        for slab in slabs:
            if room.is_over or following > last:
                break
            if following <= slab.last_entry_id:
                following = take(slab, following, last, masks(ledger_id), room)
        self._counters.read(room.spans)
        return room.spans, Position(ledger_id, following)

    def cached_at(self, positions: Sequence[Position]) -> list[Span] | None:
        """Return these entries, consecutive entries as one span; None when the cache lacks an entry. Precondition: the
        positions are ascending and exist.
        """
        spans: list[Span] = []
        slab: Slab | None = None
        k = 0
        length = len(positions)
        while k < length:
            ledger_id, entry_id = positions[k]
            if slab is None or not (
                slab.ledger_id == ledger_id and slab.first_entry_id <= entry_id <= slab.last_entry_id
            ):
                slab = self._store.read_cached(ledger_id, entry_id, entry_id, 1)
                if slab is None:
                    return None
            count = 1
            if k + 1 < length and positions[k + 1][1] == entry_id + 1:
                count = neighbours(positions, k, slab.last_entry_id - entry_id + 1)
            start = entry_id - slab.first_entry_id
            spans.append(Span(slab, start, start + count))
            k += count
        return spans

    async def stored_at(self, positions: Sequence[Position]) -> list[Span]:
        """Like ``cached_at``, but read entries that the cache lacks. Entries that no longer exist are left out."""
        spans: list[Span] = []
        slab: Slab | None = None
        is_cached = False
        for position in positions:
            ledger_id, entry_id = position
            if slab is None or not _holds(slab, position):
                slab = self._store.read_cached(ledger_id, entry_id, entry_id, 1)
                is_cached = slab is not None
            if slab is None:
                try:
                    slab = (await self._store.read(ledger_id, entry_id, entry_id, 1))[0]
                except StorageError:
                    if self._ledgers.is_valid(position):
                        self._counters.failed_reads += 1
                        raise
                    continue
            if not is_cached:
                self._counters.read((slab.span(entry_id, entry_id),))
            _add(spans, slab, entry_id - slab.first_entry_id)
        return spans

    def _place(
        self, position: Position, upto: Position | None, masks: Masks
    ) -> tuple[int, int, int, Sequence[BitMap]] | None:
        """Return (ledger, first wanted entry, last entry to read, bitmaps of unwanted entries) at or after the
        position; None when there is no wanted entry. The bitmaps are live: they are valid until the next wait.
        """
        ledger_id, entry_id = position
        entry_id = max(entry_id, 0)
        while True:
            slot = self._ledgers.slot(ledger_id)
            if slot is None or entry_id >= slot.entries:
                slot = self._ledgers.next_ledger(ledger_id)
                if slot is None:
                    return None
                ledger_id, entry_id = slot.ledger_id, 0
            last = slot.entries - 1
            if upto is not None:
                if (ledger_id, entry_id) > upto:
                    return None
                if ledger_id == upto.ledger_id:
                    last = min(last, upto.entry_id)
            unwanted = masks(ledger_id)
            first = first_absent(unwanted, entry_id, last + 1) if unwanted else entry_id
            if first <= last:
                return ledger_id, first, last, unwanted
            entry_id = last + 1


def take(slab: Slab, first: int, last: int, unwanted: Sequence[BitMap], room: _Room) -> int:
    """Add the wanted entries among ``first .. last`` of the slab to ``room``; return the entry id to continue with."""
    base = slab.first_entry_id
    stop = min(last + 1, base + slab.count)
    offsets = slab.offset_view
    for start, end in runs_absent(unwanted, first, stop) if unwanted else ((first, stop),):
        here = start - base
        fitting = bisect_right(offsets, offsets[here] + room.size_bytes, here + 1, end - base + 1) - 1 - here
        count = min(fitting, room.entries)
        if not room.spans:
            count = max(count, 1)
        if count <= 0:
            return start
        room.spans.append(Span(slab, here, here + count))
        room.entries -= count
        room.size_bytes -= offsets[here + count] - offsets[here]
        if start + count < end or room.is_over:
            return start + count
    return stop


def neighbours(positions: Sequence[Position], start: int, limit: int) -> int:
    """Return how many of the ascending positions from ``start`` on are consecutive entries, at most ``limit``."""
    ledger_id, entry_id = positions[start]

    def follow(count: int) -> bool:
        return positions[start + count - 1] == (ledger_id, entry_id + count - 1)

    high = min(limit, len(positions) - start)
    if high == 1 or not follow(2):
        return 1
    if follow(high):
        return high
    low = 2
    while low < high - 1:  # the first `low` positions are consecutive, the first `high` are not
        middle = (low + high) // 2
        if follow(middle):
            low = middle
        else:
            high = middle
    return low


def without(spans: Sequence[Span], is_unwanted: Callable[[Position], bool]) -> list[Span]:
    """Return the spans without the unwanted entries."""
    kept: list[Span] = []
    for slab, start, end in spans:
        for index in range(start, end):
            if not is_unwanted(slab.position(index)):
                _add(kept, slab, index)
    return kept


def _holds(slab: Slab, position: Position) -> bool:
    return slab.ledger_id == position.ledger_id and 0 <= position.entry_id - slab.first_entry_id < slab.count


def _add(spans: list[Span], slab: Slab, index: int) -> None:
    if spans and spans[-1].slab is slab and spans[-1].end == index:
        spans[-1] = Span(slab, spans[-1].start, index + 1)
    else:
        spans.append(Span(slab, index, index + 1))
