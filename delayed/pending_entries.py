"""Which entries of a topic are not yet due: one bitmap per ledger. Pure.

The bitmaps decide: an entry fires only while its bit is set, and firing clears the bit. Runs and segments may therefore
name an entry twice, or name a fired entry, without harm.
"""

from __future__ import annotations

from array import array
from itertools import compress, islice, repeat
from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.delayed.sorted_run import Columns
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from magnetar.delayed.bitmap_shelf import BitmapShelf, Place

    Rows = Sequence[tuple[int, int]]
    """Entries of a ledger: the entry id of each and its deliver_at in ms."""

__all__ = ["PendingEntries", "bitmap_bytes", "by_ledger"]

_NONE_LOST: frozenset[int] = frozenset()
_FEW = 16
_ENTRY_IDS = 1 << 32
"""Entry ids that a bitmap can hold; administrators ask for any number."""
_BITMAP_OBJECT_BYTES = 120
_PLACE_BYTES = 250
_MEASURED_AT_ONCE = 64
_PUT_AWAY_AT_ONCE = 16


class PendingEntries:
    """Entries pending delivery, as bitmaps by ledger. Counts come from the bitmaps.

    With a shelf, bitmaps without recent use may lie there. A bitmap that cannot be read again is *lost*: `of` reports
    no pending entries for its ledger, so cursors read these entries and check their times, and `take` accepts every row
    of the ledger. So every entry fires; an entry may come twice.
    """

    def __init__(self, shelf: BitmapShelf | None = None) -> None:
        self._by_ledger: dict[int, BitMap] = {}
        self._shelf = shelf
        self._shelved: dict[int, Place] = {}
        self._lost = _NONE_LOST
        self._sizes: dict[int, int] = {}
        self._to_measure: list[int] | None = None
        self.held_bytes = 0
        """The bytes of the bitmaps in memory, as last measured; only with a shelf."""
        if shelf is not None:
            shelf.join(self)

    def __len__(self) -> int:
        return sum(map(len, self._by_ledger.values())) + sum(place.entries for place in self._shelved.values())

    def __bool__(self) -> bool:
        return bool(self._by_ledger) or bool(self._shelved)

    def __contains__(self, position: tuple[int, int]) -> bool:
        held = self.of(position[0])
        return held is not None and 0 <= position[1] < _ENTRY_IDS and position[1] in held

    def of(self, ledger_id: int) -> BitMap | None:
        """The bitmap of a ledger, None without pending entries. The bitmap is not a copy: the caller must not change
        it, and fetches it again after any wait.
        """
        held = self._by_ledger.get(ledger_id)
        if held is None and ledger_id in self._shelved:
            return self._fetch(ledger_id)
        return held

    def _of_or_new(self, ledger_id: int) -> BitMap:
        held = self.of(ledger_id)
        if held is None:
            held = self._by_ledger[ledger_id] = BitMap()
        return held

    def ledgers(self) -> list[int]:
        return sorted((*self._by_ledger, *self._shelved))

    def positions(self) -> Iterator[Position]:
        """Return all positions in order; for small sets and tests."""
        for ledger_id in self.ledgers():
            for entry_id in self.of(ledger_id) or ():
                yield Position(ledger_id, entry_id)

    def add(self, ledger_id: int, entry_id: int) -> None:
        self._of_or_new(ledger_id).add(entry_id)

    def add_range(self, ledger_id: int, start: int, end: int) -> None:
        """Add the entries start .. end - 1."""
        self._of_or_new(ledger_id).add_range(start, end)

    def update(self, ledger_id: int, entries: BitMap | Iterable[int]) -> None:
        held = self._of_or_new(ledger_id)
        held.update(entries)
        if not held:
            del self._by_ledger[ledger_id]
        if self._shelf is not None:
            self._measure(ledger_id)
            self._shelf.keep_within()

    def discard(self, ledger_id: int, entry_id: int) -> None:
        held = self.of(ledger_id)
        if held is not None:
            held.discard(entry_id)
            if not held:
                self._forget(ledger_id)

    def take(self, batch: Columns) -> Columns:
        """Return the rows of the batch that are pending, each position once, and clear them."""
        fresh = {
            ledger_id: present
            for ledger_id, ids in by_ledger(batch).items()
            if (present := self._clear(ledger_id, ids)) is not None
        }
        return batch if not fresh else _only(batch, fresh)

    def _clear(self, ledger_id: int, ids: list[int]) -> BitMap | None:
        """Clear these bits. Return None when all were set and each was named once, else the bits that were set."""
        if ledger_id in self._lost:
            self.update(ledger_id, ids)
        held = self.of(ledger_id)
        if held is None:
            return BitMap()
        if len(ids) <= _FEW:
            present = _clear_few(held, ids)
        else:
            wanted = BitMap(ids)
            found = wanted & held
            held.difference_update(found)
            present = None if len(found) == len(ids) else found
        if not held:
            self._forget(ledger_id)
        return present

    def take_first(self, count: int, after: Position | None = None) -> list[Position]:
        """Remove and return the first `count` positions, in order, behind `after`."""
        out: list[Position] = []
        for ledger_id in self.ledgers() if count else ():
            if after is not None and ledger_id < after.ledger_id:
                continue
            held = self.of(ledger_id)
            assert held is not None
            first = after.entry_id + 1 if after is not None and ledger_id == after.ledger_id else 0
            ids = list(islice(held.iter_equal_or_larger(first), count - len(out)))
            if not ids:
                continue
            out += map(Position, repeat(ledger_id), ids)
            if len(ids) == len(held):
                self._forget(ledger_id)
            else:
                held.remove_range(ids[0], ids[-1] + 1)
            if len(out) == count:
                break
        return out

    def drop_below(self, ledger_id: int) -> int:
        """Forget the ledgers before `ledger_id`; returns the number of their entries."""
        gone = sum(self._forget(key) for key in [key for key in self._by_ledger if key < ledger_id])
        for key in [key for key in self._shelved if key < ledger_id]:
            gone += self._forget_shelved(key)
        self._lost = frozenset(key for key in self._lost if key >= ledger_id)
        return gone

    def clear(self) -> None:
        """Forget everything, and the shelf."""
        self._by_ledger.clear()
        for key in list(self._shelved):
            self._forget_shelved(key)
        if self._shelf is not None:
            self._shelf.changed(-self.held_bytes)
            self._shelf.leave(self)
        self._sizes.clear()
        self.held_bytes = 0

    def count_after(self, after: Position) -> int:
        """Return the number of entries behind the position."""
        total = sum(len(held) for ledger_id, held in self._by_ledger.items() if ledger_id > after.ledger_id)
        total += sum(place.entries for ledger_id, place in self._shelved.items() if ledger_id > after.ledger_id)
        held = self.of(after.ledger_id)
        if held is not None:
            total += len(held) - (held.rank(after.entry_id) if after.entry_id >= 0 else 0)
        return total

    def compact(self) -> None:
        """Bring the bitmaps in memory into their smallest form."""
        for held in self._by_ledger.values():
            held.run_optimize()
            held.shrink_to_fit()

    # --- the budget ----------------------------------------------------------------------------------------------

    def keep_within(self) -> None:
        """Measure some of the bitmaps again, and shelve the excess: a bounded piece of work."""
        if self._shelf is None:
            return
        if not self._to_measure:
            self._to_measure = list(self._by_ledger)
        for _ in range(min(_MEASURED_AT_ONCE, len(self._to_measure))):
            self._measure(self._to_measure.pop())
        self._shelf.keep_within()

    def _measure(self, ledger_id: int) -> None:
        assert self._shelf is not None
        held = self._by_ledger.get(ledger_id)
        size = 0 if held is None else bitmap_bytes(held)
        delta = size - self._sizes.pop(ledger_id, 0)
        if size:
            self._sizes[ledger_id] = size
        self.held_bytes += delta
        self._shelf.changed(delta)

    def put_away(self, excess: int) -> None:
        """Put the least recently used bitmaps on the shelf, except the last."""
        assert self._shelf is not None
        for ledger_id in list(islice(self._by_ledger, min(_PUT_AWAY_AT_ONCE, len(self._by_ledger) - 1))):
            place = self._shelf.put(self._by_ledger[ledger_id])
            if place is None:
                return
            del self._by_ledger[ledger_id]
            self._shelved[ledger_id] = place
            excess -= self._sizes.get(ledger_id, 0)
            self._measure(ledger_id)
            if excess <= 0:
                return

    def _fetch(self, ledger_id: int) -> BitMap | None:
        assert self._shelf is not None
        held = self._shelf.take(self._shelved.pop(ledger_id))
        if held is None:
            self._lost |= {ledger_id}
            return None
        self._by_ledger[ledger_id] = held
        self._measure(ledger_id)
        self._shelf.keep_within()
        return held

    def _forget(self, ledger_id: int) -> int:
        """Drop a bitmap from memory, and its bytes from the budget; return the number of its entries."""
        gone = len(self._by_ledger.pop(ledger_id))
        if self._shelf is not None:
            self._measure(ledger_id)
        return gone

    def _forget_shelved(self, ledger_id: int) -> int:
        assert self._shelf is not None
        place = self._shelved.pop(ledger_id)
        self._shelf.free(place)
        return place.entries

    @property
    def has_lost(self) -> bool:
        """Whether a bitmap could not be read again."""
        return bool(self._lost)

    @property
    def shelved(self) -> int:
        """Bitmaps that are not in memory."""
        return len(self._shelved)

    @property
    def memory_bytes(self) -> int:
        return sum(map(bitmap_bytes, self._by_ledger.values())) + _PLACE_BYTES * len(self._shelved)


def by_ledger(batch: Columns) -> dict[int, list[int]]:
    """The entry ids of each ledger, in the order of the rows."""
    ledgers, entries = batch.ledgers, batch.entries
    if ledgers and ledgers[0] == ledgers[-1] and ledgers.count(ledgers[0]) == len(ledgers):
        return {ledgers[0]: entries.tolist()}
    groups: dict[int, list[int]] = {}
    for ledger_id, entry_id in zip(ledgers, entries, strict=True):
        try:
            groups[ledger_id].append(entry_id)
        except KeyError:
            groups[ledger_id] = [entry_id]
    return groups


def _clear_few(held: BitMap, ids: list[int]) -> BitMap | None:
    """Clear a few bits faster than `_clear`, with the same result; the bitmap may be empty afterwards."""
    present: list[int] = []
    for entry_id in ids:
        if entry_id in held:
            held.discard(entry_id)
            present.append(entry_id)
    return None if len(present) == len(ids) else BitMap(present)


def bitmap_bytes(bitmap: BitMap) -> int:
    """The memory of a bitmap, by its containers."""
    statistics = bitmap.get_statistics()
    return _BITMAP_OBJECT_BYTES + int(
        statistics["n_bytes_array_containers"]
        + statistics["n_bytes_run_containers"]
        + statistics["n_bytes_bitset_containers"]
        + 16 * statistics["n_containers"]
    )


def _only(batch: Columns, present: dict[int, BitMap]) -> Columns:
    """The rows of ledgers not in ``present``, and of those in it the first row of each position it holds."""
    keep = bytearray(batch.rows)
    for k, (ledger_id, entry_id) in enumerate(zip(batch.ledgers, batch.entries, strict=True)):
        wanted = present.get(ledger_id)
        if wanted is None:
            keep[k] = 1
        elif entry_id in wanted:
            wanted.discard(entry_id)
            keep[k] = 1
    return Columns(
        array("q", compress(batch.times, keep)),
        array("q", compress(batch.ledgers, keep)),
        array("I", compress(batch.entries, keep)),
    )
