"""Entries as columns, in Python: the reference for `_entry_columns.c`, and its replacement on machines without it."""

from __future__ import annotations

import struct
from array import array
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any

from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_U32 = struct.Struct(">I")
_FORMAT = b"entry.format"
_MAX_ROWS = 1 << 24
_MAX_PROPERTIES = 1 << 28
_MAX_BUFFERS = 4096
_MAX_GATHERED = (1 << 31) - 1


class EntryColumn(IntEnum):
    """Columns of `entry_columns`, in their order."""

    STATUS = 0
    FLAGS = 1
    BROKER_TIMESTAMP = 2
    INDEX = 3
    METADATA_START = 4
    METADATA_END = 5
    PRODUCER_START = 6
    PRODUCER_LENGTH = 7
    SEQUENCE_ID = 8
    PUBLISH_TIME = 9
    PROPERTIES = 10
    REPLICATED_START = 11
    REPLICATED_LENGTH = 12
    KEY_START = 13
    KEY_LENGTH = 14
    COMPRESSION = 15
    UNCOMPRESSED_SIZE = 16
    MESSAGES = 17
    EVENT_TIME = 18
    SCHEMA_START = 19
    SCHEMA_LENGTH = 20
    ORDERING_START = 21
    ORDERING_LENGTH = 22
    TXN_LEAST = 23
    TXN_MOST = 24
    UUID_START = 25
    UUID_LENGTH = 26
    CHUNKS = 27
    CHUNKED_SIZE = 28
    CHUNK_ID = 29
    HIGHEST_SEQUENCE_ID = 30


class MessageColumn(IntEnum):
    """Columns of `message_columns`, in their order."""

    ENTRY = 0
    BATCH_INDEX = 1
    FLAGS = 2
    METADATA_START = 3
    METADATA_END = 4
    PAYLOAD_LENGTH = 5
    PROPERTIES = 6
    KEY_START = 7
    KEY_LENGTH = 8
    EVENT_TIME = 9
    ORDERING_START = 10
    ORDERING_LENGTH = 11
    SEQUENCE_ID = 12


class EntryStatus(IntEnum):
    """Whether an entry can be read, or the reason why not."""

    FINE = 0
    SHORT = 1
    """The headers point behind the end of the entry."""
    CHECKSUM = 2
    """The checksum does not match."""
    METADATA = 3
    """MessageMetadata does not parse."""
    REQUIRED = 4
    """MessageMetadata lacks a required field."""
    BROKER_METADATA = 5
    """BrokerEntryMetadata does not parse."""


class ColumnFlag(IntFlag):
    """The properties that an entry or a message has."""

    HAS_INDEX = 1
    HAS_BROKER_TIMESTAMP = 2
    KEY_IS_BASE64 = 4
    NULL_KEY = 8
    NULL_VALUE = 16
    ENCRYPTED = 32
    BATCHED = 64
    """The entry has num_messages_in_batch."""
    MARKER = 128
    HAS_TXN = 256
    """The entry has both halves of a transaction id."""
    IS_CHUNK = 512
    NAMES_FORMAT = 1024
    """A property has the key entry.format."""
    HAS_EVENT_TIME = 2048
    """Messages only."""
    COMPACTED_OUT = 4096
    HAS_SEQUENCE_ID = 8192
    """Messages only."""


class BrokenFieldError(Exception):
    """The bytes are not a protobuf message."""


_BYTES = {
    1: EntryColumn.PRODUCER_START,
    5: EntryColumn.REPLICATED_START,
    6: EntryColumn.KEY_START,
    16: EntryColumn.SCHEMA_START,
    18: EntryColumn.ORDERING_START,
    26: EntryColumn.UUID_START,
}
_NUMBERS = {
    2: EntryColumn.SEQUENCE_ID,
    3: EntryColumn.PUBLISH_TIME,
    12: EntryColumn.EVENT_TIME,
    22: EntryColumn.TXN_LEAST,
    23: EntryColumn.TXN_MOST,
    24: EntryColumn.HIGHEST_SEQUENCE_ID,
}
_INT32 = {
    8: EntryColumn.COMPRESSION,
    11: EntryColumn.MESSAGES,
    27: EntryColumn.CHUNKS,
    28: EntryColumn.CHUNKED_SIZE,
    29: EntryColumn.CHUNK_ID,
}
_SET = {11: ColumnFlag.BATCHED, 20: ColumnFlag.MARKER, 29: ColumnFlag.IS_CHUNK}
_TRUTHS = {17: ColumnFlag.KEY_IS_BASE64, 25: ColumnFlag.NULL_VALUE, 30: ColumnFlag.NULL_KEY}
_SINGLE_TRUTHS = {
    4: ColumnFlag.COMPACTED_OUT,
    6: ColumnFlag.KEY_IS_BASE64,
    9: ColumnFlag.NULL_VALUE,
    10: ColumnFlag.NULL_KEY,
}


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = view[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise BrokenFieldError


def fields(view: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, value (the length of bytes) and end of each field."""
    while at < end:
        tag, at = _varint(view, at, end)
        number, wire = tag >> 3, tag & 7
        value = 0
        if tag >> 32 or not number or wire in (3, 4, 6, 7):
            raise BrokenFieldError
        if wire in (0, 2):
            value, at = _varint(view, at, end)
        size = {0: 0, 1: 8, 2: value, 5: 4}[wire]
        if size > end - at:
            raise BrokenFieldError
        at += size
        yield number, wire, value, at


def signed64(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _i32(value: int) -> int:
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def _pair(view: memoryview, at: int, end: int) -> tuple[bool, bool]:
    """Whether a KeyValue has both parts, and whether its key is entry.format."""
    seen, named = 0, False
    try:
        for number, wire, size, after in fields(view, at, end):
            if wire == 2 and number in (1, 2):
                seen |= number
                if number == 1:
                    named = bytes(view[after - size : after]) == _FORMAT
    except BrokenFieldError:
        return False, named
    return seen == 3, named


def _encryption(view: memoryview, at: int, end: int) -> bool:
    """Whether an EncryptionKeys has key and value, and all its metadata are complete KeyValues."""
    seen, pairs = 0, True
    try:
        for number, wire, size, after in fields(view, at, end):
            if wire == 2 and number in (1, 2):
                seen |= number
            elif wire == 2 and number == 3:
                pairs = _pair(view, after - size, after)[0] and pairs
    except BrokenFieldError:
        return False
    return seen == 3 and pairs


def _metadata(row: list[int], view: memoryview, at: int, end: int) -> EntryStatus:
    """Read MessageMetadata into its columns."""
    required = set()
    whole = True
    halves = set()
    for number, wire, value, after in fields(view, at, end):
        if wire == 2:
            if number in _BYTES:
                row[_BYTES[number]], row[_BYTES[number] + 1] = after - value, value
            if number == 4:
                row[EntryColumn.PROPERTIES] += 1
                fine, named = _pair(view, after - value, after)
                whole = whole and fine
                row[EntryColumn.FLAGS] |= ColumnFlag.NAMES_FORMAT if named else 0
            if number == 13:
                row[EntryColumn.FLAGS] |= ColumnFlag.ENCRYPTED
                whole = _encryption(view, after - value, after) and whole
        elif wire == 0:
            _number(row, number, value)
        if (number, wire) in {(1, 2), (2, 0), (3, 0)}:
            required.add(number)
        if number in (22, 23) and wire == 0:
            halves.add(number)
    if len(halves) == 2:
        row[EntryColumn.FLAGS] |= ColumnFlag.HAS_TXN
    return EntryStatus.FINE if len(required) == 3 and whole else EntryStatus.REQUIRED


def _number(row: list[int], number: int, value: int) -> None:
    if number in _NUMBERS:
        row[_NUMBERS[number]] = signed64(value)
    elif number in _INT32:
        row[_INT32[number]] = _i32(value)
    elif number == 9:
        row[EntryColumn.UNCOMPRESSED_SIZE] = value & 0xFFFFFFFF
    elif number in _TRUTHS:
        row[EntryColumn.FLAGS] &= ~_TRUTHS[number]
        row[EntryColumn.FLAGS] |= _TRUTHS[number] if value else 0
    row[EntryColumn.FLAGS] |= _SET.get(number, 0)


def _broker_metadata(row: list[int], view: memoryview, at: int, end: int) -> None:
    for number, wire, value, _ in fields(view, at, end):
        if wire == 0 and number == 1:
            row[EntryColumn.BROKER_TIMESTAMP] = signed64(value)
            row[EntryColumn.FLAGS] |= ColumnFlag.HAS_BROKER_TIMESTAMP
        elif wire == 0 and number == 2:
            row[EntryColumn.INDEX] = signed64(value)
            row[EntryColumn.FLAGS] |= ColumnFlag.HAS_INDEX


def _entry(row: list[int], view: memoryview, at: int, end: int, verify: bool) -> EntryStatus:
    status = EntryStatus.FINE
    for start in _BYTES.values():
        row[start + 1] = -1
    row[EntryColumn.MESSAGES] = 1
    if (
        end - at >= 6
        and bytes(view[at : at + 2]) == b"\x0e\x02"
        and (size := _U32.unpack_from(view, at + 2)[0]) <= end - at - 6
    ):
        try:
            _broker_metadata(row, view, at + 6, at + 6 + size)
        except BrokenFieldError:
            status = EntryStatus.BROKER_METADATA
        at += 6 + size
    if end - at >= 2 and bytes(view[at : at + 2]) == b"\x0e\x01":
        if end - at < 6:
            return EntryStatus.SHORT
        if verify and crc32c(view[at + 6 : end]) != _U32.unpack_from(view, at + 2)[0]:
            return EntryStatus.CHECKSUM
        at += 6
    if end - at < 4 or (size := _U32.unpack_from(view, at)[0]) > end - at - 4:
        return EntryStatus.SHORT
    row[EntryColumn.METADATA_START], row[EntryColumn.METADATA_END] = at + 4, at + 4 + size
    if status != EntryStatus.FINE:
        return status
    try:
        return _metadata(row, view, at + 4, at + 4 + size)
    except BrokenFieldError:
        return EntryStatus.METADATA


def _int64s(values: Any) -> memoryview:
    view = memoryview(values)
    return view.cast("B").cast("q") if view.nbytes else memoryview(array("q"))


def _ranges(buffer: Any, starts: Any, ends: Any) -> tuple[memoryview, memoryview, memoryview]:
    view = memoryview(buffer).cast("B")
    first, last = _int64s(starts), _int64s(ends)
    if len(first) != len(last) or any(not 0 <= i <= j <= len(view) for i, j in zip(first, last, strict=True)):
        raise ValueError("the ranges do not fit the data")
    return view, first, last


def _table(rows: list[list[int]], columns: int) -> bytes:
    return b"".join(array("q", [row[c] for row in rows]).tobytes() for c in range(columns))


def entry_columns(buffer: Any, starts: Any, ends: Any, verify: bool, /) -> bytes:
    view, first, last = _ranges(buffer, starts, ends)
    rows = []
    for at, end in zip(first, last, strict=True):
        row = [0] * len(EntryColumn)
        row[EntryColumn.STATUS] = _entry(row, view, at, end, verify)
        rows.append(row)
    return _table(rows, len(EntryColumn))


def _single(row: list[int], view: memoryview, at: int, end: int) -> int:
    """Read SingleMessageMetadata into its columns; return the payload's size, -1 when the metadata is broken."""
    size, flags, whole = -1, 0, True
    row[MessageColumn.KEY_LENGTH] = row[MessageColumn.ORDERING_LENGTH] = -1
    row[MessageColumn.METADATA_START], row[MessageColumn.METADATA_END] = at, end
    try:
        for number, wire, value, after in fields(view, at, end):
            if wire == 2 and number == 1:
                row[MessageColumn.PROPERTIES] += 1
                whole = _pair(view, after - value, after)[0] and whole
            elif wire == 2 and number in (2, 7):
                start = MessageColumn.KEY_START if number == 2 else MessageColumn.ORDERING_START
                row[start], row[start + 1] = after - value, value
            elif wire == 0 and number == 3:
                size = _i32(value)
            elif wire == 0 and number == 5:
                row[MessageColumn.EVENT_TIME] = signed64(value)
                flags |= ColumnFlag.HAS_EVENT_TIME
            elif wire == 0 and number == 8:
                row[MessageColumn.SEQUENCE_ID] = signed64(value)
                flags |= ColumnFlag.HAS_SEQUENCE_ID
            elif wire == 0 and number in _SINGLE_TRUTHS:
                flags = flags & ~_SINGLE_TRUTHS[number] | (_SINGLE_TRUTHS[number] if value else 0)
    except BrokenFieldError:
        return -1
    row[MessageColumn.FLAGS], row[MessageColumn.PAYLOAD_LENGTH] = flags, size
    return size if whole else -1


def message_columns(
    buffer: Any, starts: Any, ends: Any, counts: Any, max_rows: int, entry: int, start: int, index: int, /
) -> tuple[bytes, int, int, int, bool]:
    view, first, last = _ranges(buffer, starts, ends)
    number = _int64s(counts)
    n = len(first)
    fits = len(number) == n and 0 < max_rows <= _MAX_ROWS and index >= 0 and 0 <= entry <= n
    if not fits or (entry < n and not first[entry] <= start <= last[entry]):
        raise ValueError("counts, max_rows or the place do not fit the ranges")
    rows: list[list[int]] = []
    while entry < n:
        for index in range(index, number[entry]):  # noqa: B020, PLR1704 - goes on where the last call stopped
            if len(rows) == max_rows:
                return _table(rows, len(MessageColumn)), entry, start, index, False
            row = [0] * len(MessageColumn)
            row[MessageColumn.ENTRY], row[MessageColumn.BATCH_INDEX] = entry, index
            end = _message(row, view, start, last[entry])
            if end < 0:
                return _table(rows, len(MessageColumn)), entry, start, index, True
            start = end
            rows.append(row)
        entry, index = entry + 1, 0
        start = first[entry] if entry < n else start
    return _table(rows, len(MessageColumn)), entry, start, index, False


def _message(row: list[int], view: memoryview, at: int, end: int) -> int:
    """Return the end of the message at `at`, -1 when the message is inconsistent."""
    if end - at < 4 or (size := _U32.unpack_from(view, at)[0]) > end - at - 4:
        return -1
    payload = at + 4 + size
    length = _single(row, view, at + 4, payload)
    return payload + length if 0 <= length <= end - payload else -1


def property_columns(buffer: Any, starts: Any, ends: Any, field_number: int, rows: int, /) -> bytes:
    view, first, last = _ranges(buffer, starts, ends)
    if not 0 <= rows <= _MAX_PROPERTIES:
        raise ValueError("no such number of properties")
    table: list[list[int]] = []
    try:
        for i, (at, end) in enumerate(zip(first, last, strict=True)):
            for number, wire, size, after in fields(view, at, end):
                if number == field_number and wire == 2:
                    table.append([i, *_parts(view, after - size, after)])
    except BrokenFieldError:
        table = [[]] * (rows + 1)
    if len(table) != rows:
        raise ValueError("the metadata do not hold that many properties")
    return _table(table, 5)


def _parts(view: memoryview, at: int, end: int) -> list[int]:
    """Return start and length of key and value; the last of a repeated field counts."""
    found = [0, 0, 0, 0]
    try:
        for number, wire, size, after in fields(view, at, end):
            if wire == 2 and number in (1, 2):
                found[2 * number - 2 : 2 * number] = [after - size, size]
    except BrokenFieldError:
        pass
    return found


def gather(buffers: Sequence[Any], which: Any, starts: Any, lengths: Any, /) -> tuple[bytes, bytes]:
    if len(buffers) > _MAX_BUFFERS:
        raise ValueError("too many buffers")
    views = [memoryview(each).cast("B") for each in buffers]
    numbers, first, sizes = (_int64s(each) for each in (which, starts, lengths))
    if len({len(numbers), len(first), len(sizes)}) != 1:
        raise ValueError("the arrays are of different lengths")
    parts, offsets, total = [], array("i", [0]), 0
    for number, start, size in zip(numbers, first, sizes, strict=True):
        if size > 0:
            total += size
            fits = 0 <= number < len(views) and 0 <= start <= len(views[number]) - size
            if not fits or total > _MAX_GATHERED:
                raise ValueError("the values do not fit the buffers, or 2 GiB")
            parts.append(views[number][start : start + size])
        offsets.append(total)
    return offsets.tobytes(), b"".join(parts)
