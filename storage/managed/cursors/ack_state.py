"""The acknowledgements of one cursor: mark-delete, holes behind it, parts of batches. Pure, in memory.

::

    entries   0 1 2 3 4 5 6 7 8 9 ...
    acked     x x x . x x . . x .
                  ^     mark_delete = 2: it and everything before it is acknowledged
    deleted          {4, 5, 8}          one bitmap per ledger, nothing at or before mark_delete
    partial          {6: 0b1101}        entry 6: batch indexes 0, 2 and 3 still to be acknowledged

When the entry after mark-delete is acknowledged, mark-delete jumps over everything acknowledged that follows, also
into the next ledgers. There is no limit on the number of holes.

``new_deleted`` and ``new_partial`` collect the acknowledgements since ``take_changes``: an increment for the cursor
store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.storage.bitmaps import first_absent
from magnetar.storage.managed.cursors.parts_room import PartsRoom, cost_of
from magnetar.storage.managed.cursors.state import CursorState
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.managed.ledger_map import LedgerMap

__all__ = ["AckState"]


class AckState:
    """The acknowledgements of a cursor. ``ack``, ``ack_partly``, ``ack_up_to`` and ``entries_gone`` return whether the
    state has changed.
    """

    def __init__(self, ledgers: LedgerMap, mark_delete: Position, room: PartsRoom | None = None) -> None:
        """room: the memory of the parts of batches, which cursors share."""
        self.mark_delete = mark_delete
        self.deleted: dict[int, BitMap] = {}
        self.partial: dict[Position, int] = {}
        """Batch indexes still to be acknowledged, bit k = index k (``ack_set`` of the wire protocol)."""
        self.deleted_count = 0
        self.parts_room = room or PartsRoom()
        self._parts_bytes = 0
        self._with_parts: dict[int, BitMap] = {}
        """Entries of each ledger that have a part: a move of mark-delete looks only at those before it."""
        self._ledgers = ledgers
        self._all_new = True
        self._new_deleted: dict[int, BitMap] = {}
        self._new_partial: dict[Position, int] = {}

    # -- queries ---

    def is_deleted(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        held = self.deleted.get(position.ledger_id)
        return held is not None and position.entry_id in held

    @property
    def backlog_entries(self) -> int:
        """Existing entries that are not acknowledged (exact; partly acknowledged batches count)."""
        return self._ledgers.count_between(self.mark_delete, self._ledgers.last_confirmed) - self.deleted_count

    def unacknowledged(self, number: int) -> Position | None:
        """Return the unacknowledged entry before which ``number`` existing entries are not acknowledged; None if there
        are not so many.

        The cost depends on how many ledgers there are, not on ``number``.
        """
        if not 0 <= number < self.backlog_entries:
            return None
        for slot in self._ledgers.slots:
            ledger_id = slot.ledger_id
            if ledger_id < self.mark_delete.ledger_id:
                continue
            first = self.mark_delete.entry_id + 1 if ledger_id == self.mark_delete.ledger_id else 0
            held = self.deleted.get(ledger_id)
            left = slot.entries - first - (0 if held is None else len(held))
            if number < left:
                return Position(
                    ledger_id, first + number if held is None else _absent(held, first, slot.entries, number)
                )
            number -= max(0, left)
        return None

    # -- changes ---

    def ack(self, position: Position) -> bool:
        """Acknowledge a whole entry. Entries that do not exist are ignored (Pulsar answers them without an error)."""
        mark_delete = self.mark_delete
        ledger_id, entry_id = position
        if position <= mark_delete or not 0 <= entry_id < self._ledgers.entries_of(ledger_id):
            return False
        if self.partial:
            self._drop_part(position)
        held = self.deleted.get(ledger_id)
        if ledger_id == mark_delete.ledger_id and entry_id == mark_delete.entry_id + 1:
            self.mark_delete = position
            if held is not None or entry_id + 1 == self._ledgers.entries_of(ledger_id):
                self._jump()
            return True
        if held is None:
            held = self.deleted[ledger_id] = BitMap()
        elif entry_id in held:
            return False
        held.add(entry_id)
        self.deleted_count += 1
        new = self._new_deleted.get(ledger_id)
        if new is None:
            new = self._new_deleted[ledger_id] = BitMap()
        new.add(entry_id)
        if entry_id == 0:
            self._jump()
        return True

    def ack_entries(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """Acknowledge whole entries of one ledger, like `ack` for each; returns how many were not acknowledged."""
        mark_delete = self.mark_delete
        fresh = BitMap(entry_ids)
        fresh.remove_range(self._ledgers.entries_of(ledger_id), 1 << 32)
        if ledger_id <= mark_delete.ledger_id:
            fresh.remove_range(0, 1 << 32 if ledger_id < mark_delete.ledger_id else mark_delete.entry_id + 1)
        if self.partial:
            for entry_id in fresh:
                self._drop_part(Position(ledger_id, entry_id))
        held = self.deleted.get(ledger_id)
        if held is not None:
            fresh -= held
        if not fresh:
            return 0
        self.deleted[ledger_id] = fresh.copy() if held is None else held | fresh
        self.deleted_count += len(fresh)
        if fresh.min() == 0 or (ledger_id == mark_delete.ledger_id and mark_delete.entry_id + 1 in fresh):
            self._jump()
        new = self._new_deleted.setdefault(ledger_id, BitMap())
        new |= fresh
        if ledger_id <= self.mark_delete.ledger_id:  # mark-delete already covers these positions
            new.remove_range(0, 1 << 32 if ledger_id < self.mark_delete.ledger_id else self.mark_delete.entry_id + 1)
        return len(fresh)

    def ack_partly(self, position: Position, remaining: int) -> bool:
        """Acknowledge the batch indexes whose bits are not set in ``remaining``, in addition to those of earlier
        calls.
        """
        if self.is_deleted(position) or not self._ledgers.is_valid(position):
            return False
        known = self.partial.get(position)
        left = remaining if known is None else known & remaining
        if left == 0:
            return self.ack(position)
        more = cost_of(left) - (0 if known is None else cost_of(known))
        if left == known or (more > 0 and not self.parts_room.has(self._parts_bytes, more)):
            return False
        self._keep_part(position, left, more)
        self._new_partial[position] = left
        return True

    def ack_up_to(self, position: Position) -> bool:
        """Acknowledge everything up to and including the position, or the last confirmed entry if that is earlier."""
        position = min(position, self._ledgers.last_confirmed)
        if not self._ledgers.is_valid(position):
            position = self._ledgers.previous(position)
        if position <= self.mark_delete:
            return False
        self.mark_delete = position
        self._drop_before_mark_delete()
        self._jump()
        return True

    def entries_gone(self, up_to: Position) -> bool:
        """Move mark-delete to this position, because all entries up to it were dropped, acknowledged or not. The
        position need not exist any more.
        """
        if up_to <= self.mark_delete:
            return False
        self.mark_delete = up_to
        self._drop_before_mark_delete()
        self._jump()
        return True

    def reset(self, mark_delete: Position, partial: dict[Position, int] | None = None) -> None:
        """Replace the state by this mark-delete position and these partly acknowledged batches (seek)."""
        self.mark_delete = mark_delete
        self.deleted, self.deleted_count = {}, 0
        self.parts_room.used -= self._parts_bytes
        self.partial, self._with_parts, self._parts_bytes = {}, {}, 0
        for position, left in (partial or {}).items():
            self._keep_part(position, left, cost_of(left))
        self._all_new = True

    # -- parts of batches ---

    def leave_room(self) -> None:
        """Leave the room to the other cursors, because this cursor ends; the parts stay for its last save."""
        self.parts_room.used -= self._parts_bytes
        self.parts_room = PartsRoom(self._parts_bytes)

    def _keep_part(self, position: Position, left: int, more: int) -> None:
        """Keep the part of a batch, which takes `more` bytes than before."""
        ledger_id, entry_id = position
        if position not in self.partial:
            entries = self._with_parts.get(ledger_id)
            if entries is None:
                entries = self._with_parts[ledger_id] = BitMap()
            entries.add(entry_id)
        self.partial[position] = left
        self._parts_bytes += more
        self.parts_room.used += more

    def _drop_part(self, position: Position) -> None:
        left = self.partial.pop(position, None)
        if left is not None:
            self._new_partial.pop(position, None)
            ledger_id, entry_id = position
            entries = self._with_parts[ledger_id]
            entries.discard(entry_id)
            if not entries:
                del self._with_parts[ledger_id]
            size = cost_of(left)
            self._parts_bytes -= size
            self.parts_room.used -= size

    # -- saving ---

    def snapshot(self, properties: dict[str, int]) -> CursorState:
        """Return the whole state; the next increment has the changes since this call."""
        self._taken()
        deleted = {ledger_id: held.copy() for ledger_id, held in self.deleted.items()}
        return CursorState(self.mark_delete, deleted, dict(self.partial), dict(properties))

    def take_changes(self, properties: dict[str, int]) -> CursorState | None:
        """Return the changes since the last ``snapshot`` or ``take_changes``; None when a snapshot is necessary."""
        if self._all_new:
            return None
        deleted, partial = self._new_deleted, self._new_partial
        self._taken()
        return CursorState(self.mark_delete, deleted, partial, dict(properties))

    def needs_snapshot(self) -> None:
        """Make the next ``take_changes`` return None, because the last increment was not stored."""
        self._all_new = True

    def load(self, state: CursorState) -> bool:
        """Set the state to a stored state. Return True if the stored state reached beyond the last confirmed entry: the
        acknowledgements behind that entry are dropped.
        """
        last = self._ledgers.last_confirmed
        cut = bool(self._ledgers.slots) and state.mark_delete > last
        self.reset(last if cut else state.mark_delete)
        for ledger_id, held in state.deleted.items():
            entries = self._ledgers.entries_of(ledger_id)
            kept = held.copy()
            kept.remove_range(entries, 1 << 32)
            cut = cut or (len(kept) != len(held) and ledger_id >= last.ledger_id)
            if kept:
                self.deleted[ledger_id] = kept
                self.deleted_count += len(kept)
        for position, remaining in state.partial.items():
            if self._ledgers.is_valid(position) and not self.is_deleted(position):
                self._keep_part(position, remaining, cost_of(remaining))
        self._drop_before_mark_delete()
        self._jump()
        return cut

    def _taken(self) -> None:
        self._all_new = False
        self._new_deleted, self._new_partial = {}, {}

    def _jump(self) -> None:
        """Move mark-delete over everything acknowledged right behind it."""
        ledger_id, entry_id = self.mark_delete
        while True:
            if entry_id + 1 >= self._ledgers.entries_of(ledger_id):
                following = self._ledgers.next_ledger(ledger_id)
                if following is None or 0 not in self.deleted.get(following.ledger_id, ()):
                    break
                ledger_id, entry_id = following.ledger_id, -1
            held = self.deleted.get(ledger_id)
            if held is None or entry_id + 1 not in held:
                break
            stop = first_absent((held,), entry_id + 1, self._ledgers.entries_of(ledger_id))
            held.remove_range(entry_id + 1, stop)
            self.deleted_count -= stop - entry_id - 1
            if not held:
                del self.deleted[ledger_id]
            entry_id = stop - 1
        if (ledger_id, entry_id) != self.mark_delete:
            self.mark_delete = Position(ledger_id, entry_id)

    def _drop_before_mark_delete(self) -> None:
        ledger_id, entry_id = self.mark_delete
        for known in [known for known in self.deleted if known <= ledger_id]:
            held = self.deleted[known]
            before = len(held)
            held.remove_range(0, entry_id + 1 if known == ledger_id else 1 << 32)
            self.deleted_count -= before - len(held)
            if not held:
                del self.deleted[known]
        for known in [known for known in self._with_parts if known <= ledger_id]:
            entries = self._with_parts[known]
            for each in entries & BitMap(range(entry_id + 1)) if known == ledger_id else entries.copy():
                self._drop_part(Position(known, each))


def _absent(held: BitMap, first: int, stop: int, number: int) -> int:
    """Return the id in ``first .. stop - 1`` before which ``number`` ids of that range are not in ``held``.
    Precondition: all ids of ``held`` are in the range.
    """
    low, high = first, stop - 1
    while low < high:
        middle = (low + high) // 2
        if middle - first + 1 - held.rank(middle) > number:
            high = middle
        else:
            low = middle + 1
    return low
