"""One subscription's view of the index: due entries below its read position that the dispatcher has not taken.

Entries at or above the read position need no view: firing clears their bit, so the cursor reads them. Views share the
fired batches; a view keeps its place in each batch and the read position at the time of firing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from pyroaring import BitMap

from magnetar.delayed.pending_entries import PendingEntries, by_ledger
from magnetar.storage.empty_queue import NO_ITEMS
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from magnetar.delayed.delay_ports import DelayCursor
    from magnetar.delayed.pending_entries import Rows
    from magnetar.delayed.sorted_run import Columns

__all__ = ["BucketDelayView"]

_AFTER_LAST_ENTRY = 1 << 32


class _Ready:
    """A fired batch: its rows before ``at`` are taken; the cursor reads entries at or above position ``below``."""

    __slots__ = ("all_below", "at", "batch", "below")

    def __init__(self, batch: Columns, below: Position) -> None:
        self.batch = batch
        self.below = below
        self.all_below = max(batch.ledgers) < below.ledger_id
        self.at = 0


class PendingIndex(Protocol):
    """The part of the index (`firing.Firing`) that a view reads."""

    pending: PendingEntries
    cancelled: PendingEntries
    behind: bool
    """Whether some due entries have not fired yet."""
    recovering: bool
    """Whether buckets are coming into service."""
    passed_early: bool
    """Whether entries may have passed before their times, since delays have been off."""
    given_while_behind: int
    """Entries that a view gives per slice while the index is behind."""

    def due_before(self) -> int:
        """Return the time up to which an entry that is not pending is due; the time never goes back."""
        ...

    def hold_all(self, ledger_id: int, entries: Rows) -> list[int]:
        """Hold entries that were read from the log until their times; return those that are not due."""
        ...


class BucketDelayView:
    """See `DelayView`. The view keeps no entries until dispatch reads: consumers begin at the mark-delete position."""

    def __init__(self, index: PendingIndex, cursor: DelayCursor, wake: Callable[[], None], ready_limit: int) -> None:
        self.cursor = cursor
        self.wake = wake
        self.on_held: Callable[[], None] = lambda: None
        """Called when the index holds entries that it did not have before, once for all entries of an offer."""
        self._index = index
        self._ready_limit = ready_limit
        self._awake = False
        self._ready: deque[_Ready] = NO_ITEMS
        self._queued = 0
        self._spilled = PendingEntries()
        self._spilled_at = EARLIEST
        self._allowance = 0

    def pending(self, ledger_id: int) -> BitMap | None:
        """Entries known to be not yet due: reads skip them."""
        self._awake = True
        return self._index.pending.of(ledger_id)

    def offer(self, ledger_id: int, entries: Rows) -> Container[int]:
        """Offer entries of one ledger that were read. Return the ids of the entries that are not to be delivered now:
        each is pending and comes from `take_due` when it is due, or it was cancelled and is now acknowledged.
        """
        self._awake = True
        index, held = self._index, BitMap()
        offered = BitMap([entry_id for entry_id, _ in entries])
        if index.cancelled and (cancelled := index.cancelled.of(ledger_id)) is not None:
            held = cancelled & offered
            if held:
                self.cursor.ack_many([Position(ledger_id, entry_id) for entry_id in held])
        if (pending := index.pending.of(ledger_id)) is not None:
            held |= pending & offered
        if len(held) < len(offered):
            new = index.hold_all(ledger_id, [row for row in entries if row[0] not in held] if held else entries)
            if new:
                held.update(new)
                self.on_held()
        return set(held)

    def holds_none(self, latest_ms: int, ledger_id: int, first: int, last: int) -> bool:
        """Whether all these entries are due, none is pending, and the index has no cancelled entries."""
        index = self._index
        if latest_ms > index.due_before() or index.cancelled:
            return False
        held = index.pending.of(ledger_id)
        return held is None or held.rank(last) == (held.rank(first - 1) if first else 0)

    def has_due(self) -> bool:
        return (bool(self._ready) or bool(self._spilled)) and (self._allowance > 0 or not self._index.behind)

    @property
    def may_repeat(self) -> bool:
        """Whether an entry that this subscription got may wait for its time and fire.

        While delays are off every entry passes; an entry that another subscription reads after they are on again waits,
        for all. A lost bitmap has no mark of the entries that have fired.
        """
        return self._index.passed_early or self._index.pending.has_lost

    @property
    def pauses_reading(self) -> bool:
        """Whether reading pauses: right after the start the index does not have all pending entries yet, and reading
        every waiting entry would take far longer than the pause.
        """
        return self._index.recovering

    def take_due(self, max_entries: int) -> list[Position]:
        """Return at most `max_entries` positions, each once, ordered by (deliver_at, position).

        A subscription that lags behind the due entries gets the rest by position, cyclically through the log:
        neighbouring entries are read and sent together, several times faster than scattered entries. While the index
        itself is behind, each call returns few entries, so that neighbours accumulate.
        """
        out: list[Position] = []
        if self._index.behind:
            max_entries = min(max_entries, self._allowance)
        while self._ready and len(out) < max_entries:
            ready = self._ready[0]
            _, ledgers, entries = ready.batch
            below, end = ready.below, len(entries)
            k = min(ready.at + max_entries - len(out), end)
            found = map(Position, ledgers[ready.at : k], entries[ready.at : k])
            out += found if ready.all_below else [position for position in found if position < below]
            self._queued -= k - ready.at
            ready.at = k
            if k == end:
                self._ready.popleft()
        self._ready = self._ready or NO_ITEMS
        if len(out) < max_entries and self._spilled:
            out += self._take_spilled(max_entries - len(out))
        self._allowance -= len(out)
        return out

    def _take_spilled(self, count: int) -> list[Position]:
        """Continue behind the positions of the last call, then begin anew, so that entries at the end of the log get
        their turn.
        """
        taken = self._spilled.take_first(count, self._spilled_at) or self._spilled.take_first(count)
        if taken:
            self._spilled_at = taken[-1]
        return taken

    @property
    def pending_count(self) -> int:
        """Entries of this subscription's backlog that are not yet due."""
        pending = self._index.pending
        count = pending.count_after(self.cursor.mark_delete)
        for ledger_id in pending.ledgers() if count else ():
            deleted = self.cursor.deleted_in(ledger_id)
            held = pending.of(ledger_id) if deleted else None
            if deleted is not None and held is not None:
                count -= deleted.intersection_cardinality(held)
        return count

    def clear(self) -> None:
        """Forget the due entries, because the cursor moves back and reads them; pending entries stay pending."""
        self._awake = False
        self._ready = NO_ITEMS
        self._queued = 0
        self._spilled = PendingEntries()

    # --- calls of the index --------------------------------------------------------------------------------------

    @property
    def keeps_order(self) -> bool:
        """Whether the view returns the entries that fire next in the order of their times."""
        return self._awake and self._queued < self._ready_limit and not self._spilled

    def fired(self, batch: Columns) -> bool:
        """Take entries that have fired; return whether the view has too many and keeps them only as bitmaps."""
        if not self._awake:
            return False
        self._allowance = self._index.given_while_behind
        below = self.cursor.read_position
        if self.keeps_order:
            if self._ready is NO_ITEMS:
                self._ready = deque()
            self._ready.append(_Ready(batch, below))
            self._queued += batch.rows
            return False
        for ledger_id, entries in by_ledger(batch).items():
            if ledger_id < below.ledger_id:
                self._spilled.update(ledger_id, entries)
            elif ledger_id == below.ledger_id:
                mine = BitMap(entries)
                mine.remove_range(below.entry_id, _AFTER_LAST_ENTRY)
                self._spilled.update(ledger_id, mine)
        return True

    @property
    def memory_bytes(self) -> int:
        """The memory of the view without the batches, which views share."""
        return self._spilled.memory_bytes

    def batches(self) -> list[Columns]:
        return [ready.batch for ready in self._ready]
