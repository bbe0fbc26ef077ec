"""Maps sticky key hashes to consumers of a Key_Shared subscription: selectors and their hash ranges.

Hashes are 1..65535 (0 stands for "no hash"); a range is inclusive at both ends. Three selectors:

    RingSelector    AUTO_SPLIT by consistent hashing, the default (hash_ring.py)
    SplitSelector   AUTO_SPLIT that halves the largest range (subscriptionKeySharedUseConsistentHashing=false)
    StickySelector  STICKY: the ranges of the consumers' requests

Each reduces the 31 bit Murmur hash of a key to its own range: the ring to 1..65535 (% 65535 + 1), the others to
0..65535 where 0 becomes 1 (Apache Pulsar 4.2.4).

Selectors have no side effects on consumers. A joining consumer takes hashes from members (`add` returns these hashes);
when a consumer leaves, the remaining members lose no hash. Neither a join nor a leave walks through the ranges of all
members: a join to many consumers costs no more than a join to few.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import ConsumerAssignError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HASHES = 65536
FIRST_HASH = 1
LAST_HASH = HASHES - 1


class Member(Protocol):
    """The part of a consumer that a selector needs; object identity distinguishes the members."""

    @property
    def name(self) -> str: ...

    @property
    def sticky_ranges(self) -> Sequence[tuple[int, int]]: ...


class Assignment(NamedTuple):
    """Hashes ``start..end`` are served by ``owner``."""

    start: int
    end: int
    owner: Member


class KeySelector(Protocol):
    """Maps each hash to a member, or to none."""

    def hash_of(self, murmur: int) -> int:
        """The hash of a key whose Murmur hash this is."""
        ...

    def add(self, member: Member) -> list[Assignment]:
        """Admit a member; return the ranges that it takes from other members, in order, each with its former owner."""
        ...

    def remove(self, member: Member) -> None:
        """Remove a member; other members may get its hashes and lose no hash. No-op for an unknown member."""
        ...

    def clear(self) -> None:
        """Remove all members."""
        ...

    def select(self, key_hash: int) -> Member | None: ...

    def ranges(self) -> list[Assignment]:
        """The ranges of all members, in order."""
        ...

    def ranges_of(self, member: Member) -> list[tuple[int, int]]:
        """First and last hash of each range of the member, in order."""
        ...


def merge(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Join adjacent ranges of the same owner; the input is in order."""
    merged: list[Assignment] = []
    for each in assignments:
        if merged and merged[-1].owner is each.owner and merged[-1].end + 1 == each.start:
            merged[-1] = Assignment(merged[-1].start, each.end, each.owner)
        else:
            merged.append(each)
    return merged


class StickySelector:
    """Each consumer serves the ranges that it declared (KeySharedMeta.hashRanges); entries of other hashes wait."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int, Member]] = []  # start, end, tie breaker, owner
        self._starts: list[int] = []

    def hash_of(self, murmur: int) -> int:
        return murmur % HASHES or 1

    def check(self, member: Member) -> None:
        """Raises ConsumerAssignError: no ranges, start > end, overlap within the request, then with another consumer.
        Ranges outside 0..65535 are accepted (Apache Pulsar 4.2.4).
        """
        ranges = sorted(member.sticky_ranges)
        if not ranges:
            raise wire_refusals.HASH_RANGES_MISSING.error()
        previous = (-(1 << 33), -(1 << 32))
        for start, end in ranges:
            if start > end:
                raise wire_refusals.HASH_RANGE_BACKWARDS.error(start=start, end=end)
            if start <= previous[1]:
                raise wire_refusals.HASH_RANGES_OVERLAP.error(
                    start=previous[0], end=previous[1], next_start=start, next_end=end
                )
            previous = (start, end)
        for start, end in ranges:
            at = bisect_left(self._starts, end + 1) - 1  # the last range that begins at or before the end
            if at >= 0 and self._ranges[at][1] >= start:
                raise wire_refusals.HASH_RANGE_CONFLICT.error(consumer=self._ranges[at][3].name)

    def add(self, member: Member) -> list[Assignment]:
        self.check(member)
        self._ranges += [(start, end, id(member), member) for start, end in member.sticky_ranges]
        self._ranges.sort(key=itemgetter(0))
        self._starts = [each[0] for each in self._ranges]
        return []

    def clear(self) -> None:
        self._ranges.clear()
        self._starts.clear()

    def remove(self, member: Member) -> None:
        self._ranges = [each for each in self._ranges if each[3] is not member]
        self._starts = [each[0] for each in self._ranges]

    def select(self, key_hash: int) -> Member | None:
        i = bisect_left(self._starts, key_hash + 1) - 1
        if i < 0 or self._ranges[i][1] < key_hash:
            return None
        return self._ranges[i][3]

    def ranges(self) -> list[Assignment]:
        return [Assignment(start, end, owner) for start, end, _, owner in self._ranges]

    def ranges_of(self, member: Member) -> list[tuple[int, int]]:
        """As in Apache Pulsar's statistics, adjacent ranges are one range."""
        declared = merge(Assignment(start, end, member) for start, end in sorted(member.sticky_ranges))
        return [(each.start, each.end) for each in declared]


class SplitSelector:
    """Splits ranges in halves: a joining consumer gets the lower half of the largest range (of several, the lowest);
    the range of a leaving consumer goes to the next range, the highest range to the range before it.

    The ranges are those of Apache Pulsar 4.2.4, as consumers' statistics show them: they cover 0..65536, though no key
    has hash 0 or 65536. The size of a range does not count hash 0, so that halves stay equal.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._owners: list[Member] = []

    def hash_of(self, murmur: int) -> int:
        return murmur % HASHES or 1

    def add(self, member: Member) -> list[Assignment]:
        if not self._ends:
            self._ends, self._owners = [HASHES], [member]
            return []
        sizes = [end - before for before, end in pairwise([0, *self._ends])]
        largest = sizes.index(max(sizes))
        if sizes[largest] < 2:
            raise ConsumerAssignError("No hash range is left to split.")
        start, end, former = self._start(largest), self._ends[largest] - sizes[largest] // 2, self._owners[largest]
        self._ends.insert(largest, end)
        self._owners.insert(largest, member)
        return [Assignment(start, end, former)]

    def _start(self, index: int) -> int:
        return self._ends[index - 1] + 1 if index else 0

    def clear(self) -> None:
        self._ends.clear()
        self._owners.clear()

    def remove(self, member: Member) -> None:
        for i, owner in enumerate(self._owners):
            if owner is member:
                del self._owners[i]
                del self._ends[i]
                if self._ends and i == len(self._ends):
                    self._ends[-1] = HASHES
                return

    def select(self, key_hash: int) -> Member | None:
        return self._owners[bisect_left(self._ends, key_hash)] if self._owners and key_hash <= LAST_HASH else None

    def ranges(self) -> list[Assignment]:
        start, result = 0, []
        for end, owner in zip(self._ends, self._owners, strict=True):
            result.append(Assignment(start, end, owner))
            start = end + 1
        return result

    def ranges_of(self, member: Member) -> list[tuple[int, int]]:
        return [(self._start(i), self._ends[i]) for i, owner in enumerate(self._owners) if owner is member]
