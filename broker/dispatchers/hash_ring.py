r"""Consistent hashing: the ring of a Key_Shared subscription, and the ring that picks the active consumer of a Failover
subscription.

Key_Shared (Apache Pulsar 4.2): a consumer has 100 points at ``sticky_hash(name \\0 index \\0 i)``; ``index`` (the
smallest free number) distinguishes connected consumers of equal name. The owner of a hash is the consumer of the first
point at or after the hash, wrapping around. Where points collide, the consumer that came first owns the point; when it
leaves, the consumer that came next owns the point.

Failover: a consumer has 100 points at ``murmur(name i)`` on the full 31 bit ring; the owner of the topic name's hash is
the active consumer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from magnetar.broker.dispatchers.key_ranges import FIRST_HASH, LAST_HASH, Assignment, Member, merge
from magnetar.protocol.key_hash import murmur3_32, murmur3_32_with_each

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILOVER_POINTS = 100
_FULL_RING = 1 << 31


class RingSelector:
    """AUTO_SPLIT by consistent hashing."""

    def __init__(self, points_per_consumer: int = 100) -> None:
        self._points_per_consumer = points_per_consumer
        self._points: list[int] = []
        self._owners: dict[int, list[Member]] = {}  # by point, in the order they came
        self._indexes: dict[str, dict[int, Member]] = {}  # by name: index -> member
        self._points_by_member: dict[Member, array[int]] = {}  # without repetition
        self._ranges: dict[Member, array[int]] = {}  # first, last, first, ... filled on demand

    def _new_points(self, member: Member, index: int) -> list[int]:
        numbers = (b"%d" % i for i in range(self._points_per_consumer))
        murmurs = murmur3_32_with_each(f"{member.name}\0{index}\0".encode(), numbers)
        points = [self.hash_of(each) for each in murmurs]
        self._points_by_member[member] = array("q", dict.fromkeys(points))
        return points

    def hash_of(self, murmur: int) -> int:
        return murmur % LAST_HASH + 1

    def add(self, member: Member) -> list[Assignment]:
        used = self._indexes.setdefault(member.name, {})
        index = next(i for i in range(len(used) + 1) if i not in used)
        used[index] = member
        taken: list[Assignment] = []
        for point in self._new_points(member, index):
            owners = self._owners.get(point)
            if owners is None:
                former = self.select(point)
                self._owners[point] = [member]
                insort(self._points, point)
                if former is not None and former is not member:
                    taken += self._before(point, former)
                    self._ranges.pop(former, None)
            elif member not in owners:
                owners.append(member)
        return merge(sorted(taken, key=attrgetter("start")))

    def _before(self, point: int, owner: Member) -> Iterator[Assignment]:
        """Yield the hashes that belong to `point`, assigned to `owner`; the hashes of the lowest point wrap around."""
        i = bisect_left(self._points, point)
        yield Assignment(self._points[i - 1] + 1 if i else FIRST_HASH, point, owner)
        if i == 0 and self._points[-1] < LAST_HASH:
            yield Assignment(self._points[-1] + 1, LAST_HASH, owner)

    def remove(self, member: Member) -> None:
        used = self._indexes.get(member.name, {})
        index = next((i for i, owner in used.items() if owner is member), None)
        if index is None:
            return
        del used[index]
        if not used:
            del self._indexes[member.name]
        self._ranges.pop(member, None)
        for point in self._points_by_member.pop(member):
            owners = self._owners[point]
            owners.remove(member)
            if not owners:
                del self._owners[point]
                del self._points[bisect_left(self._points, point)]
            heir = self.select(point)
            if heir is not None:
                self._ranges.pop(heir, None)

    def clear(self) -> None:
        self._points.clear()
        for kept in (self._owners, self._indexes, self._points_by_member, self._ranges):
            kept.clear()

    def select(self, key_hash: int) -> Member | None:
        if not self._points:
            return None
        i = bisect_left(self._points, key_hash)
        return self._owners[self._points[i if i < len(self._points) else 0]][0]

    def ranges(self) -> list[Assignment]:
        if not self._points:
            return []
        start, result = FIRST_HASH, []
        for point in self._points:
            result.append(Assignment(start, point, self._owners[point][0]))
            start = point + 1
        if start <= LAST_HASH:
            result.append(Assignment(start, LAST_HASH, self._owners[self._points[0]][0]))
        return merge(result)

    def ranges_of(self, member: Member) -> list[tuple[int, int]]:
        ends = self._ranges.get(member)
        if ends is None:
            ends = self._ranges[member] = array("q", self._ends(member))
        return list(zip(ends[::2], ends[1::2], strict=True))

    def _ends(self, member: Member) -> list[int]:
        """First and last hash of each range of the member, in order. The lowest point also owns the hashes above the
        highest point.
        """
        points, owners = self._points, self._owners
        ends: list[int] = []
        for point in sorted(self._points_by_member.get(member, ())):
            if owners[point][0] is not member:
                continue
            i = bisect_left(points, point)
            first = points[i - 1] + 1 if i else FIRST_HASH
            if ends and ends[-1] + 1 == first:
                ends[-1] = point
            else:
                ends += (first, point)
        if ends and owners[points[0]][0] is member and points[-1] < LAST_HASH:
            if ends[-1] == points[-1]:
                ends[-1] = LAST_HASH
            else:
                ends += (points[-1] + 1, LAST_HASH)
        return ends


def ring_distance(name: str, key: str) -> int:
    """Return how far ``name`` has its first point behind the hash of ``key`` on the ring; the nearest owns it."""
    wanted = murmur3_32(key.encode())
    points = _failover_points(name)
    at = bisect_left(points, wanted)
    return points[at] - wanted if at < len(points) else points[0] + _FULL_RING - wanted


@lru_cache(maxsize=4096)
def _failover_points(name: str) -> array[int]:
    """The points of a name, in order; cached, because consumers come and go and come again."""
    return array("I", sorted(murmur3_32_with_each(name.encode(), (b"%d" % i for i in range(FAILOVER_POINTS)))))
