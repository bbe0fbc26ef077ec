"""Chooses the active consumer of a Failover subscription. A pure choice, made at every join and leave.

A join or leave costs no walk through all consumers, but for a choice on the ring after its active consumer left: a
client may have thousands of consumers in one subscription, and they leave together when its connection ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from magnetar.broker.dispatchers.hash_ring import ring_distance

if TYPE_CHECKING:
    from collections.abc import Sequence


class Candidate(Protocol):
    """The part of a consumer that decides the choice."""

    @property
    def priority_level(self) -> int: ...
    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Candidate)
_priority = attrgetter("priority_level")
_place = attrgetter("priority_level", "name")


class ActiveChoice(Generic[C]):
    """The consumers of a subscription, sorted by priority level, name, order of arrival, and the choice among them.

    The choice is among the consumers with the best (lowest) priority level. For a partition (0 or more) the partition
    number decides, so that a partitioned topic spreads over its consumers. For other topics, and with
    activeConsumerFailoverConsistentHashing, the hash ring of the consumers' names decides.
    """

    def __init__(self, topic_name: str, partition: int) -> None:
        self._topic_name = topic_name
        self._partition = partition
        self._consumers: list[C] = []
        self._distances: dict[C, int] = {}
        """Distances on the ring, filled on demand."""
        self._nearest: C | None = None
        """The choice on the ring; None when it is not known."""

    @property
    def consumers(self) -> Sequence[C]:
        return self._consumers

    def add(self, consumer: C) -> None:
        """Admit a consumer, which is not a member yet."""
        insort_right(self._consumers, consumer, key=_place)
        nearest = self._nearest
        if nearest is not None and self._is_nearer(consumer, nearest):
            self._nearest = consumer

    def _is_nearer(self, consumer: C, nearest: C) -> bool:
        """Whether the ring chooses a consumer that joined after `nearest`; at equal distances, the later in order."""
        if consumer.priority_level != nearest.priority_level:
            return consumer.priority_level < nearest.priority_level
        distance, least = self._distance(consumer), self._distance(nearest)
        return distance < least or (distance == least and consumer.name >= nearest.name)

    def _distance(self, consumer: C) -> int:
        found = self._distances.get(consumer)
        if found is None:
            found = self._distances[consumer] = ring_distance(consumer.name, self._topic_name)
        return found

    def remove(self, consumer: C) -> None:
        """Remove a member."""
        start = bisect_left(self._consumers, _place(consumer), key=_place)
        del self._consumers[self._consumers.index(consumer, start)]
        self._distances.pop(consumer, None)
        if consumer is self._nearest:
            self._nearest = None

    def clear(self) -> None:
        """Remove all members."""
        self._consumers.clear()
        self._distances.clear()
        self._nearest = None

    def active(self, *, consistent_hashing: bool) -> C:
        """Return the active consumer among at least one."""
        best = bisect_right(self._consumers, self._consumers[0].priority_level, key=_priority)
        if self._partition >= 0 and not consistent_hashing:
            return self._consumers[self._partition % best]
        if self._nearest is None:
            self._nearest = min(reversed(self._consumers[:best]), key=self._distance)
        return self._nearest
