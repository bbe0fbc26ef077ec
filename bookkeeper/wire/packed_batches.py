"""Answers to batch reads as log records in one buffer: no Python object per entry where the compiled helper is there.

records_of_batch(packed, ledger_id, first, most, digester)
    `packed` is ``{u32 length, entry}`` repeated, as a bookie sends it. Returns the records of the entries from `first`
    on, at most `most`, and the native int64 offsets of each record and of the end. Every entry is verified; an invalid
    entry ends the batch. Raises WireError when the first entry is invalid.

A record is ``u32 size | u32 crc32c | u64 ledger | u64 entry | i64 last add confirmed | payload``, little-endian; its
checksum covers everything but itself. `MAGNETAR_PURE=1` in the environment takes the Python twin in any case, and so do
digests other than CRC-32C.
"""

from __future__ import annotations

import contextlib
import os
import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digests import DigestType
from magnetar.bookkeeper.wire.entries import decode_entry
from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from magnetar.bookkeeper.wire.digests import Digester
    from magnetar.bookkeeper.wire.entries import Entry

__all__ = ["COMPILED", "Records", "records_of_batch", "records_of_batch_pure", "records_of_entries"]

_U32 = struct.Struct(">I")
_LENGTH = struct.Struct("<I")
_IDS = struct.Struct("<QQq")
RECORD_HEADER_BYTES = 32


class Records(NamedTuple):
    """Log records of consecutive entries of a ledger, at least one entry."""

    first: int
    data: bytes
    offsets: bytes


def records_of_entries(entries: Iterable[Entry]) -> Records:
    """Return the log records of verified entries."""
    parts: list[bytes | memoryview] = []
    offsets = array("q", [0])
    first = -1
    for entry in entries:
        first = entry.entry_id if first < 0 else first
        length = _LENGTH.pack(len(entry.payload))
        ids = _IDS.pack(entry.ledger_id, entry.entry_id, entry.last_add_confirmed)
        parts += (length, _LENGTH.pack(crc32c(entry.payload, crc32c(ids, crc32c(length)))), ids, entry.payload)
        offsets.append(offsets[-1] + RECORD_HEADER_BYTES + len(entry.payload))
    return Records(first, b"".join(parts), offsets.tobytes())


def records_of_batch_pure(packed: bytes, ledger_id: int, first: int, most: int, digester: Digester) -> Records:
    """The Python twin of the compiled helper."""
    found: list[Entry] = []
    view, at = memoryview(packed), 0
    while at < len(view) and len(found) < most:
        size = _U32.unpack_from(view, at)[0] if at + 4 <= len(view) else len(view)
        try:
            found.append(decode_entry(_part(view, at + 4, size), ledger_id, first + len(found), digester))
        except WireError:
            if not found:
                raise
            break
        at += 4 + size
    return records_of_entries(found)


def _part(view: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(view):
        raise WireError("a batch of entries ends inside an entry")
    return view[at : at + size]


_compiled: Callable[..., tuple[bytes, bytes]] | None = None
if not os.environ.get("MAGNETAR_PURE"):
    with contextlib.suppress(ImportError):  # no compiler at install time: the twin serves
        from magnetar.bookkeeper.wire._add_frames import records_of_batch as _compiled
COMPILED = _compiled is not None


def records_of_batch(packed: bytes, ledger_id: int, first: int, most: int, digester: Digester) -> Records:
    """See the head of this file. The result is empty for an empty batch."""
    if _compiled is None or digester.type is not DigestType.CRC32C:
        return records_of_batch_pure(packed, ledger_id, first, most, digester)
    data, offsets = _compiled(packed, ledger_id, first, most)
    if len(offsets) == 8 and packed:
        return records_of_batch_pure(packed, ledger_id, first, most, digester)  # raises, with the reason
    return Records(first, data, offsets)
