"""Entries as a bookie stores them, and runs of entries as add frames. Big-endian.

======  ====  ============================================================================
offset  size  content of an entry
======  ====  ============================================================================
0       8     ledger id
8       8     entry id
16      8     last add confirmed of the writer when it made the entry (-1: none)
24      8     payload bytes of the ledger up to and with this entry
32      m     digest (see ``digests``)
32+m    n     payload
======  ====  ============================================================================
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from magnetar.bookkeeper.errors import WireError
from magnetar.bookkeeper.wire.digests import MASTER_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.bookkeeper.wire.digests import Digester

__all__ = ["ADD_HEADER", "ENTRY_HEADER_BYTES", "Entry", "EntryRun", "decode_entry", "encode_run", "frame_overhead"]

ENTRY_HEADER_BYTES = 32
_HEADER = struct.Struct(">qqqq")
_PREFIX = struct.Struct(">II")
ADD_HEADER = 0x02010000
"""The header of an add frame: version, operation, no flags."""
_LENGTH_AT = 8 + MASTER_KEY_BYTES + 24


class Entry(NamedTuple):
    """A verified entry. ``payload`` is a view of the received frame."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    """Payload bytes of the ledger up to and with this entry."""
    payload: memoryview


class EntryRun(NamedTuple):
    """Consecutive entries as add frames, back to back in ``frames``; frame k is ``frames[offsets[k] : offsets[k +
    1]]``.
    """

    first: int
    last: int
    frames: bytes
    offsets: array[int]
    length: int
    """Payload bytes of the ledger up to and with the last of these entries."""

    def part(self, first: int, last: int) -> memoryview:
        """Return the frames of the entries ``first .. last``."""
        start = self.offsets[first - self.first]
        return memoryview(self.frames)[start : self.offsets[last - self.first + 1]]

    def length_at(self, entry_id: int) -> int:
        """Payload bytes of the ledger up to and with this entry, as its header says."""
        at = self.offsets[entry_id - self.first] + _LENGTH_AT
        return int.from_bytes(self.frames[at : at + 8], "big")


def frame_overhead(digester: Digester) -> int:
    """Return the bytes of one add frame without the payload, its length field included."""
    return 8 + MASTER_KEY_BYTES + ENTRY_HEADER_BYTES + digester.size


def encode_run(
    ledger_id: int,
    first: int,
    confirmed: int,
    length: int,
    payloads: Sequence[bytes | memoryview],
    digester: Digester,
    key: bytes,
    flags: int = 0,
) -> EntryRun:
    """Return the add frames of consecutive entries. `length`: payload bytes of the ledger before the first entry.

    A negative ledger id or entry id is a bug of the caller. Such an entry would damage the bookie permanently: the
    bookie's next flush throws.
    """
    assert ledger_id >= 0
    assert first >= 0
    overhead = MASTER_KEY_BYTES + ENTRY_HEADER_BYTES + digester.size + 4
    opcode = ADD_HEADER | flags
    pack, prefix, digest = _HEADER.pack, _PREFIX.pack, digester.digest
    parts: list[bytes | memoryview] = []
    offsets = array("q", [0])
    at, entry_id = 0, first
    for payload in payloads:
        size = len(payload)
        length += size
        header = pack(ledger_id, entry_id, confirmed, length)
        parts += (prefix(overhead + size, opcode), key, header, digest(header, payload), payload)
        at += overhead + 4 + size
        offsets.append(at)
        entry_id += 1
    return EntryRun(first, entry_id - 1, b"".join(parts), offsets, length)


def decode_entry(data: bytes | memoryview, ledger_id: int, entry_id: int | None, digester: Digester) -> Entry:
    """Return the entry in these bytes after checking its digest, ledger id and (unless None) entry id. Raises
    WireError.
    """
    view = memoryview(data)
    start = ENTRY_HEADER_BYTES + digester.size
    if len(view) < start:
        raise WireError(f"an entry of {len(view)} bytes has no room for its header")
    header = view[:ENTRY_HEADER_BYTES]
    found_ledger, found_entry, confirmed, length = _HEADER.unpack(header)
    payload = view[start:]
    if digester.digest(header, payload) != view[ENTRY_HEADER_BYTES:start]:
        raise WireError(f"digest of entry {ledger_id}:{'last' if entry_id is None else entry_id} does not fit")
    if found_ledger != ledger_id or found_entry < 0 or (entry_id is not None and found_entry != entry_id):
        raise WireError(f"entry {found_ledger}:{found_entry} came for {ledger_id}:{entry_id}")
    return Entry(found_ledger, found_entry, confirmed, length, payload)
