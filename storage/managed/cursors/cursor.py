"""ManagedCursor: the position and the acknowledgements of one subscription in a managed ledger.

Two positions: ``mark_delete`` (it and everything before it is acknowledged, see ``ack_state.py``) and
``read_position`` (the next entry to read; in memory only, ``rewind`` puts it behind mark-delete). Acknowledgements are
plain calls in memory. ``flush`` makes them durable; the saver does so at intervals and after a number of
acknowledgements (``saver.py``).

After a crash the broker redelivers entries whose acknowledgements were not saved; it never skips an unacknowledged
entry.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from magnetar.protocol.message_id import bits_to_words, words_to_bits
from magnetar.storage.managed.entry_reader import ReadLimits, without
from magnetar.storage.position import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pyroaring import BitMap

    from magnetar.storage.managed.cursors.ack_state import AckState
    from magnetar.storage.managed.cursors.saver import CursorSaver
    from magnetar.storage.managed.entry_reader import EntryReader
    from magnetar.storage.managed.ledger_map import LedgerMap
    from magnetar.storage.slab import Span

__all__ = ["EarlierEntries", "ManagedCursor"]

_MANY = 16  # from this number of positions on, a call acknowledges with bitmaps


def _nothing() -> None:
    """Do nothing."""


class EarlierEntries(Protocol):
    """Acknowledgements of entries that the managed ledger has dropped and a reader still delivers (a compacted
    topic).
    """

    def ack(self, position: Position) -> bool:
        """Acknowledge the entry; return whether it is one of these entries."""
        ...

    def ack_up_to(self, position: Position) -> bool:
        """Acknowledge the entries up to the position; return whether the position is one of these entries."""
        ...

    def reset(self, position: Position) -> None:
        """The cursor was reset: the reader reads this entry next."""
        ...


class ManagedCursor:
    """Made by ``ManagedLedger.open_cursor`` and, without a name, by ``new_read_cursor``."""

    def __init__(
        self, name: str, ledgers: LedgerMap, reader: EntryReader, acks: AckState, advanced: Callable[[], None]
    ) -> None:
        self.name = name
        self.cursor_properties: dict[str, str] = {}
        """The properties that the subscription's owner keeps with it; change them with ``set_cursor_properties``."""
        self.state_lost = False
        """Whether the stored state was damaged: the cursor then has an older position, without position properties."""
        self.earlier: EarlierEntries | None = None
        """Gets each acknowledgement of a whole entry before the cursor does, and each ``reset``."""
        self.is_closed = False
        self._ledgers = ledgers
        self._reader = reader
        self._acks = acks
        self._advanced = advanced
        self._saver: CursorSaver | None = None
        self._unsaved_properties: dict[str, int] = {}
        self._read_position = acks.mark_delete.next()
        self._generation = 0
        self._reading = -1
        self._keeps_unsaved = False
        self.on_close: Callable[[], None] = _nothing

    def make_durable(self, saver: CursorSaver, cursor_properties: dict[str, str]) -> None:
        self._saver = saver
        self.cursor_properties = dict(cursor_properties)

    @property
    def position_properties(self) -> dict[str, int]:
        """The properties of the mark-delete position; only ``note_mark_delete`` and ``note_properties`` change them."""
        return self._unsaved_properties if self._saver is None else self._saver.properties

    def _set_properties(self, properties: dict[str, int]) -> None:
        if self._saver is None:
            self._unsaved_properties = dict(properties)
        else:
            self._saver.properties = dict(properties)

    @property
    def durable(self) -> bool:
        return self._saver is not None

    @property
    def has_unsaved_acks(self) -> bool:
        """Whether a crash now may lose acknowledgements; always false for a read cursor."""
        return self._saver is not None and self._saver.is_dirty

    @property
    def stored_at(self) -> Position:
        """The last entry of the cursor ledger; EARLIEST when the record has the whole state, or nothing is stored."""
        return EARLIEST if self._saver is None else self._saver.stored_at

    @property
    def mark_delete(self) -> Position:
        return self._acks.mark_delete

    @property
    def released(self) -> Position:
        """The position up to which the log may drop entries: mark-delete, or after ``mark_delete_with`` at most its
        last stored value. After a crash the owner of the properties brings them up to date from the entries behind
        the stored position.
        """
        if self._saver is None or not self._keeps_unsaved:
            return self._acks.mark_delete
        return min(self._acks.mark_delete, self._saver.saved_mark_delete)

    @property
    def saved_mark_delete(self) -> Position:
        """The position up to which acknowledgements survive a crash; of a read cursor mark-delete."""
        return self._acks.mark_delete if self._saver is None else self._saver.saved_mark_delete

    @property
    def read_position(self) -> Position:
        """The position of the next read; the entry need not exist yet."""
        return self._read_position

    # -- reading ---

    def read(
        self,
        max_entries: int,
        max_bytes: int,
        upto: Position | None = None,
        skip: Callable[[int], BitMap | None] | None = None,
    ) -> list[Span] | Awaitable[list[Span]]:
        """The next entries, at least one entry; [] at the end. Advances ``read_position``.

        Leaves out acknowledged entries and those in ``skip(ledger_id)``; never goes beyond ``upto``. A list when the
        next entry is in the cache, else an awaitable; one read at a time. When ``rewind`` or ``reset`` is called while
        a read waits, it gives [] and changes nothing. Raises CorruptEntryError(position) when the next entry is
        damaged: the read position stays there, acknowledge the entry or ``move_to(position.next())`` to go on.
        """
        if self._reading == self._generation:
            raise AssertionError("a read of this cursor is already waiting")
        start = self._start()
        if start > self._ledgers.last_confirmed:
            self._read_position = start
            return []
        limits = ReadLimits(max_entries, max_bytes, upto)
        masks = self._masks(skip)
        spans, position, missed = self._reader.read_cached(start, limits, masks)
        if missed and not spans:
            self._reading = self._generation
            return self._read_stored(limits, skip, self._generation)
        self._read_position = position
        return spans

    def read_positions(self, positions: Sequence[Position]) -> list[Span] | Awaitable[list[Span]]:
        """Read these entries (ascending), without those that are acknowledged or gone; the read position stays.

        Returns a list when all are in the cache, else an awaitable. Raises CorruptEntryError.
        """
        wanted = self._wanted(positions)
        spans = self._reader.cached_at(wanted)
        if spans is None:
            return self._read_stored_at(wanted)
        return spans

    @property
    def has_more(self) -> bool:
        """Whether an entry exists at or after the read position (it may be acknowledged already)."""
        position = self._start()
        return (
            position <= self._ledgers.last_confirmed
            and self._ledgers.ordinal_after(position.previous()) < self._ledgers.total_entries
        )

    def rewind(self) -> None:
        """Set the read position behind mark-delete: reads return the unacknowledged entries again."""
        self._generation += 1
        self._read_position = self._ledgers.following(self._acks.mark_delete)

    def move_to(self, position: Position) -> None:
        """Read on from the position; acknowledgements stay as they are."""
        self._generation += 1
        self._read_position = position

    # -- acknowledging ---

    def ack(self, position: Position, ack_set: Sequence[int] | None = None) -> bool:
        """Acknowledge an entry, or with ``ack_set`` (bits set: not acknowledged) a part of it.

        Returns whether it changed anything; entries already acknowledged or not existing are ignored.
        """
        if self.earlier is not None and not ack_set and self.earlier.ack(position):
            return True
        before = self._acks.mark_delete
        acks = self._acks
        changed = acks.ack_partly(position, words_to_bits(ack_set)) if ack_set else acks.ack(position)
        if changed:
            self._changed(before, 1)
        return changed

    def ack_many(self, positions: Iterable[Position]) -> int:
        """Acknowledge whole entries; returns how many were not acknowledged before."""
        by_ledger = groupby(positions, itemgetter(0))
        return sum(self.ack_entries(ledger_id, [entry_id for _, entry_id in found]) for ledger_id, found in by_ledger)

    def ack_entries(self, ledger_id: int, entry_ids: Sequence[int]) -> int:
        """Acknowledge whole entries of a ledger; returns how many were not acknowledged before."""
        earlier, acks = self.earlier, self._acks
        if earlier is not None:
            entry_ids = [entry_id for entry_id in entry_ids if not earlier.ack(Position(ledger_id, entry_id))]
        before, changed = acks.mark_delete, 0
        if len(entry_ids) < _MANY:
            for entry_id in entry_ids:
                changed += acks.ack(Position(ledger_id, entry_id))
        else:
            changed = acks.ack_entries(ledger_id, entry_ids)
        if changed:
            self._changed(before, changed)
        return changed

    def ack_cumulative(self, position: Position, ack_set: Sequence[int] | None = None) -> bool:
        """Acknowledge everything up to the position, with ``ack_set`` only a part of that last entry.

        A position beyond the last confirmed entry means that entry. Returns whether it changed anything.
        """
        if self.earlier is not None and self.earlier.ack_up_to(position.previous() if ack_set else position):
            return True
        before = self._acks.mark_delete
        if ack_set:
            changed = self._acks.ack_up_to(self._ledgers.previous(position))
            changed = self._acks.ack_partly(position, words_to_bits(ack_set)) or changed
        else:
            changed = self._acks.ack_up_to(position)
        if changed:
            self._changed(before, 1)
        return changed

    def is_deleted(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        return self._acks.is_deleted(position)

    def positions_in(self, ledger_id: int) -> list[Position]:
        """The positions of all entries of the ledger; none for a ledger that the log does not have."""
        slot = self._ledgers.slot(ledger_id)
        return [] if slot is None else [Position(ledger_id, entry_id) for entry_id in range(slot.entries)]

    def ack_set(self, position: Position) -> list[int] | None:
        """Batch indexes still to be acknowledged, as words of an ack set; None when no part is acknowledged."""
        if not self._acks.partial:
            return None
        remaining = self._acks.partial.get(position)
        return None if remaining is None else bits_to_words(remaining)

    def deleted_by_ledger(self) -> list[tuple[int, BitMap]]:
        """The ledgers in order with their entries acknowledged behind mark-delete (not to be changed)."""
        return sorted(self._acks.deleted.items())

    def deleted_in(self, ledger_id: int) -> BitMap | None:
        """Entries of the ledger acknowledged behind mark-delete (not to be changed); None when there are none."""
        return self._acks.deleted.get(ledger_id)

    @property
    def last_confirmed(self) -> Position:
        """The newest entry of the log."""
        return self._ledgers.last_confirmed

    @property
    def has_partial_acks(self) -> bool:
        return bool(self._acks.partial)

    @property
    def backlog_entries(self) -> int:
        """Entries not acknowledged, exactly."""
        return self._acks.backlog_entries

    @property
    def individually_deleted_entries(self) -> int:
        """How many entries behind mark-delete are acknowledged."""
        return self._acks.deleted_count

    @property
    def backlog_bytes(self) -> int:
        """Estimate of the bytes behind mark-delete."""
        return self._ledgers.bytes_after(self._acks.mark_delete)

    def unacknowledged(self, number: int) -> Position | None:
        """Return the unacknowledged entry before which ``number`` entries are not acknowledged; None if there is
        none.
        """
        return self._acks.unacknowledged(number)

    def skip(self, entries: int, *, acknowledged: bool = False) -> int:
        """Acknowledge the oldest ``entries`` entries of the backlog, whose ``acknowledged`` entries count on request.
        Returns how many were unacknowledged.
        """
        backlog = self.backlog_entries
        if min(entries, backlog) <= 0:
            return 0
        if acknowledged:
            last = self._ledgers.ordinal_after(self.mark_delete) + entries - 1
            position: Position | None = self._ledgers.at(min(last, self._ledgers.total_entries - 1))
        else:
            position = self._acks.unacknowledged(min(entries, backlog) - 1)
        assert position is not None, "the backlog has that many"
        self.ack_cumulative(position)
        return backlog - self.backlog_entries

    # -- moving, saving ---

    async def flush(self) -> None:
        """Make every acknowledgement so far durable before return; no-op for a read cursor. Raises StorageError."""
        if self._saver is not None:
            await self._saver.flush()

    async def reset(self, position: Position, ack_set: Sequence[int] | None = None) -> None:
        """Seek: read this entry next (EARLIEST, LATEST or a position; the next existing entry when the entry is gone)
        and forget all acknowledgements from this entry on. With ``ack_set`` only these messages of its batch are
        unacknowledged. Durable on return.

        No ledger can follow the highest ledger id: any other position there than LATEST leads to the first entry, as
        in Apache Pulsar.
        """
        if position.ledger_id == LATEST.ledger_id and position != LATEST:
            position = EARLIEST
        target = self._ledgers.at_or_after(position)
        mark_delete = self.mark_delete_before(target)
        partial = {target: words_to_bits(ack_set)} if ack_set and target == position else None
        self._acks.reset(mark_delete, partial)
        self._generation += 1
        self._read_position = target
        if self.earlier is not None:
            self.earlier.reset(position)
        self._advanced()
        if self._saver is not None:
            self._saver.changed()
            await self._saver.flush()

    def mark_delete_before(self, position: Position) -> Position:
        """Return the mark-delete position with which this entry is the next entry to read."""
        return (
            self._ledgers.last_confirmed
            if position > self._ledgers.last_confirmed
            else self._ledgers.previous(position)
        )

    async def mark_delete_with(self, position: Position, position_properties: dict[str, int]) -> None:
        """Acknowledge up to the position and store these properties with it, atomically. Durable on return."""
        before = self.released
        self.note_mark_delete(position, position_properties)
        await self.flush()
        if self.released.ledger_id != before.ledger_id:
            self._advanced()

    def note_mark_delete(self, position: Position, position_properties: dict[str, int]) -> None:
        """`mark_delete_with` in memory; durable with the next save (``flush``)."""
        self._keeps_unsaved = True
        self._acks.ack_up_to(position)
        self._set_properties(position_properties)
        if self._saver is not None:
            self._saver.changed()

    def note_properties(self, position_properties: dict[str, int]) -> None:
        """Replace the position's properties, the position stays; durable with the next save (``flush``)."""
        self._set_properties(position_properties)
        self._changed(self._acks.mark_delete, 1)

    async def set_cursor_properties(self, cursor_properties: dict[str, str]) -> None:
        """Durable on return."""
        if self._saver is not None:
            await self._saver.set_cursor_properties(cursor_properties)
        self.cursor_properties = dict(cursor_properties)

    def entries_gone(self, up_to: Position) -> None:
        """Move the cursor to this position unless it is already there or further: the entries up to it were dropped."""
        if self._acks.entries_gone(up_to) and self._saver is not None:
            self._saver.changed()

    def enter_next_ledger(self) -> None:
        """Move the cursor from the end of a ledger before the first entry of the next: no trim waits for its move."""
        mark_delete = self._acks.mark_delete
        following = self._ledgers.next_ledger(mark_delete.ledger_id)
        at_end = mark_delete.entry_id + 1 >= self._ledgers.entries_of(mark_delete.ledger_id)
        if following is not None and at_end:
            self._acks.entries_gone(Position(following.ledger_id, -1))
            self._changed(mark_delete, 0)

    def close(self) -> None:
        """Close the cursor. The managed ledger saves acknowledgements that were not flushed when it is closed."""
        self.is_closed = True
        self._generation += 1
        self.on_close()
        self.on_close = self._advanced = _nothing  # no cycle of references is left for the garbage collector
        self.earlier = None
        self._acks.leave_room()

    def stop_saving(self) -> None:
        """Begin no further save until ``close_durable``."""
        if self._saver is not None:
            self._saver.stop()

    async def close_durable(self, *, save: bool = True) -> None:
        """Save the cursor for the next opening, unless another owner has the cursor (``save`` is false)."""
        self.close()
        if self._saver is not None:
            await self._saver.close(save=save)

    async def delete(self) -> None:
        """Delete the cursor, durable on return. When the store fails, the cursor remains usable."""
        if self._saver is not None:
            await self._saver.delete()
        self.close()

    # -- inside ---

    def _masks(self, skip: Callable[[int], BitMap | None] | None) -> Callable[[int], Sequence[BitMap]]:
        deleted = self._acks.deleted

        def masks(ledger_id: int) -> Sequence[BitMap]:
            held = deleted.get(ledger_id)
            skipped = skip(ledger_id) if skip is not None else None
            if held is None:
                return (skipped,) if skipped is not None else ()
            return (held, skipped) if skipped is not None else (held,)

        return masks

    def _start(self) -> Position:
        """Return the read position, or the position behind mark-delete if mark-delete has overtaken the read
        position.
        """
        mark_delete = self._acks.mark_delete
        return self._read_position if self._read_position > mark_delete else mark_delete.next()

    async def _read_stored(
        self, limits: ReadLimits, skip: Callable[[int], BitMap | None] | None, generation: int
    ) -> list[Span]:
        try:
            while generation == self._generation:
                masks = self._masks(skip)
                spans, position, missed = self._reader.read_cached(self._start(), limits, masks)
                if missed and not spans:
                    self._read_position = position
                    spans, position = await self._reader.read_stored(position, limits, masks, self._start)
                    if generation != self._generation:
                        break
                    if not spans:
                        self._read_position = position
                        continue  # acknowledged or trimmed during the wait
                self._read_position = position
                return spans
            return []
        finally:
            if self._reading == generation:
                self._reading = -1

    async def _read_stored_at(self, positions: Sequence[Position]) -> list[Span]:
        spans = await self._reader.stored_at(positions)
        is_deleted = self._acks.is_deleted
        if any(is_deleted(position) for position in positions):
            spans = without(spans, is_deleted)
        return spans

    def _wanted(self, positions: Sequence[Position]) -> Sequence[Position]:
        if positions and positions[0].ledger_id == positions[-1].ledger_id:
            acks, ledger_id = self._acks, positions[0].ledger_id
            if positions[0] > acks.mark_delete and self._ledgers.is_valid(positions[-1]):
                held = acks.deleted.get(ledger_id)
                return [p for p in positions if p[1] not in held] if held is not None else positions
        is_deleted, is_valid = self._acks.is_deleted, self._ledgers.is_valid
        return [position for position in positions if not is_deleted(position) and is_valid(position)]

    def _changed(self, mark_delete_before: Position, acks: int) -> None:
        if self._saver is not None:
            self._saver.changed(acks)
        # Trimming starts only when mark-delete leaves a ledger. So a ledger whose last entry is acknowledged stays
        # until the next ledger begins, the topic is loaded, or retention is checked: a new subscription, for example
        # at the end of a terminated topic, still finds the ledger (as in Apache Pulsar 4.2.4).
        # Into the first ledger mark-delete comes from a place without entries.
        mark_delete = self._acks.mark_delete
        if self._read_position <= mark_delete:  # the cursor skipped these entries
            self._read_position = self._ledgers.following(mark_delete)
        ledger_id = mark_delete.ledger_id
        if ledger_id != mark_delete_before.ledger_id and ledger_id != self._ledgers.slots[0].ledger_id:
            self._advanced()
