"""The positions to which SEEK moved readers that have left: the next reader of the same name continues there.

SEEK closes the consumer of a reader. Its client subscribes again under the same name, with the position of its first
SUBSCRIBE. Apache Pulsar 4.2.4 keeps the reader's cursor under its name meanwhile. Here only the position is kept, for
the next *non-durable* subscription of that name; a durable subscription never inherits a position from a reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol.message_id import bits_to_words, words_to_bits
from magnetar.storage.position import LATEST, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SoughtPlace", "SoughtPlaces"]

MOST_PLACES = 1000
MOST_BYTES = 1 << 20
"""The most bytes of the names, and of the sets of messages that are still to be read, of the places of a topic."""


class SoughtPlace(NamedTuple):
    """The place to which a SEEK moved a cursor."""

    requested: Position
    """The place in the client's request: EARLIEST, LATEST or a position."""
    read_next: Position
    """The entry that came next then."""
    unread: int
    """The messages of a batch that are still to be read, a bit for each; 0: the whole entry."""

    @classmethod
    def of(cls, requested: Position, read_next: Position, ack_set: Sequence[int] | None) -> SoughtPlace:
        """Return the place. As a number an ack set takes a fifth of the memory of its words."""
        return cls(requested, read_next, words_to_bits(ack_set) if ack_set else 0)

    @property
    def ack_set(self) -> list[int] | None:
        return bits_to_words(self.unread) if self.unread else None

    def place(self, *, compacted: bool) -> Position:
        """The entry to read next; a reader of the compacted topic may begin at an entry that the log has dropped."""
        return self.requested if compacted and self.requested.ledger_id != LATEST.ledger_id else self.read_next


class SoughtPlaces:
    """The sought places by the names of readers. Beyond ``MOST_PLACES``, or ``MOST_BYTES``, the oldest places are
    forgotten, and their readers begin at the places that they request.
    """

    def __init__(self) -> None:
        self._places: dict[str, SoughtPlace] = {}
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def keep(self, name: str, place: SoughtPlace) -> None:
        self.take(name)
        self._places[name] = place
        self.used_bytes += _size_of(name, place)
        while len(self._places) > MOST_PLACES or self.used_bytes > MOST_BYTES:
            self.take(next(iter(self._places)))

    def take(self, name: str) -> SoughtPlace | None:
        """Return the place of the name and forget it."""
        place = self._places.pop(name, None)
        if place is not None:
            self.used_bytes -= _size_of(name, place)
        return place


def _size_of(name: str, place: SoughtPlace) -> int:
    return len(name) + place.unread.bit_length() // 8
