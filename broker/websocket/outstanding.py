"""The unacknowledged messages that a consumer session has passed to its client. Pure: times are arguments.

A batch is a single entry of the broker: the session acknowledges the entry when the client has acknowledged all of its
messages, as Apache Pulsar's clients do. MOST_KEPT bounds the remembered entries; beyond it the session forgets the
oldest entries, and the broker redelivers their messages.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from magnetar.broker.websocket.incoming import Incoming

MOST_KEPT: Final = 50_000
PLACE_BYTES: Final = 384
"""The assumed memory of a remembered entry."""
Place = tuple[int, int, int]
"""Partition, ledger and entry."""


class PlacesOfParts:
    """The places of each partition, so that those of a partition are found without a walk over all places."""

    def __init__(self) -> None:
        self._places: dict[int, dict[Place, None]] = {}

    def add(self, place: Place) -> None:
        self._places.setdefault(place[0], {})[place] = None

    def discard(self, place: Place) -> None:
        if (places := self._places.get(place[0])) is not None:
            places.pop(place, None)
            if not places:
                del self._places[place[0]]

    def take(self, part: int) -> Iterable[Place]:
        """Remove and return the places of a partition."""
        return self._places.pop(part, ())


class _Entry:
    __slots__ = ("given", "open_bits")

    def __init__(self) -> None:
        self.open_bits = 0
        self.given = 0


class Outstanding:
    """The unacknowledged entries by their place."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Place, _Entry] = OrderedDict()
        self._parts = PlacesOfParts()

    def __len__(self) -> int:
        return len(self._entries)

    def arrived(self, messages: list[Incoming]) -> None:
        """Remember an entry with these messages; the client has to acknowledge each of them."""
        first = messages[0]
        place = (first.part, *first.entry)
        entry = self._entries.pop(place, None) or _Entry()
        entry.open_bits = 0
        for message in messages:
            entry.open_bits |= 1 << message.batch_index
        self._entries[place] = entry
        self._parts.add(place)
        if len(self._entries) > MOST_KEPT:
            self._parts.discard(self._entries.popitem(last=False)[0])

    def given(self, message: Incoming) -> None:
        """Count a message written to the client."""
        entry = self._entries.get((message.part, *message.entry))
        if entry is not None:
            entry.given += 1

    def given_of(self, place: Place) -> int:
        """Return how many messages of an entry the session has written (1 for a forgotten entry), and reset the
        count.
        """
        entry = self._entries.get(place)
        if entry is None:
            return 1
        given, entry.given = entry.given, 0
        return given

    def acknowledge(self, place: Place, batch_index: int, *, is_batch: bool) -> bool:
        """Note an acknowledgement by the client; return whether the session has to acknowledge the entry now.

        is_batch: the client acknowledges one message of a batch, else the whole entry.
        """
        entry = self._entries.get(place)
        if entry is None:
            return not is_batch  # other messages of a forgotten batch may be unacknowledged
        if is_batch:
            if batch_index < entry.open_bits.bit_length():  # the client chooses the number, which has 31 bits
                entry.open_bits &= ~(1 << batch_index)
            if entry.open_bits:
                return False
        del self._entries[place]
        self._parts.discard(place)
        return True

    def forget(self, part: int) -> int:
        """Forget the entries of a partition; return how many of their messages the session has written."""
        return sum(self._entries.pop(place).given for place in self._parts.take(part))


class Redeliveries:
    """A queue of entries to redeliver after a delay, which is the same for all entries."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._due: OrderedDict[Place, float] = OrderedDict()
        self._parts = PlacesOfParts()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, place: Place, now_s: float) -> None:
        """Start the delay of an entry; an entry in the queue keeps its time. Beyond MOST_KEPT the oldest entry is
        dropped.
        """
        self._due.setdefault(place, now_s + self._delay_s)
        self._parts.add(place)
        if len(self._due) > MOST_KEPT:
            self._parts.discard(self._due.popitem(last=False)[0])

    def restart(self, place: Place, now_s: float) -> None:
        """Start the delay of an entry again, also of an entry in the queue."""
        self._due.pop(place, None)
        self.add(place, now_s)

    def discard(self, place: Place) -> None:
        self._due.pop(place, None)
        self._parts.discard(place)

    def forget(self, part: int) -> None:
        """Remove the places of a partition, which the broker redelivers by itself or never."""
        for place in self._parts.take(part):
            del self._due[place]

    @property
    def next_s(self) -> float | None:
        """The time at which the first entry is due, on the clock of `now_s`; None for an empty queue."""
        return next(iter(self._due.values()), None)

    def take(self, now_s: float) -> Iterator[Place]:
        """Remove and yield the places that are due."""
        while self._due:
            place, at_s = next(iter(self._due.items()))
            if at_s > now_s:
                return
            self.discard(place)
            yield place
