"""The part of a compacted topic whose ledgers the log has dropped: the acknowledgements of a subscription in this part.

A cursor records acknowledgements of entries that the log has. The entries of the earlier part exist in the compacted
ledger only, so this module records their acknowledgements. Every entry up to and including `done` is acknowledged;
`done` is stored with the cursor's position. Acknowledgements out of order behind `done` stay in memory until the
subscription is unloaded; then the broker delivers these messages again, as after a crash.

The part ends when all its entries were read and acknowledged, or when a consumer acknowledges an entry behind the part
cumulatively.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.storage.managed.cursors.cursor import ManagedCursor

__all__ = ["EARLIER_PROPERTIES", "EarlierPart"]

_LEDGER, _ENTRY, _END = "CompactedDoneLedger", "CompactedDoneEntry", "CompactedEarlierEnd"
EARLIER_PROPERTIES = frozenset({_LEDGER, _ENTRY, _END})
"""The properties of a cursor that Apache Pulsar does not have."""
MOST_UNDELIVERED: Final = 100_000
"""Beyond so many acknowledged entries an acknowledgement of an entry that was not delivered since the last rewind has
no effect: its peer may invent entries.
"""


class EarlierPart:
    """The earlier part of one subscription."""

    def __init__(self, cursor: ManagedCursor) -> None:
        self._cursor = cursor
        properties = cursor.position_properties
        self.is_active = _END in properties
        self.done = Position(properties.get(_LEDGER, -1), properties.get(_ENTRY, -1))
        """Every entry up to and including this position is acknowledged."""
        self._end = properties.get(_END, -1)
        self._outstanding: dict[Position, bool] = {}
        """Delivered entries in order, and whether they are acknowledged."""
        self._acknowledged: set[Position] = set()
        self._all_read = False

    def begin(self, start: Position, end_ledger_id: int) -> None:
        """Start the part at `start`; entries of ledger `end_ledger_id` and later ledgers belong to the cursor."""
        self.is_active, self.done, self._end = True, start.previous(), end_ledger_id
        self._acknowledged.clear()
        self.rewind()
        self._save()

    def end(self) -> None:
        """End the part: from now on the cursor alone records acknowledgements."""
        if self.is_active:
            self.is_active = False
            self.rewind()
            self._acknowledged.clear()
            self._save()

    def covers(self, position: Position) -> bool:
        return self.is_active and position.ledger_id < self._end

    def is_acknowledged(self, position: Position) -> bool:
        return position <= self.done or position in self._acknowledged

    def rewind(self) -> None:
        """Forget the delivered entries: the reader starts again behind `done`."""
        self._outstanding.clear()
        self._acknowledged = {known for known in self._acknowledged if known > self.done}
        self._all_read = False

    def delivered(self, positions: Iterable[Position]) -> None:
        """Note entries of the part that go to the consumer."""
        for position in positions:
            self._outstanding[position] = False

    def all_read(self) -> None:
        """Note that the consumer got all entries of the part; ends the part once all of them are acknowledged."""
        if self.is_active:
            self._all_read = True
            self._advance()

    def ack(self, position: Position) -> bool:
        """Acknowledge the entry. Return False, without effect, for an entry outside this part."""
        if not self.covers(position):
            return False
        if position > self.done:
            if position in self._outstanding:
                self._acknowledged.add(position)
                self._outstanding[position] = True
                self._advance()
            elif len(self._acknowledged) < MOST_UNDELIVERED:
                self._acknowledged.add(position)
        return True

    def ack_up_to(self, position: Position) -> bool:
        """Acknowledge the part up to the entry. Return False for an entry behind the part, which ends the part."""
        if not self.is_active:
            return False
        if not self.covers(position):
            self.end()
            return False
        if position > self.done:
            self.done = position
            self._outstanding = {known: acked for known, acked in self._outstanding.items() if known > position}
            self._acknowledged = {known for known in self._acknowledged if known > position}
            self._save()
            self._advance()
        return True

    def _advance(self) -> None:
        before = self.done
        while self._outstanding:
            first = next(iter(self._outstanding))
            if not self._outstanding[first]:
                break
            del self._outstanding[first]
            self._acknowledged.discard(first)
            self.done = first
        if self._all_read and not self._outstanding:
            self.end()
        elif self.done != before:
            self._save()

    def _save(self) -> None:
        properties = {k: v for k, v in self._cursor.position_properties.items() if k not in EARLIER_PROPERTIES}
        if self.is_active:
            properties |= {_LEDGER: self.done.ledger_id, _ENTRY: self.done.entry_id, _END: self._end}
        self._cursor.note_properties(properties)
