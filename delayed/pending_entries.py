"""Which entries of a topic are not yet due: one bitmap per ledger. Pure.

This is the truth of the index: an entry fires when its bit is set, and firing clears it. Runs and segments that name an
entry twice, or one that has fired already, do no harm.
"""

from __future__ import annotations

from array import array
from itertools import compress
from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.delayed.sorted_run import Columns
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["PendingEntries", "bitmap_bytes"]

_FEW = 16
_BITMAP_OBJECT_BYTES = 120


class PendingEntries:
    """Counts are taken from the bitmaps, never kept beside them."""

    def __init__(self) -> None:
        self._by_ledger: dict[int, BitMap] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_ledger.values()))

    def __bool__(self) -> bool:
        return bool(self._by_ledger)

    def __contains__(self, position: tuple[int, int]) -> bool:
        held = self._by_ledger.get(position[0])
        return held is not None and position[1] in held

    def of(self, ledger_id: int) -> BitMap | None:
        """The live bitmap of a ledger (not to be changed); None when there is none."""
        return self._by_ledger.get(ledger_id)

    def ledgers(self) -> list[int]:
        return sorted(self._by_ledger)

    def positions(self) -> Iterator[Position]:
        """All of them in order; for small sets and tests."""
        for ledger_id in self.ledgers():
            for entry_id in self._by_ledger[ledger_id]:
                yield Position(ledger_id, entry_id)

    def add(self, ledger_id: int, entry_id: int) -> None:
        held = self._by_ledger.get(ledger_id)
        if held is None:
            held = self._by_ledger[ledger_id] = BitMap()
        held.add(entry_id)

    def add_range(self, ledger_id: int, start: int, end: int) -> None:
        """Entries start .. end - 1."""
        held = self._by_ledger.get(ledger_id)
        if held is None:
            held = self._by_ledger[ledger_id] = BitMap()
        held.add_range(start, end)

    def update(self, ledger_id: int, entries: BitMap | Iterable[int]) -> None:
        held = self._by_ledger.get(ledger_id)
        if held is None:
            held = self._by_ledger[ledger_id] = BitMap()
        held.update(entries)
        if not held:
            del self._by_ledger[ledger_id]

    def discard(self, ledger_id: int, entry_id: int) -> None:
        held = self._by_ledger.get(ledger_id)
        if held is not None:
            held.discard(entry_id)
            if not held:
                del self._by_ledger[ledger_id]

    def take(self, batch: Columns) -> Columns:
        """The rows of the batch that are pending, each position once; they no longer are."""
        groups: dict[int, list[int]] = {}
        ledgers, entries = batch.ledgers, batch.entries
        if ledgers and ledgers[0] == ledgers[-1] and ledgers.count(ledgers[0]) == len(ledgers):
            groups[ledgers[0]] = entries.tolist()
        else:
            for ledger_id, entry_id in zip(ledgers, entries, strict=True):
                try:
                    groups[ledger_id].append(entry_id)
                except KeyError:
                    groups[ledger_id] = [entry_id]
        fresh = {
            ledger_id: present
            for ledger_id, ids in groups.items()
            if (present := self._clear(ledger_id, ids)) is not None
        }
        return batch if not fresh else _only(batch, fresh)

    def _clear(self, ledger_id: int, ids: list[int]) -> BitMap | None:
        """Clear these bits. None when all were set, each named once; else those that were."""
        held = self._by_ledger.get(ledger_id)
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
            del self._by_ledger[ledger_id]
        return present

    def drop_below(self, ledger_id: int) -> int:
        """Forget ledgers before this one; returns how many entries that were."""
        gone = [key for key in self._by_ledger if key < ledger_id]
        return sum(len(self._by_ledger.pop(key)) for key in gone)

    def count_after(self, after: Position) -> int:
        """How many lie after the position."""
        total = 0
        for ledger_id, held in self._by_ledger.items():
            if ledger_id > after.ledger_id:
                total += len(held)
            elif ledger_id == after.ledger_id:
                total += len(held) - (held.rank(after.entry_id) if after.entry_id >= 0 else 0)
        return total

    def compact(self) -> None:
        """Bring the bitmaps into their smallest form."""
        for held in self._by_ledger.values():
            held.run_optimize()
            held.shrink_to_fit()

    @property
    def memory_bytes(self) -> int:
        return sum(map(bitmap_bytes, self._by_ledger.values()))


def _clear_few(held: BitMap, ids: list[int]) -> BitMap | None:
    """The same, faster for a few bits; the bitmap may be empty after it."""
    present: list[int] = []
    for entry_id in ids:
        if entry_id in held:
            held.discard(entry_id)
            present.append(entry_id)
    return None if len(present) == len(ids) else BitMap(present)


def bitmap_bytes(bitmap: BitMap) -> int:
    """What a bitmap takes in memory, by its containers."""
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
