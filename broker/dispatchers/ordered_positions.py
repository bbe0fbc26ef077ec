"""A set of positions in their order: bitmaps of entry ids by ledger."""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class OrderedPositions:
    """The set; a subclass changes it."""

    __slots__ = ("_ledgers", "entries")

    def __init__(self) -> None:
        self._ledgers: dict[int, BitMap] = {}
        self.entries = 0

    def __len__(self) -> int:
        return self.entries

    def __contains__(self, position: tuple[int, int]) -> bool:
        ledger = self._ledgers.get(position[0])
        return ledger is not None and position[1] in ledger

    def first(self) -> Position | None:
        if not self._ledgers:
            return None
        ledger_id = min(self._ledgers)
        return Position(ledger_id, self._ledgers[ledger_id].min())

    def __iter__(self) -> Iterator[Position]:
        """Yield in order; the queue must not change meanwhile."""
        for ledger_id in sorted(self._ledgers):
            for entry_id in self._ledgers[ledger_id]:
                yield Position(ledger_id, entry_id)

    def of_ledger(self, ledger_id: int) -> BitMap:
        """The entries of a ledger in the queue (not to be changed)."""
        return self._ledgers.get(ledger_id) or BitMap()

    def head(self, limit: int, left_out: Mapping[int, BitMap] | None = None) -> list[Position]:
        """The first ``limit`` positions that are not ``left_out``, entries by ledger; they stay in the queue."""
        positions: list[Position] = []
        for ledger_id in sorted(self._ledgers):
            waiting = self._ledgers[ledger_id]
            if left_out and ledger_id in left_out:
                waiting = waiting - left_out[ledger_id]
            positions += map(Position, repeat(ledger_id), islice(waiting, limit - len(positions)))
            if len(positions) == limit:
                break
        return positions

    def _from(self, start: tuple[int, int]) -> Iterator[Position]:
        """Yield the positions from ``start`` on in order; the queue must not change meanwhile."""
        for ledger_id in sorted(each for each in self._ledgers if each >= start[0]):
            waiting = self._ledgers[ledger_id]
            later = waiting.iter_equal_or_larger(start[1]) if ledger_id == start[0] else iter(waiting)
            yield from map(Position, repeat(ledger_id), later)
