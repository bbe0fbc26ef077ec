"""Indexes of delayed entries in columns, sorted by (deliver_at, ledger, entry): chunks and segments are such. Pure.

Arrays, not tuples: 20 bytes an index instead of more than 140, and C does the copying.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from operator import itemgetter, le
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["AFTER_ALL", "Columns", "Key", "SortedRun", "concatenate", "merge", "sort"]

Key = tuple[int, int, int]
"""(deliver_at in ms, ledger id, entry id): the order of delivery."""
AFTER_ALL = (1 << 63) - 1
_EXACT_FLOAT = 1 << 53


class Columns(NamedTuple):
    """Row k of the three arrays is one index."""

    times: array[int]
    """int64, ms."""
    ledgers: array[int]
    """int64."""
    entries: array[int]
    """uint32."""

    @property
    def rows(self) -> int:
        return len(self.times)

    @property
    def size_bytes(self) -> int:
        return 20 * len(self.times)

    @classmethod
    def empty(cls) -> Columns:
        return cls(array("q"), array("q"), array("I"))

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Columns:
        columns = cls.empty()
        for time, ledger_id, entry_id in keys:
            columns.times.append(time)
            columns.ledgers.append(ledger_id)
            columns.entries.append(entry_id)
        return columns

    def part(self, start: int, end: int) -> Columns:
        """Rows start .. end - 1, copied."""
        return Columns(self.times[start:end], self.ledgers[start:end], self.entries[start:end])

    def keys(self) -> list[Key]:
        return list(zip(self.times, self.ledgers, self.entries, strict=True))


class SortedRun:
    """Sorted columns of which everything before ``head`` has been taken."""

    __slots__ = ("columns", "head", "times")

    def __init__(self, columns: Columns, head: int = 0) -> None:
        self.columns = columns
        self.times = columns.times
        self.head = head

    def __len__(self) -> int:
        return len(self.times) - self.head

    @property
    def head_time(self) -> int:
        return self.times[self.head]

    @property
    def last_key(self) -> Key:
        return self.key(len(self.times) - 1)

    def key(self, i: int) -> Key:
        columns = self.columns
        return columns.times[i], columns.ledgers[i], columns.entries[i]

    def end_up_to(self, bound: Key) -> int:
        """Index behind the last row whose key is at most ``bound``."""
        times = self.times
        end = bisect_right(times, bound[0], self.head)
        if end > self.head and times[end - 1] == bound[0] and self.key(end - 1) > bound:
            first = bisect_right(times, bound[0] - 1, self.head, end)
            end = bisect_right(range(end), bound, first, end, key=self.key)
        return end

    def take(self, end: int) -> Columns:
        """Rows up to ``end - 1``; they are gone."""
        taken = self.columns.part(self.head, end)
        self.head = end
        return taken

    def rest(self) -> Columns:
        """What has not been taken, copied."""
        return self.columns.part(self.head, len(self.times))


def concatenate(parts: Iterable[Columns]) -> Columns:
    """All rows, part after part."""
    out = Columns.empty()
    for part in parts:
        out.times.extend(part.times)
        out.ledgers.extend(part.ledgers)
        out.entries.extend(part.entries)
    return out


def sort(columns: Columns, *, by_position: bool) -> Columns:
    """Sorted by key. ``by_position``: the rows come in the order of positions, so times alone are compared."""
    times = columns.times
    count = len(times)
    if count < 2:
        return columns
    order: Sequence[int] = range(count)
    if not by_position:
        order = sorted(order, key=list(zip(columns.ledgers, columns.entries, strict=True)).__getitem__)
    elif all(map(le, times, memoryview(times)[1:])):
        return columns  # a fixed delay
    if min(times) > -_EXACT_FLOAT and max(times) < _EXACT_FLOAT:
        order = sorted(order, key=list(map(float, times)).__getitem__)  # comparing floats is the fastest of all
    else:
        order = sorted(order, key=times.__getitem__)
    pick = itemgetter(*order)
    return Columns(array("q", pick(times)), array("q", pick(columns.ledgers)), array("I", pick(columns.entries)))


def merge(parts: Sequence[Columns]) -> Columns:
    """One sorted run of several sorted ones."""
    if len(parts) == 1:
        return parts[0]
    keys: list[Key] = []
    for part in parts:
        keys += zip(part.times, part.ledgers, part.entries, strict=True)
    if not keys:
        return Columns.empty()
    keys.sort()
    times, ledgers, entries = zip(*keys, strict=True)
    return Columns(array("q", times), array("q", ledgers), array("I", entries))
