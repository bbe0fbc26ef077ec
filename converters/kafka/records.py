"""A Kafka record as a value, and the byte form of the records inside a magic 2 batch.

    record = varint length | int8 attributes (unused) | varlong timestamp delta | varint offset delta
             | varint key length (-1 null) | key | varint value length (-1 null) | value
             | varint header count | { varint key length | key | varint value length (-1 null) | value }*

`read_records` is the hot loop of the room: one pass, local names, varints of one and two bytes decoded in line, keys
and values sliced out of `bytes` once. Source: Apache Kafka, "Record" in the message format chapter.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from magnetar.converters.errors import ConversionTooLargeError
from magnetar.converters.kafka.errors import CorruptRecordError, InvalidRecordError
from magnetar.converters.kafka.varints import encode_varint, read_varint, read_varlong

NO_TIMESTAMP = -1
NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
MAX_HEADERS = 1 << 16
"""The most headers of one record. A header object takes fifty times the two bytes of an empty header: without a limit,
a compressed record of a few hundred bytes would take a gigabyte.
"""
_INT64 = 1 << 63


class TimestampType(enum.IntEnum):
    """The meaning of the timestamps of a batch; NO_TIMESTAMP_TYPE is magic 0."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Header(NamedTuple):
    """One header. Keys are text; bytes that are not UTF-8 travel as surrogate escapes, so encoding gives them back."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record as a consumer sees it: absolute offset, timestamp in ms (-1 none), bytes or null."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


RawHeaders = Sequence[tuple[bytes, bytes | None]]
RawRecord = tuple[int, int, bytes | None, bytes | None, RawHeaders | None]
"""A record as it stands in a magic 2 batch: (timestamp delta, offset delta, key, value, headers or None).

A plain tuple, because every converted record needs one tuple.
"""


def decode_headers(headers: RawHeaders | None) -> tuple[Header, ...]:
    """Return the headers of a RawRecord as values; order and duplicates are kept."""
    if not headers:
        return ()
    return tuple([Header(key.decode("utf-8", "surrogateescape"), value) for key, value in headers])


def read_records(data: bytes, count: int, most_headers: int = MAX_HEADERS) -> Iterator[RawRecord]:
    """Read exactly `count` records that fill `data` to its end; lazily, in order.

    Raises: InvalidRecordError when there are fewer or more than `count`, CorruptRecordError when a length leaves its
        record, ConversionTooLargeError for a record of more than `most_headers`.
    """
    try:
        end = yield from _read(data, count, most_headers)
    except IndexError as error:
        raise InvalidRecordError(f"records end before the declared count of {count}") from error
    if end != len(data):
        raise InvalidRecordError(f"{len(data) - end} bytes remain after the declared count of {count} records")


def _read(data: bytes, count: int, most_headers: int) -> Generator[RawRecord, None, int]:
    """The hot loop. Returns: the position after the last record. Raises: IndexError where the data ends too early."""
    pos, size = 0, len(data)
    key: bytes | None
    value: bytes | None
    for _ in range(count):
        if (byte := data[pos]) < 0x80:
            pos += 1
            length = (byte >> 1) ^ -(byte & 1)
        elif (high := data[pos + 1]) < 0x80:
            pos += 2
            length = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
        else:
            length, pos = read_varint(data, pos)
        end = pos + length
        if not pos < end <= size:
            raise InvalidRecordError(f"record of {length} bytes does not fit in the {size - pos} that are left")
        pos += 1  # the attributes byte means nothing and is ignored
        if (byte := data[pos]) < 0x80:
            pos += 1
            timestamp_delta = (byte >> 1) ^ -(byte & 1)
        elif (high := data[pos + 1]) < 0x80:
            pos += 2
            timestamp_delta = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
        else:
            timestamp_delta, pos = read_varlong(data, pos)
        if (byte := data[pos]) < 0x80:
            pos += 1
            offset_delta = (byte >> 1) ^ -(byte & 1)
        elif (high := data[pos + 1]) < 0x80:
            pos += 2
            offset_delta = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
        else:
            offset_delta, pos = read_varint(data, pos)
        if (byte := data[pos]) == 1:
            key, pos = None, pos + 1
        else:
            length, pos = (byte >> 1, pos + 1) if byte < 0x80 and not byte & 1 else _read_length(data, pos)
            key = data[pos : pos + length]
            pos += length
        if (byte := data[pos]) == 1:
            value, pos = None, pos + 1
        else:
            if byte >= 0x80 and (high := data[pos + 1]) < 0x80 and not byte & 1:
                length = (byte & 0x7F | high << 7) >> 1
                pos += 2
            else:
                length, pos = _read_length(data, pos)
            value = data[pos : pos + length]
            pos += length
        if data[pos] == 0:
            headers, pos = None, pos + 1
        else:
            headers, pos = _read_headers(data, pos, end, most_headers)
        if pos != end:
            raise CorruptRecordError(f"record fields end at {pos}, the record at {end}")
        yield timestamp_delta, offset_delta, key, value, headers
    return pos


def _read_length(data: bytes, pos: int) -> tuple[int, int]:
    if (byte := data[pos]) < 0x80:
        length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
    else:
        length, pos = read_varint(data, pos)
    if length < 0:
        raise CorruptRecordError(f"negative length {length}")
    return length, pos


def _read_headers(data: bytes, pos: int, end: int, most: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    count, pos = read_varint(data, pos)
    # Each header takes two bytes at least: a count beyond that is refused before it can loop for long.
    if not 0 <= count <= (end - pos) // 2:
        raise CorruptRecordError(f"{count} headers do not fit in {end - pos} bytes")
    if count > MAX_HEADERS:
        raise InvalidRecordError(f"{count} headers in a record, {MAX_HEADERS} are allowed")
    if count > most:
        raise ConversionTooLargeError(f"{count} headers in a record, {most} are allowed")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        length, pos = _read_length(data, pos)
        start, pos = pos, pos + length
        key = data[start:pos]
        if data[pos] == 1:
            pos += 1
            headers.append((key, None))
            continue
        length, pos = _read_length(data, pos)
        start, pos = pos, pos + length
        headers.append((key, data[start:pos]))
        if pos > end:
            raise CorruptRecordError("a header leaves its record")
    return headers, pos


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Iterable[Header]
) -> bytes:
    """The byte form of one record, length included."""
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(field)), field)
    encoded = list(headers)
    parts.append(encode_varint(len(encoded)))
    for name, content in encoded:
        raw = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(raw)), raw)
        parts += (b"\x01",) if content is None else (encode_varint(len(content)), content)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def checked_offset(base: int, delta: int) -> int:
    """The sum, refused when it leaves int64."""
    offset = base + delta
    if not -_INT64 <= offset < _INT64:
        raise CorruptRecordError(f"offset {offset} needs more than 64 bits")
    return offset


def checked_timestamp(base: int, delta: int) -> int:
    """Base + delta, refused when it leaves int64 (bytes can hold such a value; no clock reaches it)."""
    timestamp = base + delta
    if not -_INT64 <= timestamp < _INT64:
        raise CorruptRecordError(f"timestamp {timestamp} needs more than 64 bits")
    return timestamp
