"""The ledgers of a managed ledger as one sequence of entries: arithmetic on positions. Pure.

Each entry that exists has an ordinal: how many existing entries come before it. Counting, skipping and bisecting are
arithmetic on ordinals. A position that does not exist (its ledger was trimmed, or it is past the end of its ledger) is
between two ordinals and needs no special case.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["LedgerMap", "LedgerSlot"]


@dataclass(slots=True)
class LedgerSlot:
    """One ledger of the list; the last ledger may still be open and grow."""

    ledger_id: int
    entries: int = 0
    """Confirmed entries."""
    size_bytes: int = 0
    closed_at_ms: int = 0
    """Wall clock when it was closed; 0 while it is open."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Never changed in place."""
    encoded: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """The part of a closed ledger in the stored list (``list_parts.py``); a change of these facts drops the part."""


class LedgerMap:
    """Slots in ascending order of their ledger ids. Only the last slot's ``entries`` may change."""

    def __init__(self, slots: Iterable[LedgerSlot] = ()) -> None:
        self.slots = list(slots)
        self.last_confirmed = EARLIEST
        """The newest confirmed entry; unchanged when trimming has removed that entry."""
        self._count()
        for slot in self.slots:
            if slot.entries:
                self.last_confirmed = Position(slot.ledger_id, slot.entries - 1)

    # -- the list ---

    def add(self, slot: LedgerSlot) -> None:
        """Add a new last ledger; from then on the ledger before it does not grow."""
        if self.slots and slot.ledger_id <= self.slots[-1].ledger_id:
            raise AssertionError(f"ledger {slot.ledger_id} does not follow {self.slots[-1].ledger_id}")
        before = self._before[-1] + self.slots[-1].entries if self.slots else 0
        self.slots.append(slot)
        self._ids.append(slot.ledger_id)
        self._by_id[slot.ledger_id] = slot
        self._before.append(before)

    def remove(self, ledger_ids: Collection[int]) -> list[LedgerSlot]:
        """Remove these ledgers (trimmed or empty) from the map and return them."""
        removed = [slot for slot in self.slots if slot.ledger_id in ledger_ids]
        self.slots = [slot for slot in self.slots if slot.ledger_id not in ledger_ids]
        self._count()
        return removed

    def put_back(self, slots: Iterable[LedgerSlot]) -> None:
        """Undo ``remove``."""
        self.slots = sorted([*slots, *self.slots], key=lambda slot: slot.ledger_id)
        self._count()

    def confirm(self, slot: LedgerSlot, last_entry_id: int) -> None:
        """Count the entries of the last slot up to ``last_entry_id`` as confirmed."""
        slot.entries = last_entry_id + 1
        self.last_confirmed = Position(slot.ledger_id, last_entry_id)

    def slot(self, ledger_id: int) -> LedgerSlot | None:
        return self._by_id.get(ledger_id)

    @property
    def total_entries(self) -> int:
        return self._before[-1] + self.slots[-1].entries if self.slots else 0

    @property
    def total_bytes(self) -> int:
        return sum(slot.size_bytes for slot in self.slots)

    # -- queries of AckState and readers ---

    def entries_of(self, ledger_id: int) -> int:
        """Confirmed entries of the ledger; 0 when it is not in the list."""
        slot = self._by_id.get(ledger_id)
        return slot.entries if slot is not None else 0

    def next_ledger(self, ledger_id: int) -> LedgerSlot | None:
        """The first ledger with entries after this id."""
        for k in range(bisect_right(self._ids, ledger_id), len(self.slots)):
            if self.slots[k].entries:
                return self.slots[k]
        return None

    def is_valid(self, position: Position) -> bool:
        """Whether the entry exists."""
        return 0 <= position.entry_id < self.entries_of(position.ledger_id)

    # -- ordinals ---

    def ordinal_after(self, position: Position) -> int:
        """How many entries exist at or before the position: the ordinal of the next entry."""
        k = bisect_left(self._ids, position.ledger_id)
        if k == len(self._ids):
            return self.total_entries
        if self._ids[k] != position.ledger_id:
            return self._before[k]
        return self._before[k] + max(0, min(position.entry_id + 1, self.slots[k].entries))

    def at(self, ordinal: int) -> Position:
        """The entry with this ordinal; IndexError when there is none."""
        if not 0 <= ordinal < self.total_entries:
            raise IndexError(ordinal)
        k = bisect_right(self._before, ordinal) - 1
        return Position(self._ids[k], ordinal - self._before[k])

    def count_between(self, after: Position, up_to: Position) -> int:
        """Existing entries in ``(after, up_to]``; 0 when the interval is empty."""
        return max(0, self.ordinal_after(up_to) - self.ordinal_after(after))

    def bytes_after(self, position: Position) -> int:
        """Estimate the bytes of the entries after the position: exact for whole ledgers, for the position's own ledger
        in proportion to its entries.
        """
        k = bisect_left(self._ids, position.ledger_id)
        later = self.slots[k:]
        if not later:
            return 0
        total = sum(slot.size_bytes for slot in later)
        own = later[0]
        if own.ledger_id == position.ledger_id and own.entries:
            total -= own.size_bytes * max(0, min(position.entry_id + 1, own.entries)) // own.entries
        return total

    # -- neighbours ---

    @property
    def first_position(self) -> Position | None:
        """The oldest existing entry."""
        return self.at(0) if self.total_entries else None

    @property
    def end(self) -> Position:
        """The position of the next entry once that entry exists: behind the last confirmed entry."""
        return self.last_confirmed.next()

    def next_valid(self, position: Position) -> Position | None:
        """The first existing entry after the position."""
        ordinal = self.ordinal_after(position)
        return self.at(ordinal) if ordinal < self.total_entries else None

    def following(self, position: Position) -> Position:
        """The place behind the position: in its ledger if that ledger has or gets the next entry, else at the head of
        the next ledger, which may be empty.
        """
        k, behind = bisect_right(self._ids, position.ledger_id), position.next()
        return behind if k == len(self._ids) or self.is_valid(behind) else Position(self._ids[k], 0)

    def previous(self, position: Position) -> Position:
        """Return the last existing entry before the position.

        Without such an entry the result is (first ledger, -1), or EARLIEST when there is no ledger.
        """
        ordinal = self.ordinal_after(position.previous())
        if ordinal > 0:
            return self.at(ordinal - 1)
        return Position(self._ids[0], -1) if self._ids else EARLIEST

    def at_or_after(self, position: Position) -> Position:
        """The first existing entry at or after the position, else the place behind the last confirmed entry."""
        found = self.next_valid(position.previous())
        return found or (self.end if self.last_confirmed == EARLIEST else self.following(self.last_confirmed))

    def _count(self) -> None:
        self._ids = [slot.ledger_id for slot in self.slots]
        self._by_id = {slot.ledger_id: slot for slot in self.slots}
        self._before: list[int] = []
        entries = 0
        for slot in self.slots:
            self._before.append(entries)
            entries += slot.entries
