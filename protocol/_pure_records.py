"""Log records in Python: the part of `_pure` that stamps and scans them (layout in `speed`)."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from magnetar.protocol.checksum import crc32c

MAGIC_ENTRY_METADATA = b"\x0e\x02"
RECORD_HEADER = struct.Struct("<IIQQq")
_U32 = struct.Struct(">I")
_CHECKSUM = struct.Struct("<I")
_U64 = (1 << 64) - 1
_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def stamp(
    data: bytes,
    offsets: bytes,
    num_messages: bytes,
    i: int,
    j: int,
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    broker_timestamp_ms: int,
    index_before: int,
    /,
) -> tuple[bytes, bytes]:
    where = memoryview(offsets).cast("q")
    counts = memoryview(num_messages).cast("q")
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    record_offsets = array("q", [0])
    index, at = index_before, 0
    for k in range(i, j):
        entry = view[where[k] : where[k + 1]]
        prefix = b""
        if counts[k] > 0 and (broker_timestamp_ms >= 0 or index_before != -2):
            if index_before != -2:
                index += counts[k]
            prefix = entry_prefix(broker_timestamp_ms, index if index_before != -2 else -1)
        head = RECORD_HEADER.pack(len(prefix) + len(entry), 0, ledger_id, first_entry_id + k - i, last_add_confirmed)
        length, rest = head[:4], head[8:] + prefix
        parts += [length, _CHECKSUM.pack(crc32c(entry, crc32c(length + rest))), rest, entry]
        at += len(head) + len(prefix) + len(entry)
        record_offsets.append(at)
    return b"".join(parts), record_offsets.tobytes()


def entry_prefix(broker_timestamp_ms: int, index: int) -> bytes:
    """The 0x0e02 part: magic, u32 size, BrokerEntryMetadata; negative values are left out."""
    body = b""
    if broker_timestamp_ms >= 0:
        body += b"\x08" + varint(broker_timestamp_ms)
    if index >= 0:
        body += b"\x10" + varint(index)
    return MAGIC_ENTRY_METADATA + _U32.pack(len(body)) + body


def varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if 0 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    value &= _U64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def scan_records(buffer: Any, start: int, end: int, ledger_id: int, /) -> tuple[bytes, int, str | None]:
    view = memoryview(buffer)
    offsets = array("q", [start])
    at, expected, reason = start, -1, None
    while at < end:
        if end - at < RECORD_HEADER.size:
            reason = "short"
            break
        size, checksum, ledger, entry, _ = RECORD_HEADER.unpack_from(view, at)
        following = at + RECORD_HEADER.size + size
        if following > end:
            reason = "short"
            break
        if crc32c(view[at + 8 : following], crc32c(view[at : at + 4])) != checksum:
            reason = "crc"
            break
        if ledger_id >= 0 and ledger != ledger_id:
            reason = "ledger"
            break
        if ledger_id < 0:
            ledger_id = ledger
        if expected >= 0 and entry != expected:
            reason = "order"
            break
        expected = entry + 1
        at = following
        offsets.append(at)
    return offsets.tobytes(), at, reason
