"""Round robin over consumers by priority (Shared subscriptions). A pure choice.

A lower priority_level is served first; consumers of a worse level get messages only while no consumer of a better level
can take messages. A consumer of level 0 has its turn also beside consumers of levels below 0: Apache Pulsar 4.2.4 takes
0 for the best level. Within a level consumers take turns in the order in which they joined. The turn is an index into
the list of all consumers, as in Apache Pulsar 4.2.4: it points behind the last served consumer and does not move when
consumers come and go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class HasPriority(Protocol):
    @property
    def priority_level(self) -> int: ...


C = TypeVar("C", bound=HasPriority)
_priority = attrgetter("priority_level")
_BEST = 0
"""Clients may name a level below the best level."""


class _Levels(NamedTuple):
    """The priority levels of the consumers, prepared so that no turn walks through them."""

    of: list[int]
    worst_so_far: list[int]
    """By index: the worst level of the consumers up to there."""
    run_ends: list[int]
    """By index: the end of the run of consumers of the same level around it."""
    firsts: dict[int, int]
    """By level: the index of its first consumer."""


def _levels(of: list[int]) -> _Levels:
    size, ends = len(of), [0] * len(of)
    for i in range(size - 1, -1, -1):
        ends[i] = ends[i + 1] if i + 1 < size and of[i + 1] == of[i] else i + 1
    firsts = {of[i]: i for i in range(size - 1, -1, -1)}
    return _Levels(of, list(accumulate(of, max)), ends, firsts)


class RoundRobin(Generic[C]):
    """Consumers sorted by priority level; consumers of the same level keep the order in which they joined.

    With `by_level` off all consumers are in the order in which they joined (non-persistent topics).
    """

    def __init__(self, *, by_level: bool = True) -> None:
        self.consumers: list[C] = []
        self._by_level = by_level
        self.turn = 0
        self._known: _Levels | None = None

    def add(self, consumer: C) -> None:
        size = len(self.consumers)
        at = bisect_right(self.consumers, consumer.priority_level, key=_priority) if self._by_level else size
        self.consumers.insert(at, consumer)
        self._known = None

    def remove(self, consumer: C) -> None:
        self.consumers.remove(consumer)
        self._known = None

    def clear(self) -> None:
        """Remove all consumers."""
        self.consumers.clear()
        self._known = None

    def next(self, usable: Callable[[C], bool], passed: list[int]) -> C | None:
        """The next consumer to be served, None when none is usable.

        passed: empty at the first choice for a read, and the same list at its other choices. A consumer that is not
        usable must stay so until then, and no consumer come or go: no choice looks at it again. So the choices for a
        thousand entries among thousands of consumers without permits look at each consumer once.
        """
        consumers = self.consumers
        if not consumers:
            return None
        if self.turn >= len(consumers):
            self.turn = 0
        due = consumers[self.turn]
        level = due.priority_level
        if (level == _BEST or level <= consumers[0].priority_level) and usable(due):  # the common case, without a walk
            self.turn += 1
            return due
        if not passed:
            passed += range(len(consumers) + 1)
        for start, end in self._candidates(self.turn):
            i = _from(passed, start)
            while i < end:
                if usable(consumers[i]):
                    self.turn = i + 1
                    return consumers[i]
                passed[i] = i + 1
                i = _from(passed, i)
        return None

    def _candidates(self, turn: int) -> tuple[tuple[int, int], ...]:
        """Better levels in their order, then the level of the turn from there round, then the later levels: as ranges
        of indexes, each with its end. In a turn of level 0 the better levels come last.
        """
        known = self._known
        if known is None:
            known = self._known = _levels([c.priority_level for c in self.consumers])
        level, end = known.of[turn], known.run_ends[turn]
        first = known.firsts[level]
        better = (0, min(bisect_left(known.worst_so_far, level), turn))
        others = (turn, end), (first, min(known.run_ends[first], turn)), (end, len(known.of))
        return (*others, better) if level == _BEST else (better, *others)


def _from(passed: list[int], index: int) -> int:
    """The first index from `index` on that was not passed. `passed` has for each index itself, or an index behind it
    that lies before or at the next index that was not passed.
    """
    while passed[index] != index:
        passed[index] = index = passed[passed[index]]
    return index
