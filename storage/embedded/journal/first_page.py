"""The first page of a segment's use: the file header, and where the use before ended. Pure.

::

     0  file header (``file_header.py``): generation and salt of this use
    64  u32 crc32c    of generation, salt and the field below
    68  u32 zero
    72  u64 end       behind the last frame of the use before, in its own segment; 0: not known, as in stores of before
    80  zeros

A device may lose the write of a frame's header. Where the frame is the last of its segment, the end is the limit of its
pages: later bytes belong to earlier uses.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.journal.format import PAGE_BYTES

if TYPE_CHECKING:
    from magnetar.storage.embedded.file_header import FileHeader

__all__ = ["encode_first_page", "end_of_use_before"]

_CHECKED = struct.Struct("<QQQ")
_NOTE = struct.Struct("<IIQ")


def encode_first_page(header: FileHeader, end_before: int) -> bytes:
    """The whole page. ``end_before``: in bytes, 0 when there was no use before in this process."""
    note = _NOTE.pack(_crc(header.generation, header.salt, end_before), 0, end_before)
    return header.pack() + note + bytes(PAGE_BYTES - FILE_HEADER_BYTES - _NOTE.size)


def end_of_use_before(page: bytes, generation: int, salt: int) -> int | None:
    """Bytes of the segment of the use before up to the end of its last frame; None when the page does not tell."""
    if len(page) < FILE_HEADER_BYTES + _NOTE.size:
        return None
    crc, _, end = _NOTE.unpack_from(page, FILE_HEADER_BYTES)
    return end if end and crc == _crc(generation, salt, end) else None


def _crc(generation: int, salt: int, end: int) -> int:
    return crc32c(_CHECKED.pack(generation, salt, end))
