"""Sparse index of a ledger file. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES

__all__ = ["INDEX_INTERVAL_BYTES", "LedgerIndex"]

INDEX_INTERVAL_BYTES = 64 << 10


class LedgerIndex:
    """Sparse index of a ledger file: the offset of some entry in every 64 KiB of records."""

    __slots__ = ("entries", "offsets")

    def __init__(self) -> None:
        self.entries: array[int] = array("q")
        self.offsets: array[int] = array("q")
        """File offsets."""

    def add(self, entry_id: int, offset: int) -> None:
        """Add a point unless the last point is less than 64 KiB before. The caller adds points in ascending order."""
        if not self.offsets or offset - self.offsets[-1] >= INDEX_INTERVAL_BYTES:
            self.entries.append(entry_id)
            self.offsets.append(offset)

    def add_records(self, first_entry_id: int, file_offset: int, offsets: memoryview) -> None:
        """Add the points of consecutive records. ``offsets``: the offset of each record in a buffer, and the end of the
        last record; ``file_offset``: the file offset of the first record.
        """
        shift, last = file_offset - offsets[0], len(offsets) - 1
        due = self.offsets[-1] - shift + INDEX_INTERVAL_BYTES if self.offsets else offsets[0]
        if offsets[last] <= due:
            return  # the last point is near all records
        index = 0
        while (index := bisect_left(offsets, due, index, last)) < last:
            at = offsets[index]
            self.entries.append(first_entry_id + index)
            self.offsets.append(at + shift)
            due = at + INDEX_INTERVAL_BYTES

    def point_for(self, entry_id: int) -> tuple[int, int]:
        """(entry id, file offset) of the nearest point at or before the entry."""
        index = bisect_right(self.entries, entry_id) - 1
        return (self.entries[index], self.offsets[index]) if index >= 0 else (0, FILE_HEADER_BYTES)
