"""A magic 2 record batch as a view over its bytes.

| off | type  | field                | off | type  | field            |
|-----|-------|----------------------|-----|-------|------------------|
| 0   | int64 | base offset          | 27  | int64 | base timestamp   |
| 8   | int32 | size after this      | 35  | int64 | max timestamp    |
| 12  | int32 | leader epoch         | 43  | int64 | producer id      |
| 16  | int8  | magic = 2            | 51  | int16 | producer epoch   |
| 17  | u32   | CRC-32C of 21..end   | 53  | int32 | base sequence    |
| 21  | int16 | attributes           | 57  | int32 | record count     |
| 23  | int32 | last offset delta    | 61  |       | records, compressed as one block when a codec is set |

Attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 base timestamp is a delete horizon.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from magnetar.converters.kafka.codecs import MAX_DECOMPRESSED_BYTES, Codec, codec_of, decompress
from magnetar.converters.kafka.errors import CrcMismatchError, InvalidRecordError
from magnetar.converters.kafka.records import (
    NO_SEQUENCE,
    RawRecord,
    Record,
    TimestampType,
    checked_offset,
    checked_timestamp,
    decode_headers,
    read_records,
)
from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.converters.kafka.framing import Buffer

HEADER = struct.Struct(">qiiBIhiqqqhii")
HEADER_BYTES = HEADER.size
CRC_FIELD = 17
CHECKED_FROM = 21
LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT = 0x08, 0x10, 0x20, 0x40
_INT32_MAX = 0x7FFFFFFF


class RecordBatch:
    """The header fields of one batch, and its records on demand. The buffer is shared, never copied or changed."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
    )
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    magic = 2

    def __init__(self, buffer: Buffer) -> None:
        """View `buffer`, which is exactly one complete batch as `framing.frames` cuts it."""
        self.buffer = buffer
        (
            self.base_offset,
            _size,
            self.leader_epoch,
            _magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(buffer)

    @property
    def size_in_bytes(self) -> int:
        return len(self.buffer)

    @property
    def codec(self) -> Codec:
        """Raises: UnsupportedCompressionError for ids 5-7."""
        return codec_of(self.attributes, 2)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon(self) -> int | None:
        """Milliseconds after which the cleaner may drop tombstones and markers (KIP-534), or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last offset of the batch; 0 follows 2147483647."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX

    def computed_crc(self) -> int:
        return crc32c(memoryview(self.buffer)[CHECKED_FROM:])

    @property
    def is_valid(self) -> bool:
        return self.computed_crc() == self.crc

    def ensure_valid(self) -> None:
        """Raises: CrcMismatchError."""
        computed = self.computed_crc()
        if computed != self.crc:
            raise CrcMismatchError(offset=self.base_offset, stored=self.crc, computed=computed)

    def record_bytes(self, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """The records part, decompressed."""
        part = memoryview(self.buffer)[HEADER_BYTES:]
        codec = self.codec
        return bytes(part) if codec is Codec.NONE else decompress(codec, part, max_bytes=max_decompressed_bytes)

    def counted_bytes(self, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """The records part, decompressed, of `count` records. Raises: InvalidRecordError; as `codecs.decompress`."""
        if self.count < 0:
            raise InvalidRecordError(f"negative record count {self.count}")
        # The cleaner keeps batches without records for their producer state; their records part is never compressed.
        if self.count == 0 and len(self.buffer) == HEADER_BYTES:
            return b""
        return self.record_bytes(max_decompressed_bytes)

    def raw_records(self, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[RawRecord]:
        """Records with deltas as stored. Raises as `counted_bytes` and `read_records`."""
        return read_records(self.counted_bytes(max_decompressed_bytes), self.count)

    def records(self, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Yield the records with absolute offsets and timestamps."""
        base, first = self.base_offset, self.base_timestamp
        # Deltas are int32, so one check holds for all of them.
        checked_offset(base, _INT32_MAX)
        checked_offset(base, -_INT32_MAX - 1)
        append_time = self.max_timestamp if self.attributes & LOG_APPEND_TIME_BIT else None
        for time_delta, delta, key, value, headers in self.raw_records(max_decompressed_bytes):
            timestamp = checked_timestamp(first, time_delta) if append_time is None else append_time
            yield Record(base + delta, timestamp, key, value, decode_headers(headers))
