"""Which frames a segment holds, and what is damaged in it. Pure.

A frame counts only with the segment's generation and salt, so what an earlier use left behind is never seen. Behind a
damaged frame header the next frame is found by them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, parse_file_header
from magnetar.storage.embedded.journal.first_page import end_of_use_before
from magnetar.storage.embedded.journal.format import (
    FRAME_HEADER_BYTES,
    PAGE_BYTES,
    find_frame,
    frame_bytes,
    parse_frame,
    payload_crc,
)
from magnetar.storage.errors import DamagedFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["FrameRef", "SegmentScan", "scan_segment"]


class FrameRef(NamedTuple):
    """Where a frame's payload lies."""

    segment_id: int
    generation: int
    sequence: int
    """-1: a region whose frame header is damaged."""
    offset: int
    """Of the payload, in the segment file."""
    payload_bytes: int
    whole: bool
    metadata_sequence: int = 0
    """As the frame's header says."""
    exact: bool = True
    """Every page of it was written by the frame; False: behind its unknown end lies what earlier uses left."""


class SegmentScan(NamedTuple):
    """One segment."""

    segment_id: int
    generation: int
    """0: free, nothing in it is needed."""
    frames: list[FrameRef]
    tail: FrameRef | None
    """The bytes behind the last frame: never written, torn, or a damaged last frame."""
    damage: DamagedFileError | None
    """Of the segment's own header (also when it was never written)."""
    end_before: int | None = None
    """Where the last frame of the use before ends, in its segment; None: not known."""

    def bounded_tail(self, end: int | None) -> FrameRef | None:
        """The tail when the segment's last frame is known to end at ``end``; None: nothing is missing there."""
        if self.tail is None or end is None:
            return self.tail
        size = end - self.tail.offset
        return self.tail._replace(payload_bytes=size, exact=True) if size > 0 else None


def scan_segment(
    path: str, segment_id: int, data: bytes, free_generation: int, lost: Collection[int] = frozenset()
) -> SegmentScan:
    """All frames of a segment; none when its generation says that they are not needed any more.

    ``lost``: for a segment without frames, generations that no segment has. A device that lost the write of a header
    leaves that of an earlier use; the first frame of a lost generation then tells that the segment is in use.

    Raises UnsupportedFormatError.
    """
    damage: DamagedFileError | None = None
    try:
        header = parse_file_header(path, data[:PAGE_BYTES], JOURNAL_MAGIC)
        generation, salt = header.generation, header.salt
    except DamagedFileError as error:
        generation, salt = _first_identity(data, lambda found: found > free_generation) or (0, 0)
        damage = error
    if lost and (found := _first_identity(data, lost.__contains__)) is not None:
        generation, salt = found
        damage = DamagedFileError(path, 0, "the segment's header is of an earlier use")
    if generation <= free_generation:
        return SegmentScan(segment_id, 0, [], None, damage)
    frames: list[FrameRef] = []
    at = PAGE_BYTES
    while at + FRAME_HEADER_BYTES <= len(data):
        frame = parse_frame(data, at)
        payload = at + FRAME_HEADER_BYTES
        if frame is not None and (frame.generation, frame.salt) == (generation, salt):
            view = memoryview(data)[payload : payload + frame.payload_bytes]
            crc = payload_crc(generation, salt, frame.sequence, [view])
            whole = len(view) == frame.payload_bytes and crc == frame.payload_crc
            ref = FrameRef(segment_id, generation, frame.sequence, payload, len(view), whole, frame.metadata_sequence)
            frames.append(ref)
            at += frame_bytes(frame.payload_bytes)
            continue
        following = find_frame(data, at + PAGE_BYTES, generation, salt)
        if following is None:
            break
        frames.append(FrameRef(segment_id, generation, -1, payload, following - payload, whole=False))
        at = following
    payload = min(at + FRAME_HEADER_BYTES, len(data))
    tail = FrameRef(segment_id, generation, -1, payload, len(data) - payload, whole=False, exact=False)
    end_before = end_of_use_before(data[:PAGE_BYTES], generation, salt)
    return SegmentScan(segment_id, generation, frames, tail, damage, end_before)


def _first_identity(data: bytes, wanted: Callable[[int], bool]) -> tuple[int, int] | None:
    """Generation and salt of the first frame of a wanted generation.

    The first: it lies before any bytes of clients of the same use, which could look like a frame.
    """
    for at in range(PAGE_BYTES, len(data), PAGE_BYTES):
        frame = parse_frame(data, at) if data[at : at + 4] != b"\0\0\0\0" else None
        if frame is not None and wanted(frame.generation):
            return frame.generation, frame.salt
    return None
