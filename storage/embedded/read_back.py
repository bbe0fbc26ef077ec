"""Reads parked slabs back from the journal, for write-behind. Used by the write-behind thread alone.

Slabs that write-behind takes in order lie in the journal in the same order, so a single read past the cache brings many
of them into one buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.storage.embedded.direct_io import BLOCK_BYTES, aligned_memory
from magnetar.storage.embedded.ledger_state import UnwrittenSlab

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence

    from magnetar.storage.embedded.files import Buffer, File

__all__ = ["ReadBack"]

_BUFFER_BYTES = 4 << 20
_IDLE_GROUPS = 16
"""The memory of the buffer goes back to the system after so many groups of slabs that needed no read. A burst that
follows takes two huge pages anew, which costs 0.3 ms.
"""
_GAP_BYTES = 64 << 10
"""A read goes on over fewer bytes than this that no slab of the batch needs."""


class ReadBack:
    """A buffer for bytes of the journal. The views that ``read`` returned are valid until ``clear``."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._buffer = memoryview(b"")
        self.holds_memory = False
        self.used_bytes = 0
        """Bytes of the buffer that hold views; 0 behind a ``clear``."""
        self._file: File | None = None
        self._first = self._end = 0
        """The range of ``_file`` that the last read brought into the buffer, at ``_base``."""
        self._base = 0
        self._idle_groups = 0

    def read(self, batch: Sequence[object], index: int) -> Buffer | None:
        """The records of the parked slab ``batch[index]``; None when the buffer has no room before ``clear``.

        Reads the slabs behind it as well, as far as they lie close. Raises OSError.
        """
        job = batch[index]
        assert isinstance(job, UnwrittenSlab)
        file, at = job.place
        if file is not self._file or not self._first <= at or at + job.size_bytes > self._end:
            if job.size_bytes + 2 * BLOCK_BYTES > _BUFFER_BYTES:
                return file.read(job.size_bytes, at)
            if not self._fetch(batch, index, file, at):
                return None
        start = self._base + at - self._first
        return self._buffer[start : start + job.size_bytes]

    def clear(self) -> None:
        """Forget all bytes."""
        self._file, self.used_bytes = None, 0

    def rest(self) -> None:
        """Count a group of slabs that needed no read, and give the memory back after some such groups. Precondition:
        no byte is used.
        """
        self._idle_groups += 1
        if self._idle_groups == _IDLE_GROUPS:
            self._memory, self._buffer, self.holds_memory = None, memoryview(b""), False

    def _fetch(self, batch: Sequence[object], index: int, file: File, at: int) -> bool:
        """Read from the slab ``batch[index]`` on; False: not even this slab fits."""
        if self._memory is None:
            self._memory, start = aligned_memory(_BUFFER_BYTES)
            self._buffer = memoryview(self._memory)[start : start + _BUFFER_BYTES]
            self.holds_memory = True
        self._idle_groups = 0
        first = at & -BLOCK_BYTES
        room = _BUFFER_BYTES - self.used_bytes
        end = at
        for job in batch[index:]:
            if not isinstance(job, UnwrittenSlab) or job.slab is not None:
                break
            other, place = job.place
            stop = place + job.size_bytes
            if other is not file or not end <= place <= end + _GAP_BYTES or _whole(stop) - first > room:
                break
            end = stop
        if end == at:
            return False
        size = _whole(end) - first
        got = file.read_past_cache(self._buffer[self.used_bytes : self.used_bytes + size], first)
        if got < end - first:
            raise OSError(f"the journal segment ends at {first + got}, before a slab that ends at {end}")
        self._file, self._first, self._end, self._base = file, first, end, self.used_bytes
        self.used_bytes += size
        return True


def _whole(offset: int) -> int:
    """The next block boundary at or behind ``offset``."""
    return -(-offset // BLOCK_BYTES) * BLOCK_BYTES
