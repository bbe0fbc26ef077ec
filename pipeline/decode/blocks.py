"""Blocks: parts of a chunk of entries that bound the memory for decoding, for any declared sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

MAX_ROWS: Final = 65_536
MAX_PLAIN_BYTES: Final = 32 * 1024 * 1024


def blocks(rows: Int64s, plain_bytes: Int64s) -> Iterator[tuple[int, int]]:
    """Runs [i, j) of entries that hold at most MAX_ROWS messages and MAX_PLAIN_BYTES to decompress; one entry that
    holds more is alone.

    Args:  rows, plain_bytes: at least 0, per entry.
    """
    n = len(rows)
    all_rows = np.concatenate(([0], np.cumsum(rows)))
    all_bytes = np.concatenate(([0], np.cumsum(plain_bytes)))
    i = 0
    while i < n:
        j = int(np.searchsorted(all_rows, all_rows[i] + MAX_ROWS, side="right")) - 1
        j = min(j, int(np.searchsorted(all_bytes, all_bytes[i] + MAX_PLAIN_BYTES, side="right")) - 1)
        j = max(j, i + 1)
        yield i, j
        i = j
