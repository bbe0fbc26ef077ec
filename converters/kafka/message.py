"""Messages of magic 0 and 1, plain or wrapping a compressed message set.

| off | type  | magic 0          | magic 1                                       |
|-----|-------|------------------|-----------------------------------------------|
| 0   | int64 | offset           | offset                                        |
| 8   | int32 | size             | size                                          |
| 12  | u32   | CRC-32 of 16..   | CRC-32 of 16.. (without offset and size)      |
| 16  | int8  | 0                | 1                                             |
| 17  | int8  | bits 0-2 codec   | bits 0-2 codec, bit 3 log append time         |
| 18  |       | key length, ...  | int64 timestamp; key length at 26, ...        |
| ... |       | int32 length + key, int32 length + value; -1 = null              |

Nesting, one level deep: the value of a message with a codec is a compressed message set.

* Magic 0: inner offsets are absolute.
* Magic 1: inner offsets are relative, the wrapper carries the absolute offset of the last inner message:
  absolute(i) = wrapper - inner(last) + inner(i). Wrapper offset 0 means base 0, as several producers write it.
* Log append time in the wrapper's attributes overrides every inner timestamp; the inner bytes are not rewritten.
* A set cut inside the compressed data ends silently at its last complete message, which becomes the anchor (as in
  Java); validation refuses it instead (`validation.py`).

Source: Apache Kafka message format chapter; KIP-31, KIP-32; behaviour of kafka-clients 3.9.1.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from typing import TYPE_CHECKING

from magnetar.converters.kafka.codecs import CODEC_BITS, MAX_DECOMPRESSED_BYTES, Codec, codec_of, decompress
from magnetar.converters.kafka.errors import CorruptRecordError, CrcMismatchError, InvalidRecordError
from magnetar.converters.kafka.framing import LOG_OVERHEAD, MIN_SIZES, Buffer, frames
from magnetar.converters.kafka.records import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Record,
    TimestampType,
    checked_offset,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CRC_FIELD = 12
CHECKED_FROM = 16
LOG_APPEND_TIME_BIT = 0x08
HEADER_BYTES = (18, 26)
"""The bytes before the key length, by magic."""

_ATTRIBUTES_FIELD = 17
_HEADER = struct.Struct(">qiIBB")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INNER = struct.Struct(">qi4xBB")
_TIMESTAMP_AND_LENGTH = struct.Struct(">qi")
_SMALLEST = LOG_OVERHEAD + MIN_SIZES[0]


class Message:
    """One shallow entry of magic 0 or 1. The buffer is shared, never copied or changed."""

    __slots__ = ("attributes", "buffer", "crc", "magic", "max_timestamp", "offset")

    offset: int
    crc: int
    magic: int
    attributes: int
    is_transactional = False
    is_control = False
    producer_id = NO_PRODUCER_ID
    base_sequence = NO_SEQUENCE

    def __init__(self, buffer: Buffer) -> None:
        """View `buffer`, which is exactly one complete message as `framing.frames` cuts it."""
        self.buffer = buffer
        self.offset, _size, self.crc, self.magic, self.attributes = _HEADER.unpack_from(buffer)
        self.max_timestamp: int = NO_TIMESTAMP if self.magic == 0 else _INT64.unpack_from(buffer, 18)[0]

    @property
    def size_in_bytes(self) -> int:
        return len(self.buffer)

    @property
    def codec(self) -> Codec:
        """Raises: UnsupportedCompressionError for ids 5-7 and for zstd."""
        return codec_of(self.attributes, self.magic)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def last_offset(self) -> int:
        return self.offset

    @property
    def base_offset(self) -> int:
        """Offset of the first record; of a wrapper, reading it takes decompression."""
        if self.codec is Codec.NONE:
            return self.offset
        return next(self.records()).offset

    def computed_crc(self) -> int:
        return zlib.crc32(memoryview(self.buffer)[CHECKED_FROM:])

    @property
    def is_valid(self) -> bool:
        return self.computed_crc() == self.crc

    def ensure_valid(self) -> None:
        """Raises: CrcMismatchError."""
        computed = self.computed_crc()
        if computed != self.crc:
            raise CrcMismatchError(offset=self.offset, stored=self.crc, computed=computed)

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """Key and value as stored. Raises: CorruptRecordError when their lengths do not fill the message."""
        buffer = self.buffer if isinstance(self.buffer, bytes) else bytes(self.buffer)
        pos = HEADER_BYTES[self.magic]
        key = value = None
        try:
            (length,) = _INT32.unpack_from(buffer, pos)
            pos += 4
            if length != -1:
                key = buffer[pos : pos + length]
                pos += length
            (second,) = _INT32.unpack_from(buffer, pos)
            pos += 4
            if second != -1:
                value = buffer[pos : pos + second]
                pos += second
        except struct.error:
            raise CorruptRecordError(f"message at offset {self.offset}: a length leaves the message") from None
        if pos != len(buffer) or length < -1 or second < -1:
            raise CorruptRecordError(f"message at offset {self.offset}: its fields do not fill its {len(buffer)} bytes")
        return key, value

    def inner_set(self, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """The decompressed message set of a wrapper. Its key, if any, is ignored.

        Raises: InvalidRecordError for a null value; CorruptRecordError, DecompressedTooLargeError from the codec.
        """
        _key, value = self.key_and_value()
        if value is None:
            raise InvalidRecordError(f"compressed message at offset {self.offset} has a null value")
        return decompress(self.codec, value, max_bytes=max_decompressed_bytes, magic=self.magic)

    def inner_offsets(self, data: bytes) -> array[int]:
        """The stored (relative or absolute) offsets of the complete messages in `data`, the inner set of this wrapper.

        Raises: InvalidRecordError when there is no message, or when a message is compressed again or of magic 2.
        """
        offsets = array("q")
        pos, total = 0, len(data)
        while total - pos >= _SMALLEST:
            offset, size, magic, attributes = _INNER.unpack_from(data, pos)
            end = pos + LOG_OVERHEAD + size
            if size < MIN_SIZES[1] or magic > 1 or end > total:
                break
            if attributes & CODEC_BITS:
                raise InvalidRecordError("a compressed message inside a compressed message")
            offsets.append(offset)
            pos = end
        for start, _end, offset, magic in frames(data, pos):  # the rest: small, cut or wrong messages
            if magic > 1:
                raise InvalidRecordError(f"magic {magic} inside a magic {self.magic} message")
            if data[start + _ATTRIBUTES_FIELD] & CODEC_BITS:
                raise InvalidRecordError("a compressed message inside a compressed message")
            offsets.append(offset)
        if not offsets:
            raise InvalidRecordError(f"compressed message at offset {self.offset} holds no messages")
        return offsets

    def inner_records(self, data: bytes, last_inner: int, *, check_inner_crcs: bool = False) -> Iterator[Record]:
        """Yield the records in `data`, an inner set that `inner_offsets` has accepted, with absolute offsets."""
        base = self.inner_base(last_inner)
        append_time = self.max_timestamp if self.timestamp_type is TimestampType.LOG_APPEND_TIME else None
        for offset, timestamp, key, value in read_messages(data, check_crcs=check_inner_crcs):
            yield Record(checked_offset(base, offset), timestamp if append_time is None else append_time, key, value)

    def records(
        self, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES, *, check_inner_crcs: bool = False
    ) -> Iterator[Record]:
        """Yield the record of a plain message, or the records of the nested set, with absolute offsets."""
        if self.codec is Codec.NONE:
            yield Record(self.offset, self.max_timestamp, *self.key_and_value())
            return
        data = self.inner_set(max_decompressed_bytes)
        yield from self.inner_records(data, self.inner_offsets(data)[-1], check_inner_crcs=check_inner_crcs)

    def inner_base(self, last_inner: int) -> int:
        """Return the number to add to an inner offset to make it absolute.

        Raises: InvalidRecordError for a wrapper offset below the last inner offset, unless the wrapper offset is 0.
        """
        if self.magic == 0 or self.offset == 0:
            return 0
        if self.offset < last_inner:
            raise InvalidRecordError(f"wrapper offset {self.offset} is below its last inner offset {last_inner}")
        return self.offset - last_inner


def read_messages(data: bytes, *, check_crcs: bool = False) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield (stored offset, timestamp or -1, key, value) of the complete messages of an inner set that `inner_offsets`
    has accepted. The hot loop of compressed sets: one pass, no object but the tuple.

    Raises: CorruptRecordError when lengths do not fill a message; CrcMismatchError with `check_crcs`.
    """
    pos, total = 0, len(data)
    key: bytes | None
    value: bytes | None
    while total - pos >= _SMALLEST:
        offset, size, magic, _attributes = _INNER.unpack_from(data, pos)
        end = pos + LOG_OVERHEAD + size
        if end > total:
            return
        if check_crcs:
            Message(data[pos:end]).ensure_valid()
        try:
            if magic:
                timestamp, length = _TIMESTAMP_AND_LENGTH.unpack_from(data, pos + 18)
                at = pos + 30
            else:
                timestamp = NO_TIMESTAMP
                (length,) = _INT32.unpack_from(data, pos + 18)
                at = pos + 22
            key = None if length == -1 else data[at : (at := at + length)]
            (second,) = _INT32.unpack_from(data, at)
            at += 4
            value = None if second == -1 else data[at : (at := at + second)]
        except struct.error:
            raise CorruptRecordError(f"message at offset {offset}: a length leaves the message") from None
        if at != end or length < -1 or second < -1:
            raise CorruptRecordError(f"message at offset {offset}: its fields do not fill its {end - pos} bytes")
        yield offset, timestamp, key, value
        pos = end


def inner_messages(data: bytes) -> Iterator[Message]:
    """Yield the complete messages of an inner set, so that many tiny messages are never objects at the same time."""
    for start, end, _offset, _magic in frames(data):
        yield Message(data[start:end])
