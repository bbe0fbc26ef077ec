"""Finding the next usable entry behind damage: where a file goes on when a size cannot be trusted.

A place is taken when everything that can be known without the entries before it fits: the offset follows those seen so
far (or begins anew at 0, as in a file of produced sets), the size is possible, magic and attributes are known, and the
checksum is right. The checksum decides; the rest keeps the search fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.converters.kafka.framing import LOG_OVERHEAD, MAGIC_OFFSET, MIN_SIZES
from magnetar.converters.kafka.record_set import batch_at

if TYPE_CHECKING:
    from collections.abc import Callable

_WINDOW_BYTES = 1024 * 1024
_HEADER_BYTES = LOG_OVERHEAD + MIN_SIZES[2]
_MAX_OFFSET_STEP = 1 << 32  # a segment's offsets differ by an int32 at most; twice that does no harm
_MAX_ATTRIBUTES = (0x07, 0x0F, 0x7F)


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """What an entry must keep to: its offset is `next_offset` or somewhat above (or near 0), its size at most that."""

    next_offset: int
    max_batch_bytes: int

    def prefixes(self) -> set[bytes]:
        """The first four bytes an offset can have."""
        high = max(self.next_offset, 0) >> 32
        return {part.to_bytes(4, "big") for part in (0, high, high + 1)}

    def fits(self, offset: int) -> bool:
        return 0 <= offset < _MAX_OFFSET_STEP or 0 <= offset - self.next_offset < _MAX_OFFSET_STEP


def find_batch(read: Callable[[int, int], bytes], position: int, bounds: SearchBounds) -> int | None:
    """Position of the first usable entry at `position` or behind; None when there is none.

    Args: read(position, length) gives fewer bytes only at the end of the file.
    """
    while len(window := read(position, _WINDOW_BYTES)) >= LOG_OVERHEAD + MIN_SIZES[0]:
        for at in _candidates(window, bounds):
            if _is_entry(read, window, position, at, bounds):
                return position + at
        # An entry that begins in the last bytes is seen whole at the front of the next window.
        position += max(len(window) - _HEADER_BYTES, 1) if len(window) == _WINDOW_BYTES else len(window)
    return None


def _candidates(window: bytes, bounds: SearchBounds) -> list[int]:
    """Where an offset could stand, ascending."""
    found: list[int] = []
    for prefix in bounds.prefixes():
        at = window.find(prefix)
        while at >= 0:
            if at + MAGIC_OFFSET < len(window) and window[at + MAGIC_OFFSET] <= 2:
                found.append(at)
            at = window.find(prefix, at + 1)
    return sorted(found)


def _is_entry(read: Callable[[int, int], bytes], window: bytes, start: int, at: int, bounds: SearchBounds) -> bool:
    magic = window[at + MAGIC_OFFSET]
    size = int.from_bytes(window[at + 8 : at + LOG_OVERHEAD], "big", signed=True)
    if not MIN_SIZES[magic] <= size <= bounds.max_batch_bytes - LOG_OVERHEAD:
        return False
    if not bounds.fits(int.from_bytes(window[at : at + 8], "big", signed=True)):
        return False
    head = window[at : at + _HEADER_BYTES]
    if len(head) < LOG_OVERHEAD + MIN_SIZES[magic]:
        head = read(start + at, _HEADER_BYTES)
    attributes = int.from_bytes(head[21:23], "big") if magic == 2 else head[17]
    if attributes > _MAX_ATTRIBUTES[magic]:
        return False
    end = at + LOG_OVERHEAD + size
    data = window[at:end] if end <= len(window) else read(start + at, LOG_OVERHEAD + size)
    return len(data) == LOG_OVERHEAD + size and batch_at(data, magic).is_valid
