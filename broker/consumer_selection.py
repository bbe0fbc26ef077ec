"""Round robin over consumers by priority (Shared subscriptions). A pure choice.

A lower priority_level is served first; consumers of a worse level get messages only while no consumer of a better one
can take any. Within a level it is round robin in the order they joined.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class HasPriority(Protocol):
    @property
    def priority_level(self) -> int: ...


C = TypeVar("C", bound=HasPriority)


class RoundRobin(Generic[C]):
    """Consumers sorted by priority level; equal levels keep the order they joined in."""

    def __init__(self) -> None:
        self.consumers: list[C] = []
        self._next: dict[int, int] = {}  # level -> index within the level

    def add(self, consumer: C) -> None:
        levels = [c.priority_level for c in self.consumers]
        self.consumers.insert(bisect_right(levels, consumer.priority_level), consumer)

    def remove(self, consumer: C) -> None:
        level = consumer.priority_level
        same = [c for c in self.consumers if c.priority_level == level]
        at = same.index(consumer)
        following = self._next.get(level, 0)
        self._next[level] = following - 1 if at < following else following
        self.consumers.remove(consumer)
        if len(same) == 1:
            del self._next[level]

    def next(self, usable: Callable[[C], bool]) -> C | None:
        """The next consumer to be served, None when none is usable."""
        consumers, start, n = self.consumers, 0, len(self.consumers)
        while start < n:
            level = consumers[start].priority_level
            end = start + 1
            while end < n and consumers[end].priority_level == level:
                end += 1
            size, first = end - start, self._next.get(level, 0)
            for k in range(size):
                at = (first + k) % size
                if usable(consumers[start + at]):
                    self._next[level] = (at + 1) % size
                    return consumers[start + at]
            start = end
        return None
