"""Limits of the bytes that wait for their ledger files, by the free space of the file system.

Confirmed entries are in the journal before they are in their ledger files, and the journal frees a segment only when
all of its entries are in synced ledger files. A journal that takes the last free bytes while entries wait would
therefore never become smaller, and the next start, which writes these entries as well, would find no space either.
So the engine keeps the space of the waiting entries free:

* at most half of the free bytes wait for ledger files; above that appends wait;
* write-behind holds off in a burst only for a quarter of the free bytes, and a checkpoint begins after as many;
* the journal makes no segment that would take the space of waiting bytes, and uses no spare segment while more bytes
  wait than are free;
* appends fail below a small reserve, which the entries need that are under way when the space ends.

Other programs may still take the space; then appends fail until there is space for the waiting bytes.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SpaceLimits"]


class SpaceLimits:
    """The limits at the last measurement. Each is a plain number, which any thread may read and ``measure`` sets."""

    def __init__(
        self,
        free_bytes: Callable[[], int],
        *,
        held_off_bytes: int,
        max_unwritten_bytes: int,
        checkpoint_bytes: int,
        reserve_bytes: int,
    ) -> None:
        self._reserve_bytes = reserve_bytes
        self._measure = free_bytes
        self._most = held_off_bytes, max_unwritten_bytes, checkpoint_bytes
        self.held_off_bytes, self.max_unwritten_bytes, self.checkpoint_bytes = self._most
        self.free_bytes = sum(self._most)
        """Free bytes of the file system at the last measurement."""
        self.waiting_bytes: Callable[[], int] = lambda: 0
        """Confirmed bytes that are not in ledger files yet."""
        self.shortage: OSError | None = None
        """The error of appends; None while at least the reserve is free."""
        self.measure()

    def measure(self) -> None:
        """Measure the free bytes and set the limits. Without a measurement they stay. In any thread but the loop's."""
        try:
            free = self._measure()
        except OSError:
            return
        held_off, unwritten, checkpoint = self._most
        self.free_bytes = free
        self.held_off_bytes = min(held_off, free // 4)
        self.max_unwritten_bytes = min(unwritten, free // 2)
        self.checkpoint_bytes = max(min(checkpoint, free // 4), 1)
        self.shortage = None if free >= self._reserve_bytes else _shortage(free, self._reserve_bytes)

    def allows_spare(self) -> bool:
        """Whether the waiting bytes had space at the last measurement, so that the journal may use a spare segment."""
        return self.waiting_bytes() <= self.free_bytes

    def check_new_segment(self, size_bytes: int) -> None:
        """Measure, and raise OSError (ENOSPC) when a new segment would take space of the waiting bytes."""
        self.measure()
        waiting = self.waiting_bytes()
        if waiting and size_bytes + waiting > self.free_bytes:
            raise OSError(
                errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} beside {waiting} bytes that wait for ledger files"
            )


def _shortage(free: int, reserve: int) -> OSError:
    return OSError(
        errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {free} bytes are free, the last {reserve} are a reserve"
    )
