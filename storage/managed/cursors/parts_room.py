"""The memory of the parts of batches that are acknowledged, with a bound for all cursors together.

A client may acknowledge a part of each entry of a topic, on any number of subscriptions. Each such part costs the
broker a multiple of its bytes on the wire. An acknowledgement of a part beyond the bound is not kept: the broker
delivers the messages of its entry again. Acknowledgements of whole entries need no room.
"""

from __future__ import annotations

__all__ = ["PartsRoom", "cost_of"]

_PART_BYTES = 256
"""About the memory of a part besides its bits: the position, the number, and the place among the parts."""
_OF_ALL = 128 << 20
_OF_CURSOR = 16 << 20
"""Some 65,000 parts of usual batches: a save of a whole cursor encodes them in one turn of the event loop."""
_FREE = 16 << 10
"""A cursor with fewer bytes has room in any case."""


def cost_of(bits: int) -> int:
    """The bytes that the part of a batch with these bits takes."""
    return _PART_BYTES + bits.bit_length() // 8


class PartsRoom:
    """Counts the bytes of the parts of all cursors."""

    def __init__(self, used: int = 0, of_all: int = _OF_ALL, of_cursor: int = _OF_CURSOR, free: int = _FREE) -> None:
        self.used = used
        self._of_all = of_all
        self._of_cursor = of_cursor
        self._free = free

    def has(self, of_cursor: int, more: int) -> bool:
        """Whether a cursor whose parts take `of_cursor` bytes may keep `more` bytes."""
        after = of_cursor + more
        return after <= self._free or (after <= self._of_cursor and self.used + more <= self._of_all)
