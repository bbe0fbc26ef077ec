"""The place of an entry: (ledger id, entry id).

Positions compare as pairs, so the order of a topic is the order of its positions. A position is Pulsar's ``MessageId``
without partition and batch index.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EARLIEST", "LATEST", "MAX_ENTRY_ID", "Position"]

MAX_ENTRY_ID = (1 << 63) - 1


class Position(NamedTuple):
    """The position of an entry. Entry id -1 is the position before the first entry of the ledger."""

    ledger_id: int
    entry_id: int

    def next(self) -> Position:
        """The next position in the same ledger; the entry need not exist."""
        return Position(self.ledger_id, self.entry_id + 1)

    def previous(self) -> Position:
        """The previous position in the same ledger; (ledger, -1) before the first entry."""
        return Position(self.ledger_id, self.entry_id - 1)

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
"""The position before every entry (MessageId.earliest)."""

LATEST = Position(MAX_ENTRY_ID, MAX_ENTRY_ID)
"""The position behind every entry (MessageId.latest)."""
