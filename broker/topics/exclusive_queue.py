"""The queue of producers that wait for exclusive access to a topic (WaitForExclusive).

A producer that gives up keeps its place, and its turn uses up an epoch, as in Apache Pulsar. The place keeps neither
the producer nor its connection: a standby that comes and goes leaves no memory behind.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from magnetar.storage.empty_queue import NO_ITEMS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from magnetar.broker.topics.producer import Producer

_MOST_GIVEN_UP: Final = 64


def epoch_after(epoch: int | None, wanted: int | None) -> int:
    """The epoch of a producer's request, else the next epoch."""
    return wanted if wanted is not None else 0 if epoch is None else epoch + 1


class Place:
    """The place of a producer, or of `count` producers in a row that gave up: then `producer` is None."""

    __slots__ = ("_more", "_wanted", "count", "producer", "turn")

    def __init__(self, producer: Producer, turn: asyncio.Future[None]) -> None:
        self.producer: Producer | None = producer
        self.turn = turn
        self.count = 1
        self._wanted = producer.requested_topic_epoch
        self._more = 0

    def epoch_behind(self, epoch: int | None) -> int:
        """The epoch of the topic after the turn of the place."""
        return epoch_after(epoch, self._wanted) + self._more

    def join(self, later: Place) -> None:
        """Take the turns of the next place of producers that gave up."""
        self.count += later.count
        if later._wanted is None:
            self._more += 1 + later._more
        else:
            self._wanted, self._more = later._wanted, later._more


class ExclusiveQueue:
    """See the module."""

    __slots__ = ("_given_up", "_places")

    def __init__(self) -> None:
        self._places: deque[Place] = NO_ITEMS
        self._given_up = 0
        """Places of producers that gave up, at least so many as there are."""

    def __len__(self) -> int:
        return sum(place.count for place in self._places)

    def __bool__(self) -> bool:
        return bool(self._places)

    def append(self, producer: Producer, turn: asyncio.Future[None]) -> Place:
        """Queue the producer; ``turn`` ends its wait."""
        place = Place(producer, turn)
        if self._places is NO_ITEMS:
            self._places = deque()
        self._places.append(place)
        return place

    def pop(self) -> Place | None:
        """Remove and return the first place; None without places."""
        if not self._places:
            return None
        place = self._places.popleft()
        self._places = self._places or NO_ITEMS
        return place

    def give_up(self, place: Place) -> None:
        """Forget the producer of the place."""
        place.producer = None
        self._given_up += 1
        if self._given_up > _MOST_GIVEN_UP + len(self._places) // 2:
            self._join_places()

    def _join_places(self) -> None:
        joined: deque[Place] = deque()
        for place in self._places:
            if joined and joined[-1].producer is None and place.producer is None:
                joined[-1].join(place)
            else:
                joined.append(place)
        self._places = joined
        self._given_up = sum(place.producer is None for place in joined)

    def clear(self) -> Iterator[asyncio.Future[None]]:
        """Remove all places; yield the turns of those that wait."""
        places, self._places = self._places, NO_ITEMS
        return (place.turn for place in places if not place.turn.done())
