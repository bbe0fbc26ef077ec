"""Splits the reads of a producer that sends its whole window at once.

A producer with many messages in flight that gets all receipts together sends the next window together. Then the log
waits while the producer works and the producer waits while the log works, for as long as the producer runs: windows
join, and nothing splits them again. So a connection whose window arrives while the log has no work reads half of the
window first. The frame of the first half begins at once, the second half goes with the next frame, and from then on one
half is on its way to the disk while the producer fills the other. A window that was read in halves costs one frame
more; small windows, windows of few messages and connections that publish beside others do not gain that, and are read
whole (docs/performance-history.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.read_turns import ReadTurns

__all__ = ["WindowHalves"]

_LEAST_BYTES = 64 * 1024
_LEAST_ENTRIES = 128


class WindowHalves:
    """The window of one connection. Loop only."""

    __slots__ = ("_first_bytes", "_turns", "half_bytes")

    def __init__(self, turns: ReadTurns) -> None:
        self.half_bytes = 0
        """Half of the last window in bytes; 0 while windows of this connection are read whole."""
        self._turns = turns
        self._first_bytes = 0

    def received(self, count: int, entries_before: int, entries: int) -> bool:
        """Take note of a read of ``count`` bytes of a connection with ``entries_before`` publishes in flight before the
        read and ``entries`` behind the read; return whether the rest of the window waits until the frame of this read
        has begun.
        """
        turns = self._turns
        if turns.last_reader is not self:  # other connections fill the frames meanwhile
            turns.last_reader = self
            self.half_bytes = self._first_bytes = 0
            return False
        if not entries_before:
            is_half = 0 < self.half_bytes <= count and entries > 0
            self._first_bytes = window_bytes = count
        elif self._first_bytes:
            is_half = False
            window_bytes, self._first_bytes = self._first_bytes + count, 0
        else:
            return False
        is_split = window_bytes >= _LEAST_BYTES and entries >= _LEAST_ENTRIES
        self.half_bytes = window_bytes // 2 if is_split else 0
        return is_half
