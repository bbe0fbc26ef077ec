"""The positions to which SEEK moved readers that have left: the next reader of the same name continues there.

SEEK closes the consumer of a reader. Its client subscribes again under the same name, with the position of its first
SUBSCRIBE. Apache Pulsar 4.2.4 keeps the reader's cursor under its name meanwhile. Here only the position is kept, for
the next *non-durable* subscription of that name; a durable subscription never inherits a position from a reader.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.storage.position import LATEST, Position

__all__ = ["SoughtPlace", "SoughtPlaces"]

MOST_PLACES = 1000


class SoughtPlace(NamedTuple):
    """The place to which a SEEK moved a cursor."""

    requested: Position
    """The place in the client's request: EARLIEST, LATEST or a position."""
    read_next: Position
    """The entry that came next then."""
    ack_set: list[int] | None
    """The messages of a batch that are still to be read."""

    def place(self, *, compacted: bool) -> Position:
        """The entry to read next; a reader of the compacted topic may begin at an entry that the log has dropped."""
        return self.requested if compacted and self.requested.ledger_id != LATEST.ledger_id else self.read_next


class SoughtPlaces:
    """The sought places by the names of readers. Beyond ``MOST_PLACES`` the oldest place is forgotten, and its reader
    begins at the place that it requests.
    """

    def __init__(self) -> None:
        self._places: dict[str, SoughtPlace] = {}

    def __len__(self) -> int:
        return len(self._places)

    def keep(self, name: str, place: SoughtPlace) -> None:
        self._places.pop(name, None)
        self._places[name] = place
        if len(self._places) > MOST_PLACES:
            del self._places[next(iter(self._places))]

    def take(self, name: str) -> SoughtPlace | None:
        """Return the place of the name and forget it."""
        return self._places.pop(name, None)
