r"""Bytes of a metadata log. Pure.

A log is a file of fixed size, full of zeros before its use: two header pages, then frames. The writer writes header and
frames twice, one copy behind the other in pages of its own, so damage of one page costs nothing: the other copy counts.

Header page, 4096 bytes, little-endian::

     0      file header (``file_header.py``): file id = log number, generation = sequence of its first frame, salt
    64  u64 size of the file
    72      zeros
  4092  u32 crc32c of all before

Frame: a copy is this header, the payload (``changes.py``) and zeros up to a multiple of 4096::

     0  u32 magic
     4  u32 crc32c           of the whole copy with this field zero, padding included
     8  u64 log number       \ of the file: a page of another log, or of another place here,
    16  u64 salt             | can never be taken for a frame expected here
    24  u64 sequence         / grows by one with each frame, across logs and restarts
    32  u32 payload bytes
    36  u16 copy             0 or 1
    38  u16 kind             changes; confirm: only a later sequence; end: the next log continues
    40  i64 written          wall clock, ms
    48  16 x zero

A frame of which neither copy is intact is torn when no intact frame follows: the frame was never acknowledged.
Otherwise the frame is damaged. A file that is shorter than the size in its header was cut: a power loss does not
shorten the file, because the writer synced its zeros.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, METADATA_LOG_MAGIC, FileHeader, parse_file_header
from magnetar.storage.errors import DamagedFileError

__all__ = [
    "CHANGES",
    "CONFIRM",
    "END",
    "FIRST_FRAME_AT",
    "PAGE_BYTES",
    "LogFrame",
    "LogHeader",
    "copy_bytes",
    "encode_frame",
    "encode_log_header",
    "parse_copy",
    "parse_log_header",
]

PAGE_BYTES = 4096
FIRST_FRAME_AT = 2 * PAGE_BYTES
CHANGES, CONFIRM, END = 0, 1, 2

_MAGIC = 0x464D474D
_HEADER = struct.Struct("<IIQQQIHHq16x")
_SIZE = struct.Struct("<Q")
_CRC_AT = PAGE_BYTES - 4


class LogHeader(NamedTuple):
    """The fields of a header page."""

    store_id: bytes
    number: int
    first_sequence: int
    salt: int
    size_bytes: int
    created_ms: int


class LogFrame(NamedTuple):
    """A frame as one intact copy holds it."""

    sequence: int
    kind: int
    payload: bytes
    written_ms: int
    size_bytes: int
    """The size of one copy."""


def copy_bytes(payload_bytes: int) -> int:
    """Room one copy of a frame takes."""
    return (_HEADER.size + payload_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)


def encode_log_header(header: LogHeader) -> bytes:
    """Return the bytes of both header pages."""
    fields = (header.store_id, header.number, header.first_sequence, header.salt, header.created_ms)
    page = FileHeader(METADATA_LOG_MAGIC, *fields).pack() + _SIZE.pack(header.size_bytes)
    page += bytes(_CRC_AT - len(page))
    page += crc32c(page).to_bytes(4, "little")
    return page + page


def parse_log_header(path: str, data: bytes, number: int) -> tuple[LogHeader, list[DamagedFileError]]:
    """Return the header of log ``number`` from either page, and the fault of the other page.

    Raises DamagedFileError when both are damaged, UnsupportedFormatError.
    """
    damage: list[DamagedFileError] = []
    found: LogHeader | None = None
    for at in (0, PAGE_BYTES):
        try:
            header = _parse_header_page(path, data[at : at + PAGE_BYTES], number)
        except DamagedFileError as error:
            damage.append(DamagedFileError(path, at, f"one copy of the header is damaged: {error.detail}"))
            continue
        found = found or header
    if found is None:
        raise DamagedFileError(path, 0, "both copies of the header are damaged")
    return found, damage


def _parse_header_page(path: str, page: bytes, number: int) -> LogHeader:
    if len(page) < PAGE_BYTES:
        raise DamagedFileError(path, 0, "cut off")
    if crc32c(page[:_CRC_AT]) != int.from_bytes(page[_CRC_AT:], "little"):
        raise DamagedFileError(path, 0, "wrong checksum")
    head = parse_file_header(path, page, METADATA_LOG_MAGIC)
    if head.file_id != number:
        raise DamagedFileError(path, 0, f"it is the one of log {head.file_id}")
    (size,) = _SIZE.unpack_from(page, FILE_HEADER_BYTES)
    return LogHeader(head.store_id, head.file_id, head.generation, head.salt, size, head.created_ms)


def encode_frame(log: LogHeader, sequence: int, kind: int, payload: bytes, written_ms: int) -> list[bytes]:
    """Return the bytes of both copies, which the caller writes one behind the other."""
    padding = bytes(copy_bytes(len(payload)) - _HEADER.size - len(payload))
    copies = []
    for copy in (0, 1):
        fields = (log.number, log.salt, sequence, len(payload), copy, kind, written_ms)
        blank = _HEADER.pack(_MAGIC, 0, *fields)
        crc = crc32c(padding, crc32c(payload, crc32c(blank)))
        copies.append(_HEADER.pack(_MAGIC, crc, *fields) + payload + padding)
    return copies


def parse_copy(data: bytes, at: int, log: LogHeader) -> tuple[int, LogFrame] | None:
    """(0 or 1 for the copy, frame) of the copy of a frame of this log at ``at``; None without an intact copy there."""
    if data[at : at + 4] != _MAGIC.to_bytes(4, "little") or at + _HEADER.size > len(data):
        return None
    _, crc, number, salt, sequence, size, copy, kind, written_ms = _HEADER.unpack_from(data, at)
    end = at + copy_bytes(size)
    if (number, salt) != (log.number, log.salt) or end > len(data) or copy > 1 or kind > END:
        return None
    view = memoryview(data)
    if crc32c(view[at + 8 : end], crc32c(bytes(4), crc32c(view[at : at + 4]))) != crc:
        return None
    start = at + _HEADER.size
    return copy, LogFrame(sequence, kind, data[start : start + size], written_ms, end - at)
