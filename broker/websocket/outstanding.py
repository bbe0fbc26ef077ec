"""The messages that a consumer session has given its client and that are not acknowledged. Pure: times are arguments.

A batch is a single entry of the broker: the session acknowledges the entry with the last of its messages, as Apache
Pulsar's clients do. MOST_KEPT bounds the remembered entries; beyond it the oldest entries are forgotten, and the broker
delivers their messages again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.broker.websocket.incoming import Incoming

MOST_KEPT: Final = 50_000
Place = tuple[int, int, int]
"""Partition, ledger and entry."""


class _Entry:
    __slots__ = ("given", "open_bits")

    def __init__(self) -> None:
        self.open_bits = 0
        self.given = 0


class Outstanding:
    """Entries by their place."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Place, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def arrived(self, messages: list[Incoming]) -> None:
        """The messages of one entry came from the broker; of a batch all have to be acknowledged."""
        first = messages[0]
        place = (first.part, *first.entry)
        entry = self._entries.pop(place, None) or _Entry()
        entry.open_bits = 0
        for message in messages:
            entry.open_bits |= 1 << message.batch_index
        self._entries[place] = entry
        if len(self._entries) > MOST_KEPT:
            self._entries.popitem(last=False)

    def given(self, message: Incoming) -> None:
        """A message was written to the client."""
        entry = self._entries.get((message.part, *message.entry))
        if entry is not None:
            entry.given += 1

    def given_of(self, place: Place) -> int:
        """How many messages of an entry the client has, or had; they no longer count."""
        entry = self._entries.get(place)
        if entry is None:
            return 1
        given, entry.given = entry.given, 0
        return given

    def acknowledge(self, place: Place, batch_index: int, *, is_batch: bool) -> bool:
        """Whether the whole entry is to be acknowledged now."""
        entry = self._entries.get(place)
        if entry is None:
            return not is_batch  # of a batch that is not known others may be unacknowledged
        if is_batch:
            entry.open_bits &= ~(1 << batch_index)
            if entry.open_bits:
                return False
        del self._entries[place]
        return True

    def forget(self, part: int) -> int:
        """Forget a partition; return how many of its messages the client has."""
        places = [place for place in self._entries if place[0] == part]
        return sum(self._entries.pop(place).given for place in places)


class Redeliveries:
    """Entries that are to be delivered again after one delay that is the same for all: a queue."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._due: OrderedDict[Place, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, place: Place, now_s: float) -> None:
        """Start the delay of an entry; an entry that waits already keeps its time."""
        self._due.setdefault(place, now_s + self._delay_s)
        if len(self._due) > MOST_KEPT:
            self._due.popitem(last=False)

    def restart(self, place: Place, now_s: float) -> None:
        """The delay of an entry begins anew."""
        self._due.pop(place, None)
        self.add(place, now_s)

    def discard(self, place: Place) -> None:
        self._due.pop(place, None)

    @property
    def next_s(self) -> float | None:
        """The time until the first entry is due."""
        return next(iter(self._due.values()), None)

    def take(self, now_s: float) -> Iterator[Place]:
        """Take the places that are due out of the table."""
        while self._due:
            place, at_s = next(iter(self._due.items()))
            if at_s > now_s:
                return
            del self._due[place]
            yield place
