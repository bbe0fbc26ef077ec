"""Recognises times in which consumers read ledgers from the device. Pure."""

from __future__ import annotations

__all__ = ["ColdReads"]

_GAP_S = 0.01
"""Reads that follow each other within this time are one time of reading: the consumer takes the entries meanwhile."""


class ColdReads:
    """The reads under way, and since when one follows the other."""

    __slots__ = ("_ended_s", "_since_s", "_under_way")

    def __init__(self) -> None:
        self._under_way = 0
        self._since_s = 0.0
        self._ended_s = -_GAP_S
        """The end of the last read."""

    def begin(self, now_s: float) -> None:
        """Count a read that begins."""
        if not self._under_way and now_s - self._ended_s >= _GAP_S:
            self._since_s = now_s
        self._under_way += 1

    def end(self, now_s: float) -> None:
        """Count the end of a read, whatever its result."""
        self._under_way -= 1
        self._ended_s = now_s

    def last(self, now_s: float) -> bool:
        """Whether consumers read at this time."""
        return self._under_way > 0 or now_s - self._ended_s < _GAP_S

    def seconds(self, now_s: float) -> float:
        """The seconds since consumers began to read; 0 while none does."""
        return now_s - self._since_s if self.last(now_s) else 0.0
