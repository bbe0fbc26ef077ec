"""Round robin over consumers by priority (Shared subscriptions). A pure choice.

A lower priority_level is served first; consumers of a worse level get messages only while no consumer of a better level
can take messages. Within a level consumers take turns in the order in which they joined. The turn is an index into the
list of all consumers, as in Apache Pulsar 4.2.4: it points behind the last served consumer and does not move when
consumers come and go.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class HasPriority(Protocol):
    @property
    def priority_level(self) -> int: ...


C = TypeVar("C", bound=HasPriority)


class RoundRobin(Generic[C]):
    """Consumers sorted by priority level; consumers of the same level keep the order in which they joined.

    With `by_level` off all consumers are in the order in which they joined (non-persistent topics).
    """

    def __init__(self, *, by_level: bool = True) -> None:
        self.consumers: list[C] = []
        self._by_level = by_level
        self._turn = 0

    def add(self, consumer: C) -> None:
        levels = [c.priority_level for c in self.consumers]
        at = bisect_right(levels, consumer.priority_level) if self._by_level else len(levels)
        self.consumers.insert(at, consumer)

    def remove(self, consumer: C) -> None:
        self.consumers.remove(consumer)

    def next(self, usable: Callable[[C], bool]) -> C | None:
        """The next consumer to be served, None when none is usable."""
        consumers = self.consumers
        if not consumers:
            return None
        if self._turn >= len(consumers):
            self._turn = 0
        due = consumers[self._turn]
        if due.priority_level <= consumers[0].priority_level and usable(due):  # the common case, without a walk
            self._turn += 1
            return due
        for i in self._candidates(self._turn):
            if usable(consumers[i]):
                self._turn = i + 1
                return consumers[i]
        return None

    def _candidates(self, turn: int) -> Iterator[int]:
        """Better levels in their order, then the level of the turn from there round, then the later levels."""
        levels = [c.priority_level for c in self.consumers]
        level, size = levels[turn], len(levels)
        yield from takewhile(lambda i: levels[i] < level, range(turn))
        same = list(takewhile(lambda i: levels[i] == level, range(turn, size)))
        yield from same
        first = levels.index(level)
        yield from takewhile(lambda i: levels[i] == level, range(first, turn))
        yield from range(turn + len(same), size)
