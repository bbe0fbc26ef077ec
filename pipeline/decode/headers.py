"""Headers: the metadata of a chunk's entries, one column per field. See `protocol/entry_columns.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, entry_columns
from magnetar.protocol.pulsar_api_pb2 import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from magnetar.pipeline.entry_chunk import EntryChunk

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MIN_MESSAGE_BYTES: Final = 6
"""A message of a batch takes at least its size field and its payload_size."""


class Headers:
    """Columns of the entries of one chunk; the values of an unreadable entry are undefined.

    first_index, last_index: broker entry indexes of an entry's first and last message; -1 without broker entry
        metadata.
    messages: how many messages the entry declares; 0 for an empty batch.
    """

    def __init__(self, chunk: EntryChunk, *, verify: bool) -> None:
        n = len(chunk)
        table = entry_columns(chunk.data, as_int64(chunk.offsets), as_int64(chunk.ends), verify)
        self._table = np.frombuffer(table, np.int64).reshape(len(EntryColumn), n)
        self.ends: Int64s = as_int64(chunk.ends)
        self.messages: Int64s = np.maximum(self[EntryColumn.MESSAGES], 0)
        has_index = self.has(ColumnFlag.HAS_INDEX)
        self.last_index: Int64s = np.where(has_index, self[EntryColumn.INDEX], -1)
        self.first_index: Int64s = np.where(has_index, self.last_index - np.maximum(self.messages, 1) + 1, -1)

    def decrypted(self, chunk: EntryChunk, which: Bools) -> Headers:
        """The headers of `chunk`: the same entries, of which `which` have their payload decrypted.

        Checksums are those of the stored entries, so their results stay.
        """
        new = Headers(chunk, verify=False)
        table = new._table.copy()
        table[EntryColumn.STATUS] = self._table[EntryColumn.STATUS]
        table[EntryColumn.FLAGS][which] &= ~int(ColumnFlag.ENCRYPTED)
        new._table = table
        return new

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, column: EntryColumn) -> Int64s:
        values: Int64s = self._table[column]
        return values

    def has(self, flag: ColumnFlag) -> Bools:
        """Which entries have the flag."""
        found: Bools = (self._table[EntryColumn.FLAGS] & int(flag)) != 0
        return found

    def any_flags(self) -> int:
        """Every flag that at least one entry has."""
        return int(np.bitwise_or.reduce(self._table[EntryColumn.FLAGS]))

    def compressed(self) -> Bools:
        found: Bools = self[EntryColumn.COMPRESSION] != NONE
        return found

    def payload_bytes(self) -> Int64s:
        """Bytes of each payload as stored."""
        return self.ends - self[EntryColumn.METADATA_END]

    def plain_bytes(self) -> Int64s:
        """Bytes of each payload after decompression, as its metadata declares them."""
        return np.where(self.compressed(), self[EntryColumn.UNCOMPRESSED_SIZE], self.payload_bytes())

    def rows(self) -> Int64s:
        """An upper bound of the rows of each entry: the declared number of messages, limited by the payload's size."""
        return np.clip(self.messages, 1, np.maximum(self.plain_bytes() // MIN_MESSAGE_BYTES, 1))

    def in_range(self, first_index: int | None, end_index: int | None) -> Bools:
        """Which entries have a message of the half-open range; an entry without an index always counts."""
        known = self.last_index >= 0
        wanted = np.ones(len(self), np.bool_)
        if first_index is not None:
            wanted &= ~known | (self.last_index >= first_index)
        if end_index is not None:
            wanted &= ~known | (self.first_index < end_index)
        return wanted


def as_int64(values: NDArray[np.int64]) -> Int64s:
    """The values as a contiguous array of native int64, as the compiled tables need it."""
    return np.ascontiguousarray(values, np.int64)
