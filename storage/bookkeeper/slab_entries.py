"""Slabs and BookKeeper's entries. Pure. An entry's payload is the body of a record: the bytes that Pulsar stores."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.slab import RECORD_HEADER_BYTES, Slab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.bookkeeper.wire.entries import Entry

__all__ = ["slab_of_entries"]

_LENGTH = struct.Struct("<I")
_IDS = struct.Struct("<QQq")
_CRC = struct.Struct("<I")


def slab_of_entries(entries: Sequence[Entry]) -> Slab:
    """Consecutive entries, at least one, as a slab of records with checksums of their own."""
    parts: list[bytes | memoryview] = []
    offsets = array("q", [0])
    at = 0
    for entry in entries:
        length = _LENGTH.pack(len(entry.payload))
        ids = _IDS.pack(entry.ledger_id, entry.entry_id, entry.last_add_confirmed)
        parts += (length, _CRC.pack(crc32c(entry.payload, crc32c(ids, crc32c(length)))), ids, entry.payload)
        at += RECORD_HEADER_BYTES + len(entry.payload)
        offsets.append(at)
    return Slab(entries[0].ledger_id, entries[0].entry_id, b"".join(parts), offsets.tobytes())
