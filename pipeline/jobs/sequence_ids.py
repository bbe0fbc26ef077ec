"""The sequence ids of producers as runs of consecutive ids: small as long as ids are consecutive, exact always."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class SequenceIds:
    """Producer name -> sorted, disjoint runs [first, last] of sequence ids. Pickles."""

    def __init__(self) -> None:
        self._runs: dict[bytes, tuple[list[int], list[int]]] = {}

    def add(self, names: Sequence[bytes], ids: Sequence[int]) -> list[int]:
        """Add one id per entry, in order; returns the places in `ids` whose id had been added before."""
        repeated = []
        for place, (name, number) in enumerate(zip(names, ids, strict=True)):
            runs = self._runs.get(name)
            if runs is None:
                self._runs[name] = ([number], [number])
            elif number == runs[1][-1] + 1:
                runs[1][-1] = number  # the usual case: the id that follows the highest
            elif not _insert(runs, number, number):
                repeated.append(place)
        return repeated

    def overlaps(self, other: SequenceIds) -> Iterator[tuple[bytes, int, int]]:
        """(producer, first, last) of every run of `other` that shares ids."""
        for name, (firsts, lasts) in other._runs.items():
            mine = self._runs.get(name)
            if mine is None:
                continue
            for first, last in zip(firsts, lasts, strict=True):
                at = bisect_right(mine[0], last) - 1
                if at >= 0 and mine[1][at] >= first:
                    yield name, max(first, mine[0][at]), min(last, mine[1][at])

    def merge(self, other: SequenceIds) -> None:
        """Add all ids of `other`; an id that both have counts once."""
        for name, (firsts, lasts) in other._runs.items():
            runs = self._runs.setdefault(name, ([], []))
            for first, last in zip(firsts, lasts, strict=True):
                _insert(runs, first, last)

    def __len__(self) -> int:
        """How many runs there are."""
        return sum(len(firsts) for firsts, _ in self._runs.values())


def _insert(runs: tuple[list[int], list[int]], first: int, last: int) -> bool:
    """Add the run [first, last] and join it with adjacent runs; returns whether all of its ids are new."""
    firsts, lasts = runs
    begin = bisect_left(lasts, first - 1)
    end = bisect_right(firsts, last + 1)
    new = not any(firsts[i] <= last and lasts[i] >= first for i in range(begin, end))
    low = min([first, *firsts[begin:end]])
    high = max([last, *lasts[begin:end]])
    firsts[begin:end] = [low]
    lasts[begin:end] = [high]
    return new
