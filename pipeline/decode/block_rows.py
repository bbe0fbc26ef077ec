"""Rows of a chunk's entries, block by block: the rows of each kind of entry.

| kind of entry | rows |
|---|---|
| single message | one; payload where it is stored, or in the arena of decompressed payloads |
| batch | one for each message that compaction has kept |
| `entry.format=kafka` | those of the converted entry |
| chunk | none; for the last chunk of a message one, with the joined payload |
| encrypted, without a key that decrypts it | one, for any number of messages |
| marker | none |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from magnetar.pipeline.damage import Reason
from magnetar.pipeline.decode.byte_columns import Buffers
from magnetar.pipeline.decode.chunked_messages import ChunkedMessages
from magnetar.pipeline.decode.decompression import decompressed
from magnetar.pipeline.decode.decryption import opened
from magnetar.pipeline.decode.headers import Headers
from magnetar.pipeline.decode.kafka_entries import CONVERSION_ERRORS, KafkaEntries
from magnetar.pipeline.decode.look_back import chunk_at, joined_backwards
from magnetar.pipeline.decode.rows import SingleRows, in_range, joined, rows_of_entries, rows_of_messages
from magnetar.pipeline.decode.scan import Kinds, Scan
from magnetar.pipeline.quarantine import ON_ENCRYPTED
from magnetar.protocol.compression import decompress
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, message_columns
from magnetar.protocol.errors import CompressionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from magnetar.client.encryption import Decrypting
    from magnetar.pipeline.decode.chunked_messages import Chunk, Incomplete, JoinedMessage
    from magnetar.pipeline.decode.decryption import Opened
    from magnetar.pipeline.decode.look_back import LookBack
    from magnetar.pipeline.decode.rows import RowColumns, Rows
    from magnetar.pipeline.quarantine import Quarantine

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MAX_ROWS: Final = 65_536
MAX_PLAIN_BYTES: Final = 32 * 1024 * 1024


def blocks(rows: Int64s, plain_bytes: Int64s) -> Iterator[tuple[int, int]]:
    """Runs [i, j) of entries that hold at most MAX_ROWS messages and decompress to at most MAX_PLAIN_BYTES; an entry
    that exceeds a limit by itself is a run of its own.

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


@dataclass(frozen=True, slots=True)
class Limits:
    """Arguments of `Decoder`, which describes them."""

    max_message_bytes: int
    include_markers: bool
    on_encrypted: str

    def __post_init__(self) -> None:
        if self.on_encrypted not in ON_ENCRYPTED:
            raise ValueError(f"onEncrypted is {', '.join(ON_ENCRYPTED)}, not {self.on_encrypted!r}")


@dataclass(frozen=True, slots=True)
class _Batches:
    """Uncompressed batches of these entries, in one buffer."""

    entries: Int64s
    buffer: int
    starts: Int64s
    ends: Int64s


@dataclass(frozen=True, slots=True)
class _Parts:
    """Some decoded entries: rows of single messages, and batches still to be cut."""

    rows: list[Rows]
    batches: list[_Batches]


def _numbers(mask: Bools, block: slice) -> Int64s:
    numbers: Int64s = np.flatnonzero(mask[block]) + block.start
    return numbers


class BlockRows:
    """Makes rows; holds the chunks of unfinished messages."""

    def __init__(
        self, limits: Limits, quarantine: Quarantine, look_back: LookBack | None, decrypting: Decrypting | None = None
    ) -> None:
        self._limits = limits
        self._quarantine = quarantine
        self._look_back = look_back
        self._decrypting = decrypting
        self._chunked = ChunkedMessages(max_message_bytes=limits.max_message_bytes)
        self._kafka = KafkaEntries()

    def unfinished(self) -> list[Incomplete]:
        return self._chunked.unfinished()

    def forget_unfinished(self) -> None:
        self._chunked.clear()

    def of_chunk(
        self, found: Opened, first_index: int | None, end_index: int | None
    ) -> Iterator[tuple[RowColumns, Buffers]]:
        """Rows of the range and the buffers they lie in, block by block, in the order of the log."""
        chunk = found.chunk
        scan = Scan(chunk, found.headers, first_index, end_index, self._quarantine, found.still)
        if len(chunk) <= MAX_ROWS and scan.is_simple():
            buffers = Buffers()
            buffers.add(chunk.data)
            single = SingleRows(scan.headers)
            if single.lie_in(first_index, end_index):
                yield single, buffers
                return
            rows = in_range(rows_of_entries(scan.headers, np.arange(len(chunk))), first_index, end_index)
            if len(rows):
                yield rows, buffers
            return
        scan.report_unreadable()
        kinds = Kinds(scan, include_markers=self._limits.include_markers)
        for i, j in blocks(kinds.row_bounds(), kinds.arena_bytes(self._limits.max_message_bytes)):
            block = slice(i, j)
            buffers = Buffers()
            buffers.add(chunk.data)
            for all_rows in self._of_block(scan, kinds, block, buffers):
                rows = in_range(all_rows, first_index, end_index)
                if len(rows):
                    yield rows, buffers

    def _of_block(self, scan: Scan, kinds: Kinds, block: slice, buffers: Buffers) -> Iterator[Rows]:
        """Yield all rows of a block at once, and the rows of an entry larger than a block in pieces if needed."""
        headers = scan.headers
        converted = self._converted(scan, kinds, block, buffers)
        plain, batched, compressed = kinds.plain, kinds.batched, kinds.compressed
        parts = [
            rows_of_entries(headers, _numbers(plain & ~batched & ~compressed, block)),
            self._encrypted(scan, _numbers(kinds.encrypted, block)),
            *self._chunks(scan, _numbers(kinds.chunk, block), buffers),
            *converted.rows,
        ]
        inflated = self._inflated(scan, _numbers(plain & compressed, block), buffers)
        parts.extend(inflated.rows)
        stored = _numbers(plain & batched & ~compressed, block)
        starts, ends = headers[EntryColumn.METADATA_END][stored], headers.ends[stored]
        for batches in (_Batches(stored, 0, starts, ends), *converted.batches, *inflated.batches):
            for rows in self._messages(scan, batches, buffers):
                if block.stop - block.start == 1:
                    yield rows
                else:
                    parts.append(rows)
        yield joined(parts)

    def _messages(self, scan: Scan, batches: _Batches, buffers: Buffers) -> Iterator[Rows]:
        """Rows of these batches, at most MAX_ROWS at a time; a broken batch ends before its first broken message."""
        n = len(batches.entries)
        if not n:
            return
        counts = np.ascontiguousarray(scan.headers.messages[batches.entries])
        starts, ends = np.ascontiguousarray(batches.starts), np.ascontiguousarray(batches.ends)
        data = buffers.array(batches.buffer)
        entry, start, index = 0, int(starts[0]), 0
        while entry < n:
            table, entry, start, index, broken = message_columns(
                data, starts, ends, counts, MAX_ROWS, entry, start, index
            )
            rows = rows_of_messages(scan.headers, batches.entries, batches.buffer, table)
            if len(rows):
                yield rows
            if broken:
                scan.report_broken_batch(int(batches.entries[entry]), index)
                entry, index = entry + 1, 0
                start = int(starts[entry]) if entry < n else start

    def _inflated(self, scan: Scan, entries: Int64s, buffers: Buffers) -> _Parts:
        """Decompress entries: returns single messages as rows, and batches that are still to be cut."""
        if not len(entries):
            return _Parts([], [])
        headers = scan.headers
        arena = decompressed(memoryview(scan.chunk.data), headers, entries, self._limits.max_message_bytes)
        for entry, why in sorted(arena.failures.items()):
            scan.report(entry, Reason.COMPRESSION, why)
        number = buffers.add(arena.data)
        batched = headers.has(ColumnFlag.BATCHED)[arena.entries]
        rows = rows_of_entries(headers, arena.entries[~batched])
        rows["payload_buffer"] = number
        rows["payload_start"] = arena.starts[~batched]
        rows["payload_length"] = (arena.ends - arena.starts)[~batched]
        return _Parts([rows], [_Batches(arena.entries[batched], number, arena.starts[batched], arena.ends[batched])])

    def _converted(self, scan: Scan, kinds: Kinds, block: slice, buffers: Buffers) -> _Parts:
        """Entries with the property entry.format: Kafka entries are converted; others are decoded unchanged."""
        entries, bodies, batched = [], [], []
        for entry in _numbers(kinds.foreign, block).tolist():
            try:
                found = self._kafka.convert(scan.body(entry))
            except CONVERSION_ERRORS as e:
                scan.report(entry, Reason.CONVERSION, str(e))
                continue
            if found is None:
                kinds.plain[entry] = True
                continue
            entries.append(entry)
            bodies.append(len(found.metadata).to_bytes(4, "big") + found.metadata + found.payload)
            batched.append(found.batched)
        if not entries:
            return _Parts([], [])
        number, starts, lengths = buffers.add_values(bodies)
        at, is_batch = np.array(entries, np.int64), np.array(batched)
        new = Headers(
            replace(scan.chunk, data=buffers.array(number).data, offsets=starts, ends=starts + lengths, entry_ids=at),
            verify=False,
        )
        rows = rows_of_entries(new, np.flatnonzero(~is_batch))
        rows["payload_buffer"] = number
        rows["metadata_buffer"] = number
        rows["entry"] = at[~is_batch]
        rows["index"] = scan.headers.first_index[at[~is_batch]]
        payloads = new[EntryColumn.METADATA_END]
        return _Parts([rows], [_Batches(at[is_batch], number, payloads[is_batch], new.ends[is_batch])])

    def _encrypted(self, scan: Scan, entries: Int64s) -> Rows:
        """One row per entry: it stands for all messages of the entry and has the index of the first message."""
        if self._limits.on_encrypted != "deliver":
            for entry in entries.tolist():
                self._refuse_encrypted(scan, entry)
            entries = entries[:0]
        return rows_of_entries(scan.headers, entries)

    def _refuse_encrypted(self, scan: Scan, entry: int) -> None:
        why = scan.still_encrypted.get(entry, "the payload is encrypted")
        scan.report(
            entry,
            Reason.ENCRYPTED,
            f"{why}; decryptionKeys names private keys, onEncrypted=deliver returns encrypted entries",
            fails=self._limits.on_encrypted == "fail",
        )

    def _refuse_half_encrypted(self, scan: Scan, entry: int, message: JoinedMessage) -> None:
        """Report a message of which only some chunks can be decrypted: such a payload cannot be delivered."""
        detail = f"{message.encrypted} of its {message.total} chunks cannot be decrypted"
        fails = {"fail": True, "quarantine": False}.get(self._limits.on_encrypted)
        scan.report(entry, Reason.ENCRYPTED, detail, fails=fails)

    def _chunks(self, scan: Scan, entries: Int64s, buffers: Buffers) -> Iterator[Rows]:
        for entry in entries.tolist():
            chunk = chunk_at(scan.chunk, scan.headers, entry)
            if self._chunked.misses_beginning(chunk) and chunk.number == chunk.total - 1 and self._look_back:
                found = self._looked_back(scan, chunk) if scan.is_wanted(entry) else None
                message = found or self._chunked.add(chunk)
            else:
                message = self._chunked.add(chunk)
            for incomplete in self._chunked.take_given_up():
                self._quarantine.report(scan.incomplete(entry, incomplete))
            if message is not None and scan.is_wanted(entry):
                yield from self._joined(scan, entry, message, buffers)

    def _looked_back(self, scan: Scan, last: Chunk) -> JoinedMessage | None:
        assert self._look_back is not None
        stored = self._look_back(scan.chunk.topic, last.ledger_id, last.entry_id)
        earlier = ((each.chunk, each.headers) for each in (opened(c, self._decrypting, verify=True) for c in stored))
        return joined_backwards(earlier, last, self._limits.max_message_bytes)

    def _joined(self, scan: Scan, entry: int, message: JoinedMessage, buffers: Buffers) -> Iterator[Rows]:
        """The row of a chunked message: metadata of its last chunk, all of the payload."""
        headers, payload = scan.headers, message.payload
        if 0 < message.encrypted < message.total:
            self._refuse_half_encrypted(scan, entry, message)
            return
        if message.encrypted:
            if self._limits.on_encrypted != "deliver":
                self._refuse_encrypted(scan, entry)
                return
        elif headers.compressed()[entry]:
            size, limit = int(headers[EntryColumn.UNCOMPRESSED_SIZE][entry]), self._limits.max_message_bytes
            if size > limit:
                scan.report(entry, Reason.COMPRESSION, f"declares {size} bytes, {limit} are allowed")
                return
            try:
                payload = decompress(int(headers[EntryColumn.COMPRESSION][entry]), payload, size)
            except CompressionError as e:
                scan.report(entry, Reason.COMPRESSION, str(e))
                return
        rows = rows_of_entries(headers, np.array([entry]))
        rows["payload_buffer"] = buffers.add(payload)
        rows["payload_start"] = 0
        rows["payload_length"] = len(payload)
        rows["first_chunk_ledger"], rows["first_chunk_entry"] = message.ledger_id, message.entry_id
        yield rows
