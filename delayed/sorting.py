"""Sorting of delayed indexes by (time, ledger, entry): compiled when the helper was built, else its pure twin.

`MAGNETAR_PURE=1` in the environment takes the twin in any case. Both give equal results
(tests/delayed/test_sorting.py). The compiled function works without the interpreter lock from some thousand rows on.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING

from magnetar.delayed.sorted_run import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["COMPILED", "WINDOW_INDEXES", "merge", "pure_sorted_columns", "sort"]


def pure_sorted_columns(parts: Sequence[Columns]) -> tuple[bytes, bytes, bytes]:
    """Return all rows of all parts in order: (times int64, ledgers int64, entries uint32), native."""
    keys = sorted(key for part in parts for key in part.keys())  # noqa: SIM118 - not a dict
    times, ledgers, entries = zip(*keys, strict=True) if keys else ((), (), ())
    return array("q", times).tobytes(), array("q", ledgers).tobytes(), array("I", entries).tobytes()


COMPILED = False
_sorted_columns: Callable[[Sequence[Columns]], tuple[bytes, bytes, bytes]] = pure_sorted_columns
if not os.environ.get("MAGNETAR_PURE"):
    try:
        from magnetar.delayed import _sorting
    except ImportError:  # no compiler at install time: the twin serves
        pass
    else:
        COMPILED, _sorted_columns = True, _sorting.sorted_columns

WINDOW_INDEXES = 65536 if COMPILED else 8192
"""The most indexes sorted in one call off the loop: the twin holds the interpreter lock while it sorts."""


def sort(columns: Columns) -> Columns:
    """Return the rows sorted by key."""
    return _columns(*_sorted_columns((columns,)))


def merge(parts: Sequence[Columns]) -> Columns:
    """Merge several runs, sorted or not, into a sorted run."""
    return parts[0] if len(parts) == 1 else _columns(*_sorted_columns(parts))


def _columns(times: bytes, ledgers: bytes, entries: bytes) -> Columns:
    columns = Columns.empty()
    columns.times.frombytes(times)
    columns.ledgers.frombytes(ledgers)
    columns.entries.frombytes(entries)
    return columns
