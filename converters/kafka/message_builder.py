"""Writing messages and message sets of magic 0 and 1."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from magnetar.converters.kafka import message
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import InvalidRecordError, UnsupportedForMessageFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.converters.kafka.records import Record

_INT32 = struct.Struct(">i")
_NULL = _INT32.pack(-1)
_HEADERS = (struct.Struct(">qiIBB"), struct.Struct(">qiIBBq"))


def encode_message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, *, attributes: int = 0
) -> bytes:
    """Return one message with its checksum. Magic 0 ignores `timestamp`."""
    header = _HEADERS[magic]
    size = header.size + 8 + len(key or b"") + len(value or b"")
    fields = (offset, size - 12, 0, magic, attributes)
    out = bytearray(header.pack(*fields, timestamp) if magic else header.pack(*fields))
    for field in (key, value):
        out += _NULL if field is None else _INT32.pack(len(field)) + field
    seal_message(out, 0, size)
    return bytes(out)


def build_message_set(
    records: Sequence[Record], magic: int, *, codec: Codec = Codec.NONE, append_time: int | None = None
) -> bytes:
    """Return a message set of `records`, whose offsets must ascend; a codec compresses them into one wrapper.

    append_time: LogAppendTime in ms for magic 1; a wrapper has it for its inner messages, whose bytes keep their own
        timestamps.
    Raises: UnsupportedForMessageFormatError for headers or for LogAppendTime below magic 1,
            UnsupportedCompressionError for zstd, InvalidRecordError for offsets that do not ascend.
    """
    if magic == 0 and append_time is not None:
        raise UnsupportedForMessageFormatError("magic 0 has no timestamps")
    if not records:
        return b""
    attributes = 0 if append_time is None else message.LOG_APPEND_TIME_BIT
    if codec is Codec.NONE:
        return _plain(records, magic, 0, attributes, append_time)
    # KIP-31: magic 1 stores offsets relative to the first; the wrapper carries the absolute offset of the last.
    inner = _plain(records, magic, records[0].offset if magic else 0, 0, None)
    timestamp = max(record.timestamp for record in records) if append_time is None else append_time
    value = compress(codec, inner, magic=magic)
    return encode_message(magic, records[-1].offset, timestamp, None, value, attributes=attributes | codec)


def _plain(records: Sequence[Record], magic: int, base: int, attributes: int, append_time: int | None) -> bytes:
    parts: list[bytes] = []
    last = None
    for offset, timestamp, key, value, headers in records:
        if headers:
            raise UnsupportedForMessageFormatError(f"magic {magic} has no headers")
        if last is not None and offset <= last:
            raise InvalidRecordError(f"offset {offset} does not follow {last}")
        last = offset
        stamp = timestamp if append_time is None else append_time
        parts.append(encode_message(magic, offset - base, stamp, key, value, attributes=attributes))
    return b"".join(parts)


def seal_message(buffer: bytearray | memoryview, start: int, end: int) -> None:
    """Compute and store the CRC-32 of the message at buffer[start:end]."""
    crc = zlib.crc32(memoryview(buffer)[start + message.CHECKED_FROM : end])
    buffer[start + message.CRC_FIELD : start + message.CRC_FIELD + 4] = crc.to_bytes(4, "big")


def patch_message(buffer: bytearray, start: int, offset: int) -> None:
    """Set the offset in place; the CRC does not cover it."""
    buffer[start : start + 8] = offset.to_bytes(8, "big", signed=True)


def stamp_message(buffer: bytearray, start: int, end: int, timestamp: int, *, log_append: bool) -> None:
    """Set a magic 1 timestamp in place, turn it into LogAppendTime on request, and compute the new CRC."""
    if log_append:
        buffer[start + 17] |= message.LOG_APPEND_TIME_BIT
    buffer[start + 18 : start + 26] = timestamp.to_bytes(8, "big", signed=True)
    seal_message(buffer, start, end)
