"""The bytes of parked slabs, for readers: slabs that are in the journal alone (``ledger_state.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.bulk_read import joined, read_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.embedded.direct_reader import DirectReader, Done, Wanted
    from magnetar.storage.embedded.files import File
    from magnetar.storage.embedded.ledger_state import UnwrittenSlab

__all__ = ["ParkedBytes"]

_GAP_BYTES = 64 << 10
"""A read goes on over at most this many bytes between two slabs."""


class ParkedBytes:
    """The bytes of neighbouring parked slabs of one ledger, addressed like the ledger file (``LedgerBytes``)."""

    def __init__(self, slabs: Sequence[UnwrittenSlab]) -> None:
        self._slabs = slabs

    def read(self, _ledger_id: int, size: int, offset: int) -> bytes:
        found: list[bytes] = []
        for file, ranges in self._groups(size, offset):
            part = read_ranges(file, ranges)
            found.append(part)
            if len(part) < sum(size for _, size in ranges):
                break
        return found[0] if len(found) == 1 else joined(found)

    def begin(self, reader: DirectReader, wanted: Wanted, size: int, offset: int, done: Done) -> bool:
        """Begin a read without a thread (``DirectReader.begin``), which ends at the end of a segment."""
        groups = self._groups(size, offset)
        return bool(groups) and reader.begin(*groups[0], wanted, done)

    def _groups(self, size: int, offset: int) -> list[tuple[File, list[tuple[int, int]]]]:
        """The places of these bytes: ranges of a file that lie close to each other, to be read together."""
        groups: list[tuple[File, list[tuple[int, int]]]] = []
        end = 0
        for slab in self._slabs:
            skip = offset - slab.offset
            if not 0 <= skip < slab.size_bytes or size <= 0:
                continue
            file, at = slab.place
            want = min(size, slab.size_bytes - skip)
            if not groups or groups[-1][0] is not file or not end <= at <= end + _GAP_BYTES:
                groups.append((file, []))
            groups[-1][1].append((at + skip, want))
            end = at + skip + want
            offset += want
            size -= want
        return groups

    def size(self, _ledger_id: int) -> int:
        return self._slabs[-1].offset + self._slabs[-1].size_bytes
