"""The first 64 bytes of every binary file of a store (little-endian)::

 0  8s  magic            which kind of file
 8  u32 format version
12  u32 crc32c           of these 64 bytes with this field zero
16  16s store id         all files of a data directory carry the same
32  u64 file id          ledger id, segment id, checkpoint number
40  u64 generation       journal segments: grows with each use; checkpoint: sequence of the metadata; ledger files: data
                         offset, 0 in format 1; metadata logs and snapshots: first sequence
48  u64 salt             journal segments and metadata logs: random per use, part of each frame; checkpoint: 1 when the
                         salts of segments are bound (``journal/uses.py``); else 0
56  i64 created          wall clock, ms
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.storage.errors import DamagedFileError, UnsupportedFormatError

__all__ = [
    "CHECKPOINT_MAGIC",
    "FILE_HEADER_BYTES",
    "FORMAT_VERSION",
    "JOURNAL_MAGIC",
    "LEDGER_MAGIC",
    "METADATA_LOG_MAGIC",
    "SNAPSHOT_MAGIC",
    "FileHeader",
    "parse_file_header",
]

FILE_HEADER_BYTES = 64
FORMAT_VERSION = 2
"""The engine writes this version, and reads version 1 too: metadata in SQLite, ledger files without properties."""
JOURNAL_MAGIC = b"MGNTRJNL"
LEDGER_MAGIC = b"MGNTRLDG"
CHECKPOINT_MAGIC = b"MGNTRCHK"
METADATA_LOG_MAGIC = b"MGNTRMLG"
SNAPSHOT_MAGIC = b"MGNTRMSN"

_HEADER = struct.Struct("<8sII16sQQQq")


class FileHeader(NamedTuple):
    """Decoded header."""

    magic: bytes
    store_id: bytes
    file_id: int
    generation: int = 0
    salt: int = 0
    created_ms: int = 0

    def pack(self) -> bytes:
        """The 64 bytes."""
        fields = (self.store_id, self.file_id, self.generation, self.salt, self.created_ms)
        blank = _HEADER.pack(self.magic, FORMAT_VERSION, 0, *fields)
        return _HEADER.pack(self.magic, FORMAT_VERSION, crc32c(blank), *fields)


def parse_file_header(path: str, data: bytes, magic: bytes) -> FileHeader:
    """Decode and check the header at the start of ``data``.

    Raises DamagedFileError, or UnsupportedFormatError for an intact header of a newer version (a damaged version
    number is damage, not a version).
    """
    if len(data) < FILE_HEADER_BYTES:
        raise DamagedFileError(path, 0, f"file header cut off after {len(data)} bytes")
    found, version, crc, *fields = _HEADER.unpack_from(data)
    if crc32c(data[:12] + bytes(4) + data[16:FILE_HEADER_BYTES]) != crc:
        raise DamagedFileError(path, 0, "file header has a wrong checksum")
    if found != magic:
        raise DamagedFileError(path, 0, f"wrong magic {found!r}, expected {magic!r}")
    if version > FORMAT_VERSION:
        raise UnsupportedFormatError(path, version, FORMAT_VERSION)
    return FileHeader(found, *fields)
