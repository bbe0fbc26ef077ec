"""The scratch file for bitmaps beyond the memory budget: one file for all indexes of a broker, gone with the process.

All holders share the budget. When the bitmaps exceed the budget, the largest holder puts its least recently used
bitmaps on the shelf and reads each back on demand. No entry depends on the file: a bitmap that cannot be written stays
in memory; for an unreadable bitmap `take` returns None, and its holder then treats the entries of that ledger as not
pending.
"""

from __future__ import annotations

import heapq
import os
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog
from pyroaring import BitMap

from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

__all__ = ["BitmapShelf", "Place"]

log = structlog.get_logger(__name__)
_SMALLEST_PLACE = 128
_COMPARED = 64
_HELD_BYTES = attrgetter("held_bytes")


class Place(NamedTuple):
    """A bitmap on the shelf."""

    offset: int
    size: int
    checksum: int
    entries: int
    """The number of entries in the bitmap."""


class _Holder(Protocol):
    @property
    def held_bytes(self) -> int: ...
    def put_away(self, excess: int) -> None: ...


class BitmapShelf:
    """The shelf. Sizes of places are powers of two; free places are used again. The first `put` opens the file."""

    def __init__(self, limit_bytes: int, open_file: Callable[[], BinaryIO]) -> None:
        self.limit_bytes = limit_bytes
        self._open_file = open_file
        self._file: BinaryIO | None = None
        self._holders: dict[int, _Holder] = {}
        """By identity: a broker has a holder for each topic."""
        self._largest: list[_Holder] = []
        """The largest holders when all holders were last compared."""
        self._others_bytes = 0
        """No other holder was larger then."""
        self._free: dict[int, list[int]] = {}
        self._end = 0
        self.held_bytes = 0
        """The bytes in memory, by the holders' last measures."""
        self._full = False
        self.shelved = 0
        """Bitmaps put on the shelf since the start."""

    # --- the budget ----------------------------------------------------------------------------------------------

    def join(self, holder: _Holder) -> None:
        self._holders[id(holder)] = holder

    def leave(self, holder: _Holder) -> None:
        """Drop a holder that no longer uses the shelf."""
        self._holders.pop(id(holder), None)
        self._largest = [each for each in self._largest if each is not holder]

    def changed(self, delta: int) -> None:
        """Add `delta` bytes to the memory that holders use."""
        self.held_bytes += delta

    def keep_within(self) -> None:
        """Make the largest holder put bitmaps away when all bitmaps exceed the budget; a bounded piece of work."""
        excess = self.held_bytes - self.limit_bytes
        if excess <= 0:
            return
        largest = max(self._largest, key=_HELD_BYTES, default=None)
        if largest is None or largest.held_bytes < self._others_bytes:
            self._largest = heapq.nlargest(_COMPARED, self._holders.values(), key=_HELD_BYTES)
            largest, self._others_bytes = self._largest[0], self._largest[-1].held_bytes
        largest.put_away(excess)

    # --- the file ------------------------------------------------------------------------------------------------

    def put(self, bitmap: BitMap) -> Place | None:
        """Write the bitmap and return its place; None when the write fails: the bitmap then stays in memory."""
        bitmap.run_optimize()
        data = bitmap.serialize()
        offset = self._place_for(len(data))
        try:
            if self._file is None:
                self._file = self._open_file()
            problem = "" if os.pwrite(self._file.fileno(), data, offset) == len(data) else "not all was written"
        except OSError as error:
            problem = str(error)
        if problem:
            self._free.setdefault(_size_of_place(len(data)), []).append(offset)
            if not self._full:
                log.warning("delayed_index.shelf_full", error=problem)
            self._full = True
            return None
        self._full = False
        self.shelved += 1
        return Place(offset, len(data), crc32c(data), len(bitmap))

    def take(self, place: Place) -> BitMap | None:
        """Read a bitmap back and free its place; None when the bitmap cannot be read."""
        assert self._file is not None
        try:
            data = os.pread(self._file.fileno(), place.size, place.offset)
            damaged = crc32c(data) != place.checksum
        except OSError as error:
            log.error("delayed_index.shelf_unreadable", error=str(error))  # noqa: TRY400 - one line
            return None
        if damaged:
            log.error("delayed_index.shelf_damaged", offset=place.offset)
            return None
        self.free(place)
        return BitMap.deserialize(data)

    def free(self, place: Place) -> None:
        """Free a place."""
        self._free.setdefault(_size_of_place(place.size), []).append(place.offset)

    def _place_for(self, size: int) -> int:
        room = _size_of_place(size)
        free = self._free.get(room)
        if free:
            return free.pop()
        self._end += room
        return self._end - room

    @property
    def file_bytes(self) -> int:
        return self._end

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _size_of_place(size: int) -> int:
    return max(_SMALLEST_PLACE, 1 << (size - 1).bit_length())
