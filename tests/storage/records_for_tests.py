"""Plain log records for storage tests, written straight from the layout in docs/storage.md."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

from crc32c import crc32c

from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = struct.Struct("<IIQQq")


def record(ledger_id: int, entry_id: int, body: bytes, last_add_confirmed: int = -1) -> bytes:
    """One record."""
    header = bytearray(HEADER.pack(len(body), 0, ledger_id, entry_id, last_add_confirmed))
    crc = crc32c(body, crc32c(header[8:], crc32c(header[:4])))
    header[4:8] = crc.to_bytes(4, "little")
    return bytes(header) + body


def slab_of(ledger_id: int, first_entry_id: int, bodies: Sequence[bytes], last_add_confirmed: int = -1) -> Slab:
    """A slab of the given entry bodies."""
    records = [record(ledger_id, first_entry_id + k, body, last_add_confirmed) for k, body in enumerate(bodies)]
    offsets = array("q", [0])
    for item in records:
        offsets.append(offsets[-1] + len(item))
    return Slab(ledger_id, first_entry_id, b"".join(records), offsets.tobytes())


def bodies_of(slabs: Sequence[Slab], first: int, last: int) -> list[bytes]:
    """Entry bodies first..last out of the slabs of ``LedgerStore.read``."""
    found = []
    for slab in slabs:
        span = slab.span(first, last)
        found += [bytes(span.body(k)) for k in range(span.entries)]
    return found
