"""Cuts a record set into entries, the only form that all three magics share.

    entry = int64 offset | int32 size | size bytes, of which byte 16 of the entry is the magic

A set may end inside an entry (a Fetch response is cut at a byte limit): the complete entries count, the tail is dropped
without an error and reported by `valid_bytes`. A size below the smallest header is damage, not truncation.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from magnetar.converters.kafka.errors import CorruptRecordError, UnsupportedMagicError

if TYPE_CHECKING:
    from collections.abc import Iterator

Buffer = bytes | bytearray | memoryview

LOG_OVERHEAD = 12
"""Bytes of offset and size in front of every entry."""
MAGIC_OFFSET = 16
MIN_SIZES = (14, 22, 49)
"""Smallest legal `size` by magic: header without any key, value or record."""

_OFFSET_SIZE = struct.Struct(">qi")


class Frame(NamedTuple):
    """The place of one entry in its buffer."""

    start: int
    end: int
    offset: int
    magic: int


def frames(buffer: Buffer, start: int = 0) -> Iterator[Frame]:
    """Yield the places of the complete entries of `buffer`, from byte `start` on.

    Ends silently at an incomplete entry.
    Raises: CorruptRecordError for a size below the minimum, UnsupportedMagicError for a magic above 2.
    """
    pos, total = start, len(buffer)
    while total - pos >= LOG_OVERHEAD:
        offset, size = _OFFSET_SIZE.unpack_from(buffer, pos)
        if size < MIN_SIZES[0]:
            raise CorruptRecordError(f"entry at byte {pos} declares {size} bytes, the minimum is {MIN_SIZES[0]}")
        end = pos + LOG_OVERHEAD + size
        if end > total:
            return
        magic = buffer[pos + MAGIC_OFFSET]
        if magic > 2:
            raise UnsupportedMagicError(magic)
        if size < MIN_SIZES[magic]:
            raise CorruptRecordError(
                f"magic {magic} entry at byte {pos} declares {size} bytes, the minimum is {MIN_SIZES[magic]}"
            )
        yield Frame(pos, end, offset, magic)
        pos = end


def valid_bytes(buffer: Buffer) -> int:
    """Return the length of the complete entries at the beginning of `buffer`."""
    end = 0
    for frame in frames(buffer):
        end = frame.end
    return end


def bytes_wanted(buffer: Buffer) -> int:
    """Return how long `buffer` must be to contain its whole first entry; 12 when the size is not complete.

    A consumer that got no complete entry raises its fetch size to this length.
    """
    if len(buffer) < LOG_OVERHEAD:
        return LOG_OVERHEAD
    size: int = _OFFSET_SIZE.unpack_from(buffer, 0)[1]
    return LOG_OVERHEAD + max(size, 0)
