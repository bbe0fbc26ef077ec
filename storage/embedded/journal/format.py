r"""Bytes of the journal. Pure.

A segment is a preallocated file: a page of 4096 bytes whose first 64 are the file header (``file_header.py``), then
frames. A frame holds the appends of one group commit, padded with zeros to 4096, so the engine never rewrites an
acknowledged page. Frame header, 64 bytes, little-endian::

     0  u32 magic
     4  u32 crc32c           of this header with this field zero
     8  u64 generation       \ of the segment: a frame left over from an earlier use of the
    16  u64 salt             / segment has other values and is never replayed
    24  u64 sequence         grows by one with each frame of the store, across segments
    32  u64 payload bytes
    40  u32 payload crc32c   seeded with generation, salt and sequence
    44  u32 slabs            how many appends the frame holds (0: only confirms that the frame before was synced)
    48  i64 written          wall clock, ms
    56  u64 metadata         last durable change of the metadata: a start detects metadata that end before this change

A *use* of a segment begins when the journal takes the segment; each use has its own generation and salt. The first
page, behind its file header (which has generation and salt of this use), records the end of the use before, which is
the use that the journal filled last, usually of another segment::

    64  u32 crc32c           of generation, salt and the field below
    68  u32 zero
    72  u64 end              offset behind the last frame of the use before, in the segment of that use; 0: unknown, as
                             in stores of earlier versions
    80  zeros

A device may lose the write of a frame's header. When this frame is the last of its segment, the end limits its pages:
later bytes belong to earlier uses.

The payload is the appended slabs' records, one after the other (``slab.py``); the birth record of a ledger comes right
before the first entry of the ledger (``ledger_head.py``). The salt is random and bound to the store (``uses.py``), so
no bytes of a client can look like a frame of this segment.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.embedded.file_header import FileHeader
    from magnetar.storage.embedded.files import Buffer

__all__ = [
    "FRAME_HEADER_BYTES",
    "FRAME_MAGIC",
    "PAGE_BYTES",
    "FrameHeader",
    "encode_first_page",
    "encode_frame",
    "end_of_use_before",
    "find_frame",
    "frame_bytes",
    "parse_frame",
    "payload_crc",
]

PAGE_BYTES = 4096
FRAME_HEADER_BYTES = 64

_MAGIC = 0x4D46474D
FRAME_MAGIC = _MAGIC.to_bytes(4, "little")
"""The first bytes of a frame."""
_HEADER = struct.Struct("<IIQQQQIIqQ")
_SEED = struct.Struct("<QQQ")
_NOTE = struct.Struct("<IIQ")
_IDENTITY = struct.Struct("<QQ")


class FrameHeader(NamedTuple):
    """A frame header whose own checksum is right."""

    generation: int
    salt: int
    sequence: int
    payload_bytes: int
    payload_crc: int
    slabs: int
    written_ms: int
    metadata_sequence: int


def frame_bytes(payload_bytes: int) -> int:
    """Room a frame takes in its segment."""
    return (FRAME_HEADER_BYTES + payload_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)


def payload_crc(generation: int, salt: int, sequence: int, buffers: Sequence[Buffer]) -> int:
    """Checksum of a frame's payload."""
    crc = crc32c(_SEED.pack(generation, salt, sequence))
    for buffer in buffers:
        # Mode 0 keeps the interpreter lock: 40 us per MiB is less than taking the lock again costs.
        crc = crc32c(buffer, crc, gil_release_mode=0)
    return crc


def encode_frame(
    generation: int,
    salt: int,
    sequence: int,
    buffers: Sequence[Buffer],
    written_ms: int,
    metadata_sequence: int = 0,
) -> list[Buffer]:
    """The buffers to write: header, payload, padding."""
    size = sum(map(len, buffers))
    fields = (generation, salt, sequence, size, payload_crc(generation, salt, sequence, buffers), len(buffers))
    blank = _HEADER.pack(_MAGIC, 0, *fields, written_ms, metadata_sequence)
    header = _HEADER.pack(_MAGIC, crc32c(blank), *fields, written_ms, metadata_sequence)
    return [header, *buffers, bytes(frame_bytes(size) - FRAME_HEADER_BYTES - size)]


def parse_frame(data: bytes, offset: int) -> FrameHeader | None:
    """The frame header at ``offset`` if its checksum is right."""
    header = data[offset : offset + FRAME_HEADER_BYTES]
    if len(header) < FRAME_HEADER_BYTES:
        return None
    magic, crc, *fields = _HEADER.unpack(header)
    if magic != _MAGIC or crc32c(header[:4] + bytes(4) + header[8:]) != crc:
        return None
    return FrameHeader(*fields)


def find_frame(data: bytes, start: int, generation: int, salt: int) -> int | None:
    """Offset of the first intact frame header of this use of the segment at or behind ``start``."""
    pattern = _IDENTITY.pack(generation, salt)
    at = start
    while (at := data.find(pattern, at)) >= 0:
        offset = at - 8
        if offset >= start and offset % PAGE_BYTES == 0 and parse_frame(data, offset) is not None:
            return offset
        at += 1
    return None


def encode_first_page(header: FileHeader, end_before: int) -> bytes:
    """The whole first page. ``end_before``: the end of the use before in bytes, 0 for the first use in this process."""
    note = _NOTE.pack(_note_crc(header.generation, header.salt, end_before), 0, end_before)
    return header.pack() + note + bytes(PAGE_BYTES - FILE_HEADER_BYTES - _NOTE.size)


def end_of_use_before(page: bytes, generation: int, salt: int) -> int | None:
    """The end of the use before from the first page ``page``; None when the page holds no valid end."""
    if len(page) < FILE_HEADER_BYTES + _NOTE.size:
        return None
    crc, _, end = _NOTE.unpack_from(page, FILE_HEADER_BYTES)
    return end if end and crc == _note_crc(generation, salt, end) else None


def _note_crc(generation: int, salt: int, end: int) -> int:
    return crc32c(_SEED.pack(generation, salt, end))
