r"""Bytes of a ledger file. Pure. ::

    0            file header (``file_header.py``), file id = ledger id
    64           records, entry 0 first, without gaps (``slab.py``)
    64 + length  index: u64 entry id, u64 file offset, for some entry in every 64 KiB         \ only in a sealed
    ...          footer, 64 bytes, the last of the file                                       / file

Footer (little-endian)::

     0  8s  magic
     8  u32 format version
    12  u32 crc32c           of the footer with this field zero
    16  u64 ledger id
    24  u64 entries
    32  u64 length           bytes of all records
    40  u64 index points
    48  u32 index crc32c
    52  12 x zero

The engine can make index and footer again from the records, so a file without them (never sealed, or cut) is complete.
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, FORMAT_VERSION
from magnetar.storage.embedded.ledger_index import LedgerIndex

__all__ = ["FOOTER_BYTES", "Footer", "encode_index", "parse_footer", "parse_index"]

FOOTER_BYTES = 64
_MAGIC = b"MGNTRFTR"
_FOOTER = struct.Struct("<8sIIQQQQI12x")


class Footer(NamedTuple):
    """A footer whose checksum is right."""

    ledger_id: int
    entries: int
    length_bytes: int
    points: int
    index_crc: int

    @property
    def index_offset(self) -> int:
        return FILE_HEADER_BYTES + self.length_bytes

    @property
    def index_bytes(self) -> int:
        return self.points * 16


def encode_index(ledger_id: int, entries: int, length_bytes: int, index: LedgerIndex) -> bytes:
    """Index and footer, to be written right behind the records."""
    pairs = array("q", bytes(16 * len(index.entries)))
    pairs[0::2] = index.entries
    pairs[1::2] = index.offsets
    data = pairs.tobytes()
    fields = (ledger_id, entries, length_bytes, len(index.entries), crc32c(data))
    blank = _FOOTER.pack(_MAGIC, FORMAT_VERSION, 0, *fields)
    return data + _FOOTER.pack(_MAGIC, FORMAT_VERSION, crc32c(blank), *fields)


def parse_footer(data: bytes) -> Footer | None:
    """The footer in the last 64 bytes of a file; None when there is no intact footer."""
    if len(data) != FOOTER_BYTES:
        return None
    magic, version, crc, *fields = _FOOTER.unpack(data)
    if magic != _MAGIC or version > FORMAT_VERSION or crc32c(data[:12] + bytes(4) + data[16:]) != crc:
        return None
    return Footer(*fields)


def parse_index(footer: Footer, data: bytes) -> LedgerIndex | None:
    """The index; None when its checksum is wrong."""
    if len(data) != footer.index_bytes or crc32c(data) != footer.index_crc:
        return None
    pairs = array("q")
    pairs.frombytes(data)
    index = LedgerIndex()
    index.entries, index.offsets = pairs[0::2], pairs[1::2]
    return index
