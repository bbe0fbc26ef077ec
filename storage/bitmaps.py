"""Queries on sets of entry ids (pyroaring bitmaps) that need more than one call of pyroaring. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MAX_ENTRIES_PER_LEDGER", "first_absent", "runs_absent"]

MAX_ENTRIES_PER_LEDGER = 1 << 32
"""Bitmaps hold u32: no ledger may have more entries than this."""

_WINDOW = 1 << 16  # The size of one container of the bitmap: a window costs one or two microseconds for any set.


def first_absent(sets: Sequence[BitMap], start: int, stop: int) -> int:
    """The first id in ``start .. stop - 1`` that none of the sets holds; ``stop`` when there is none."""
    while start < stop:
        for held in sets:
            if start in held:
                break
        else:
            return start
        end = min((start // _WINDOW + 1) * _WINDOW, stop)
        absent = BitMap(range(start, end)).difference(*sets)
        if absent:
            return int(absent.min())
        start = end
    return stop


def runs_absent(sets: Sequence[BitMap], start: int, stop: int) -> list[tuple[int, int]]:
    """The ids in ``start .. stop - 1`` that none of the sets holds, as half-open runs, ascending."""
    if start >= stop:
        return []
    if not sets:
        return [(start, stop)]
    window = BitMap(range(start, stop))
    absent = window.difference(*sets)
    if len(absent) == stop - start:
        return [(start, stop)]
    if len(absent) * 2 < stop - start:
        return list(_runs(absent))
    runs = []
    for held in window - absent:
        if held > start:
            runs.append((start, held))
        start = held + 1
    if start < stop:
        runs.append((start, stop))
    return runs


def _runs(ids: BitMap) -> Iterator[tuple[int, int]]:
    first = previous = -2
    for entry_id in ids:
        if entry_id != previous + 1:
            if first >= 0:
                yield first, previous + 1
            first = entry_id
        previous = entry_id
    if first >= 0:
        yield first, previous + 1
