"""Finds the next usable entry behind damage, where reading can continue when a size cannot be trusted.

A place counts as an entry when all checks pass that need no earlier entries: the offset follows the offsets read so far
(or starts again at 0, as in a file of produced sets), the size is possible, magic and attributes are known, and the
checksum is right. The checksum decides; the other checks keep the search fast.
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
_MAX_OFFSET_STEP = 1 << 32  # offsets of a segment differ by an int32 at most; a larger step does no harm
_MAX_ATTRIBUTES = (0x07, 0x0F, 0x7F)


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """The bounds of an entry: its offset is near 0 or not far above one of `offsets`, and it has at most
    `max_batch_bytes`.

    offsets: the expected next offsets; several, because no checksum covers an offset, so the last offset read may be
    damaged.
    """

    offsets: tuple[int, ...]
    max_batch_bytes: int

    def prefixes(self) -> set[bytes]:
        """Return all values that the first four bytes of an offset can have."""
        highs = {max(offset, 0) >> 32 for offset in self.offsets}
        return {part.to_bytes(4, "big") for part in {0, *highs, *(high + 1 for high in highs)} if part < 1 << 31}

    def fits(self, offset: int) -> bool:
        return any(0 <= offset - start < _MAX_OFFSET_STEP for start in (0, *self.offsets))


def find_batch(
    read: Callable[[int, int], bytes], position: int, bounds: SearchBounds, *, before: int | None = None
) -> int | None:
    """Return the position of the first usable entry at or behind `position`; None when there is none.

    Args: read(position, length) gives fewer bytes only at the end of the file.
          before: the entry must begin before this position.
    """
    while (before is None or position < before) and len(
        window := read(position, _WINDOW_BYTES)
    ) >= LOG_OVERHEAD + MIN_SIZES[0]:
        for at in _candidates(window, bounds):
            if before is not None and position + at >= before:
                return None
            if _is_entry(read, window, position, at, bounds):
                return position + at
        # The windows overlap, so that a header cut by the end of this window is complete in the next window.
        position += max(len(window) - _HEADER_BYTES, 1) if len(window) == _WINDOW_BYTES else len(window)
    return None


def _candidates(window: bytes, bounds: SearchBounds) -> list[int]:
    """Return the places where an offset could stand, ascending."""
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
        if len(head) < LOG_OVERHEAD + MIN_SIZES[magic]:
            return False
    attributes = int.from_bytes(head[21:23], "big") if magic == 2 else head[17]
    if attributes > _MAX_ATTRIBUTES[magic]:
        return False
    end = at + LOG_OVERHEAD + size
    data = window[at:end] if end <= len(window) else read(start + at, LOG_OVERHEAD + size)
    return len(data) == LOG_OVERHEAD + size and batch_at(data, magic).is_valid
