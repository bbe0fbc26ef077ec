"""A chunk during decoding: the entries in the range, the kind of each, and the reports of damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from magnetar.converters.interface import DEFAULT_LIMITS
from magnetar.pipeline.damage import Quarantined, Reason
from magnetar.pipeline.decode.headers import MIN_MESSAGE_BYTES
from magnetar.pipeline.decode.look_back import is_chunk
from magnetar.pipeline.errors import CorruptEntryError
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from magnetar.pipeline.decode.chunked_messages import Incomplete
    from magnetar.pipeline.decode.headers import Headers
    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.quarantine import Quarantine

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_WHY = {
    EntryStatus.SHORT: (Reason.HEADERS, "the headers leave the entry"),
    EntryStatus.CHECKSUM: (Reason.CHECKSUM, "the CRC32C does not match"),
    EntryStatus.METADATA: (Reason.HEADERS, "MessageMetadata does not parse"),
    EntryStatus.REQUIRED: (Reason.HEADERS, "MessageMetadata lacks a required field"),
    EntryStatus.BROKER_METADATA: (Reason.HEADERS, "BrokerEntryMetadata does not parse"),
}


_SPECIAL = int(
    ColumnFlag.BATCHED | ColumnFlag.MARKER | ColumnFlag.ENCRYPTED | ColumnFlag.NAMES_FORMAT | ColumnFlag.IS_CHUNK
)
"""An entry with one of these flags is not a single message as it is stored."""
_CHUNK_ROWS = 32
"""A joined message counts as this many rows of a block: it takes a buffer of its own, and there may be 4096 buffers."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A chunk with its headers and the requested range of indexes.

    A scan reports a lost entry only if its range has the index of the entry's last message (of a broken batch: of the
    first lost message), so that neighbouring ranges report each loss once.

    still_encrypted: entry -> why none of the private keys opens it.
    """

    chunk: EntryChunk
    headers: Headers
    first_index: int | None
    end_index: int | None
    quarantine: Quarantine
    still_encrypted: Mapping[int, str]

    def is_simple(self) -> bool:
        """Whether every entry is a single message as it is stored; no entry has to be looked at by its kind then."""
        headers = self.headers
        if headers[EntryColumn.STATUS].any() or headers[EntryColumn.COMPRESSION].any():
            return False
        return not headers.any_flags() & _SPECIAL

    def is_wanted(self, entry: int) -> bool:
        """Whether the range has the last message of the entry; true for an entry without an index."""
        return self._has(int(self.headers.last_index[entry]))

    def _has(self, index: int) -> bool:
        if index < 0:
            return True
        return (self.first_index is None or index >= self.first_index) and (
            self.end_index is None or index < self.end_index
        )

    def body(self, entry: int) -> bytes:
        """Metadata size, metadata and payload."""
        start = int(self.headers[EntryColumn.METADATA_START][entry]) - 4
        return bytes(memoryview(self.chunk.data)[start : int(self.chunk.ends[entry])])

    def report(self, entry: int, reason: Reason, detail: str, *, fails: bool | None = None) -> None:
        """Report a lost entry.

        Args:    fails: True raises, False only counts the entry; None leaves the decision to the quarantine.
        Raises:  CorruptEntryError.
        """
        if not self.is_wanted(entry):
            return
        index = int(self.headers.last_index[entry])
        found = self._position(entry, reason, detail, index, max(int(self.headers.messages[entry]), 1))
        if fails is None:
            self.quarantine.add(found)
        elif fails:
            raise CorruptEntryError(found)
        else:
            self.quarantine.report(found)

    def report_broken_batch(self, entry: int, batch_index: int) -> None:
        """Report that the messages of the entry from `batch_index` on are lost."""
        headers = self.headers
        index = int(headers.first_index[entry]) + batch_index if headers.last_index[entry] >= 0 else -1
        if self._has(index):
            left = int(headers.messages[entry]) - batch_index
            detail = f"the message does not hold together, nor what is behind it: {left} messages"
            self.quarantine.add(self._position(entry, Reason.BATCH, detail, index, left, batch_index))

    def report_unreadable(self) -> None:
        """Entries whose headers do not hold together."""
        status = self.headers[EntryColumn.STATUS]
        for entry in np.flatnonzero(status != EntryStatus.FINE).tolist():
            self.report(entry, *_WHY[EntryStatus(int(status[entry]))])

    def incomplete(self, entry: int, found: Incomplete) -> Quarantined:
        """The report of a chunked message that the decoder gave up at `entry`."""
        index = int(self.headers.last_index[entry])
        return Quarantined(
            self.chunk.topic,
            found.ledger_id,
            found.entry_id,
            Reason.CHUNKS,
            found.detail,
            index=index if index >= 0 else None,
        )

    def _position(
        self, entry: int, reason: Reason, detail: str, index: int, messages: int, batch_index: int | None = None
    ) -> Quarantined:
        chunk = self.chunk
        return Quarantined(
            chunk.topic,
            chunk.ledger_id,
            int(chunk.entry_ids[entry]),
            reason,
            detail,
            batch_index,
            index if index >= 0 else None,
            messages,
        )


class Kinds:
    """The kind of each entry, one mask per kind. plain: single messages and batches in Pulsar's own form."""

    def __init__(self, scan: Scan, *, include_markers: bool) -> None:
        headers = scan.headers
        wanted = headers.in_range(scan.first_index, scan.end_index) & (headers[EntryColumn.STATUS] == EntryStatus.FINE)
        if not include_markers:
            wanted &= ~headers.has(ColumnFlag.MARKER)
        # Chunks before the range are taken for the messages that end in it.
        behind = np.zeros(len(headers), np.bool_)
        if scan.end_index is not None:
            behind = (headers.last_index >= 0) & (headers.first_index >= scan.end_index)
        chunks = is_chunk(headers)
        self.chunk: Bools = chunks & ~behind
        self.encrypted: Bools = wanted & headers.has(ColumnFlag.ENCRYPTED) & ~chunks
        self.foreign: Bools = wanted & headers.has(ColumnFlag.NAMES_FORMAT) & ~chunks & ~self.encrypted
        self.plain: Bools = wanted & ~chunks & ~self.encrypted & ~self.foreign
        self.batched: Bools = headers.has(ColumnFlag.BATCHED)
        self.compressed: Bools = headers.compressed()
        self._headers = headers

    def row_bounds(self) -> Int64s:
        """The most rows each entry can become."""
        converted = np.clip(self._headers.messages, 1, DEFAULT_LIMITS.max_entry_bytes // MIN_MESSAGE_BYTES)
        bounds = np.where(self.foreign, converted, np.where(self.plain & self.batched, self._headers.rows(), 1))
        bounds = np.where(self.chunk, _CHUNK_ROWS, bounds)
        return np.where(self.plain | self.foreign | self.chunk | self.encrypted, bounds, 0)

    def arena_bytes(self, max_bytes: int) -> Int64s:
        """The decompressed size of each entry; an entry that declares too much is not decompressed."""
        sizes = self._headers[EntryColumn.UNCOMPRESSED_SIZE]
        last = self._headers[EntryColumn.CHUNK_ID] == self._headers[EntryColumn.CHUNKS] - 1
        inflated = (self.plain | self.foreign | (self.chunk & last)) & self.compressed & (sizes <= max_bytes)
        return np.where(inflated, sizes + 1, 0)
