"""Preallocated journal segments: making them, keeping spares, using them again.

The engine fills a segment with zeros once, so that later writes change no file system metadata and a sync is one device
flush. The zeros double the bytes that go to the device, so the engine only allocates a large segment that the journal
needs soon: during its first use each sync then also writes file system metadata, which costs little beside frames of
hundreds of kilobytes; later uses do not have this cost. ``prepare`` runs in the engine's helper thread before the
journal needs a segment; when no segment is ready, the journal's own thread makes a segment.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.journal.format import PAGE_BYTES

if TYPE_CHECKING:
    from magnetar.storage.embedded.files import File, FileSystem
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.space_limits import SpaceLimits

__all__ = ["Segment", "SegmentPool"]

_ZEROS = bytes(1 << 20)
_GROWTH = 8


class Segment:
    """One open segment file."""

    __slots__ = ("file", "last_sequence", "segment_id", "size_bytes", "used_bytes")

    def __init__(self, segment_id: int, file: File, size_bytes: int) -> None:
        self.segment_id, self.file, self.size_bytes = segment_id, file, size_bytes
        self.used_bytes = PAGE_BYTES
        self.last_sequence = -1
        """The sequence of the last frame in the segment; meaningful once the segment is full."""

    @property
    def is_lost(self) -> bool:
        return not self.size_bytes

    def lose(self) -> None:
        """Note that another program has removed, replaced or cut the file: no next frame fits."""
        self.size_bytes = 0


class SegmentPool:
    """Makes segments and keeps the free segments in ``spares``. The loop adds prepared segments; the owner of the
    journal takes segments and gives them back.
    """

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        store_id: bytes,
        *,
        first_bytes: int,
        segment_bytes: int,
        zeroed_bytes: int,
        next_segment_id: int,
        limits: SpaceLimits,
    ) -> None:
        self._limits = limits
        self._files, self._layout, self._store_id = files, layout, store_id
        self._first_bytes, self.segment_bytes = min(first_bytes, segment_bytes), segment_bytes
        self._zeroed_bytes = zeroed_bytes
        self._next_id = next_segment_id
        self.spares: deque[Segment] = deque()

    def prepare(self, size_bytes: int, *, in_haste: bool = False) -> Segment:
        """Make a segment, durable with its name, with space on the device for all of its bytes. ``in_haste``: do not
        fill a large segment with zeros.

        Raises OSError after removing the unfinished file, and before making a file that would take the space of bytes
        that wait for ledger files.
        """
        self._limits.check_new_segment(size_bytes)
        segment_id, self._next_id = self._next_id, self._next_id + 1
        path = self._layout.segment(segment_id)
        file = self._files.open(path, create=True)
        try:
            if in_haste and size_bytes > self._zeroed_bytes:
                file.allocate(size_bytes)
            else:
                _fill(file, size_bytes)
            file.write([FileHeader(JOURNAL_MAGIC, self._store_id, segment_id).pack()], 0)
            file.sync()
            self._files.sync_dir(self._layout.journal)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self._files.remove(path)
            raise
        self._limits.measure()
        return Segment(segment_id, file, size_bytes)

    def grown(self, size_bytes: int) -> int:
        """The size of the next segment: segments begin small, so that a small store starts at once and stays small; a
        segment takes a quarter of the free space at most, unless it is as small as the first.
        """
        free = self._limits.free_bytes // 4 & -PAGE_BYTES
        return max(min(size_bytes * _GROWTH, self.segment_bytes, free), self._first_bytes)

    def has_spare(self, room_bytes: int) -> bool:
        """Whether a spare has room for ``room_bytes``, so that ``take`` makes no segment."""
        # Over a copy: the journal's thread may take a spare meanwhile.
        return any(segment.size_bytes - PAGE_BYTES >= room_bytes for segment in list(self.spares))

    def allows_spare(self) -> bool:
        """Whether the journal may use a spare: the bytes that wait for ledger files had space at the last look."""
        return self._limits.allows_spare()

    def check_spare(self) -> None:
        """Look, and raise OSError (ENOSPC) when the bytes that wait for ledger files have no space. Not on the loop."""
        self._limits.check_new_segment(0)

    def find_lost(self, used: list[Segment]) -> list[str]:
        """Look at the files of ``used`` and of the spares. Segments that another program has removed, replaced or cut
        become lost, and the paths of these are returned. In any thread but the loop's.
        """
        lost = []
        for segment in [*used, *list(self.spares)]:
            if segment.is_lost or self._is_whole(segment):
                continue
            segment.lose()
            with contextlib.suppress(ValueError):  # no spare, or the journal has taken it meanwhile
                self.spares.remove(segment)
                segment.file.close()
            lost.append(self._layout.segment(segment.segment_id))
        return lost

    def _is_whole(self, segment: Segment) -> bool:
        try:
            named = self._files.identity(self._layout.segment(segment.segment_id))
            return named == segment.file.identity() and segment.file.size() >= segment.size_bytes
        except OSError:  # the system does not say; or the journal gave the segment up, and closed it, meanwhile
            return True

    def take(self, room_bytes: int, last_size_bytes: int) -> Segment:
        """A free segment with room for ``room_bytes``: a spare, or else a new segment. Raises OSError."""
        for _ in range(len(self.spares)):
            segment = self.spares.popleft()
            if segment.size_bytes - PAGE_BYTES >= room_bytes:
                segment.used_bytes = PAGE_BYTES
                return segment
            self.spares.append(segment)
        return self.prepare(max(self.grown(last_size_bytes), room_bytes + PAGE_BYTES), in_haste=True)

    def give_back(self, segment: Segment) -> None:
        """Add a segment whose frames are no longer needed to the spares, or close a lost segment."""
        if segment.is_lost:
            segment.file.close()
        else:
            self.spares.append(segment)

    def close(self) -> None:
        """Close the spares' files."""
        while self.spares:
            self.spares.popleft().file.close()


def _fill(file: File, size_bytes: int) -> None:
    """Write zeros in steps of 1 MiB and sync each step before the next, so that the journal's syncs wait for at most
    one step. The caller syncs the last step.
    """
    for offset in range(0, size_bytes, len(_ZEROS)):
        step = min(len(_ZEROS), size_bytes - offset)
        file.write([_ZEROS[:step]], offset, durable=offset + step < size_bytes)
