"""Log records in Python: the part of `_pure` that stamps and scans them (layout in `speed`)."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from magnetar.protocol.checksum import crc32c
from magnetar.protocol.varints import varint

MAGIC_ENTRY_METADATA = b"\x0e\x02"
RECORD_HEADER = struct.Struct("<IIQQq")
_U32 = struct.Struct(">I")
_CHECKSUM = struct.Struct("<I")
_MORE = [bytes((value | 0x80,)) for value in range(0x80)]
_IDENTITY = struct.Struct("<QQq")


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
    gap: int = 0,
    /,
) -> tuple[bytes, bytes]:
    where = memoryview(offsets).cast("q")
    prefixes = _prefixes(memoryview(num_messages).cast("q")[i:j], broker_timestamp_ms, index_before)
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    record_offsets = [0]
    sizes: dict[int, tuple[bytes, int]] = {}  # size -> its bytes in a record header, and their checksum
    at, start, entry_id = 0, where[i], first_entry_id
    identity, encode = _IDENTITY.pack, _CHECKSUM.pack
    for prefix, end in zip(prefixes, where[i + 1 : j + 1], strict=True):
        size = len(prefix) + end - start - gap
        known = sizes.get(size)
        if known is None:
            encoded = encode(size)
            known = sizes[size] = encoded, crc32c(encoded)
        rest, entry = identity(ledger_id, entry_id, last_add_confirmed) + prefix, view[start + gap : end]
        parts += (known[0], encode(crc32c(entry, crc32c(rest, known[1]))), rest, entry)
        at += RECORD_HEADER.size + size
        record_offsets.append(at)
        start, entry_id = end, entry_id + 1
    return b"".join(parts), array("q", record_offsets).tobytes()


def stamp_in_place(
    data: bytes,  # noqa: ARG001 - the twin's parameters
    offsets: bytes,  # noqa: ARG001
    num_messages: bytes,  # noqa: ARG001
    gap: int,  # noqa: ARG001
    verified: bool,  # noqa: ARG001
    ledger_id: int,  # noqa: ARG001
    first_entry_id: int,  # noqa: ARG001
    last_add_confirmed: int,  # noqa: ARG001
    broker_timestamp_ms: int,  # noqa: ARG001
    index_before: int,  # noqa: ARG001
    /,
) -> int | None:
    """Return None without a change: Python cannot change bytes in place, so the caller uses `stamp`."""
    return None


def _prefixes(counts: memoryview, broker_timestamp_ms: int, index_before: int) -> list[bytes]:
    """Return the 0x0e02 part of each entry; empty for an entry without messages, and without timestamp and index."""
    if index_before == -2:
        same = entry_prefix(broker_timestamp_ms, -1) if broker_timestamp_ms >= 0 else b""
        return [same if count > 0 else b"" for count in counts]
    index = index_before
    around: dict[int, tuple[bytes, bytes]] = {}  # index without its low seven bits -> the bytes around these bits
    prefixes = []
    for count in counts:
        if count <= 0:
            prefixes.append(b"")
            continue
        index += count
        if index < 0x80:
            prefixes.append(entry_prefix(broker_timestamp_ms, index))
            continue
        known = around.get(index >> 7)
        if known is None:
            whole, high = entry_prefix(broker_timestamp_ms, index), varint(index >> 7)
            known = around[index >> 7] = whole[: -1 - len(high)], high
        prefixes.append(known[0] + _MORE[index & 0x7F] + known[1])
    return prefixes


def entry_prefix(broker_timestamp_ms: int, index: int) -> bytes:
    """Return the 0x0e02 part: magic, u32 size, BrokerEntryMetadata; negative values are left out."""
    body = b""
    if broker_timestamp_ms >= 0:
        body += b"\x08" + varint(broker_timestamp_ms)
    if index >= 0:
        body += b"\x10" + varint(index)
    return MAGIC_ENTRY_METADATA + _U32.pack(len(body)) + body


def scan_records(buffer: Any, start: int, end: int, ledger_id: int, proof: int = 0, /) -> tuple[bytes, int, str | None]:
    view = memoryview(buffer)
    offsets = array("q", [start])
    at, expected, reason = start, -1, None
    while at < end:
        if end - at < RECORD_HEADER.size:
            reason = "short"
            break
        size, checksum, ledger, entry, confirmed = RECORD_HEADER.unpack_from(view, at)
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
        if proof and confirmed != proof:
            reason = "proof"
            break
        if expected >= 0 and entry != expected:
            reason = "order"
            break
        expected = entry + 1
        at = following
        offsets.append(at)
    return offsets.tobytes(), at, reason
