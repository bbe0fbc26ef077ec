"""A record set: the form of records in Produce and Fetch, in entries with entry.format=kafka, and in log segments.

    set = { message of magic 0 or 1 | record batch of magic 2 }* | [cut-off tail]

`batches()` is the shallow iteration (an item per stored entry, without decompression); iterating the set itself is the
deep iteration (records with absolute offsets). Both are lazy, and every iterator has its own position. A wrong entry
raises when the iteration reaches it, after all earlier entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.converters.kafka.codecs import MAX_DECOMPRESSED_BYTES
from magnetar.converters.kafka.errors import InvalidRecordError
from magnetar.converters.kafka.framing import Buffer, bytes_wanted, frames, valid_bytes
from magnetar.converters.kafka.message import Message
from magnetar.converters.kafka.record_batch import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.converters.kafka.records import Record

Batch = Message | RecordBatch
"""A shallow entry: base_offset, last_offset, magic, codec, timestamp_type, max_timestamp, ensure_valid(), records()."""


def batch_at(buffer: Buffer, magic: int) -> Batch:
    """View one complete entry, as cut by `framing.frames`, by its magic."""
    return RecordBatch(buffer) if magic == 2 else Message(buffer)


class RecordSet:
    """A record set over a buffer, which is shared and never changed.

    Args:
        buffer: the bytes; a cut-off tail is allowed (`ensure_whole` refuses it).
        max_decompressed_bytes: limit of the decompressed size of one entry.
        check_crcs: verify each entry's checksum before its records are yielded.
        check_inner_crcs: verify also the checksums inside compressed messages of magic 0 and 1.
    """

    __slots__ = ("_check_crcs", "_check_inner_crcs", "_max_decompressed_bytes", "buffer")

    def __init__(
        self,
        buffer: Buffer,
        *,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        check_crcs: bool = True,
        check_inner_crcs: bool = False,
    ) -> None:
        self.buffer = buffer
        self._max_decompressed_bytes = max_decompressed_bytes
        self._check_crcs = check_crcs
        self._check_inner_crcs = check_inner_crcs

    @property
    def size_in_bytes(self) -> int:
        """Length of the buffer, the tail included."""
        return len(self.buffer)

    @property
    def valid_bytes(self) -> int:
        """Length of the complete entries."""
        return valid_bytes(self.buffer)

    @property
    def bytes_wanted(self) -> int:
        """Buffer length that would hold the first entry whole."""
        return bytes_wanted(self.buffer)

    def batches(self) -> Iterator[Batch]:
        """Shallow iteration. Checksums are not verified here: call `ensure_valid()` of each batch."""
        view = memoryview(self.buffer)
        for frame in frames(view):
            yield batch_at(view[frame.start : frame.end], frame.magic)

    def records(self) -> Iterator[Record]:
        """Deep iteration over the records of all batches, control records included.

        Raises: KafkaFormatError and its subclasses, at the first damaged record.
        """
        for batch in self.batches():
            if self._check_crcs:
                batch.ensure_valid()
            if isinstance(batch, RecordBatch):
                yield from batch.records(self._max_decompressed_bytes)
            else:
                yield from batch.records(self._max_decompressed_bytes, check_inner_crcs=self._check_inner_crcs)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def ensure_whole(self) -> None:
        """Refuse a set with a cut-off tail, which a producer must not send. Raises: InvalidRecordError."""
        whole = self.valid_bytes
        if whole != len(self.buffer):
            raise InvalidRecordError(f"record set is cut: {whole} of {len(self.buffer)} bytes are complete entries")

    def first_offset(self) -> int | None:
        """Base offset of the first entry, or None when there is none."""
        for batch in self.batches():
            return batch.base_offset
        return None
