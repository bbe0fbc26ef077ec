"""Indexes of delayed entries in columns, sorted by (deliver_at, ledger, entry): chunks and segments are such. Pure.

An index takes 20 bytes in arrays, where a tuple would take more than 140, and arrays are copied in C.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["AFTER_ALL", "Columns", "Key", "SortedRun"]

Key = tuple[int, int, int]
"""(deliver_at in ms, ledger id, entry id): the order of delivery."""
AFTER_ALL = (1 << 63) - 1


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
        """Remove and return the rows up to ``end - 1``."""
        taken = self.columns.part(self.head, end)
        self.head = end
        return taken

    def rest(self) -> Columns:
        """A copy of the entries not yet taken."""
        return self.columns.part(self.head, len(self.times))
