"""The frames of a segment, and its damage. Pure.

A frame counts only with the segment's generation and salt, so remains of an earlier use never count. By generation and
salt the scan also finds the next frame behind a damaged frame header. When the segment's header is damaged or belongs
to an earlier use, the scan takes generation and salt of the last use from the frames (``uses.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, parse_file_header
from magnetar.storage.embedded.journal.format import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    PAGE_BYTES,
    end_of_use_before,
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
    """The place of a frame's payload."""

    segment_id: int
    generation: int
    sequence: int
    """-1: a region whose frame header is damaged."""
    offset: int
    """The offset of the payload in the segment file."""
    payload_bytes: int
    whole: bool
    metadata_sequence: int = 0
    """The metadata sequence in the frame's header."""
    exact: bool = True
    """The frame's end is known; False: the end is unknown, and bytes of earlier uses may lie behind the frame."""


class SegmentScan(NamedTuple):
    """The frames of one segment."""

    segment_id: int
    generation: int
    """0: the segment is free, and recovery needs none of its frames."""
    frames: list[FrameRef]
    tail: FrameRef | None
    """The bytes behind the last frame: never written, torn, or a damaged last frame."""
    damage: DamagedFileError | None
    """The damage of the segment's header (also of a header that was never written)."""
    end_before: int | None = None
    """The end of the last frame of the use before, in the segment of that use; None: unknown."""
    header_generation: int = 0
    header_salt: int = 0
    """Generation and salt in the segment's header, of any use; 0 when the header is damaged."""

    def bounded_tail(self, end: int | None) -> FrameRef | None:
        """The tail cut at ``end``, the known end of the segment's last frame; the whole tail when ``end`` is None.

        None: the segment has no tail, or its last frame was found, so nothing is missing.
        """
        if self.tail is None or end is None:
            return self.tail
        size = end - self.tail.offset
        return self.tail._replace(payload_bytes=size, exact=True) if size > 0 else None


def scan_segment(
    path: str,
    segment_id: int,
    data: bytes,
    free_generation: int,
    lost: Collection[int] = frozenset(),
    *,
    is_bound: Callable[[int, int, int], bool] | None = None,
) -> SegmentScan:
    """Return all frames of a segment; no frames when the generation of the segment shows that they are no longer
    needed.

    ``is_bound(segment id, generation, salt)`` distinguishes frames of this store from all other bytes; the frames of
    the segment's last use count. None: salts are random only. Then generation and salt of a damaged header come from
    the first intact frame above ``free_generation``; an intact header is replaced only by a frame whose generation is
    in ``lost``, the generations that no segment has.

    Raises UnsupportedFormatError.
    """
    damage: DamagedFileError | None = None
    generation = salt = 0
    try:
        header = parse_file_header(path, data[:PAGE_BYTES], JOURNAL_MAGIC)
        generation, salt = header.generation, header.salt
    except DamagedFileError as error:
        damage = error
    said = (generation, salt)
    if is_bound is not None:
        found = _last_identity(data, segment_id, max(generation, free_generation), is_bound)
    elif damage is not None:
        found = _first_identity(data, lambda found: found > free_generation)
    else:
        found = _first_identity(data, lost.__contains__) if lost else None
    if found is not None:
        generation, salt = found
        damage = damage or DamagedFileError(path, 0, "the segment's header is of an earlier use")
    if generation <= free_generation:
        return SegmentScan(segment_id, 0, [], None, damage, None, *said)
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
    return SegmentScan(segment_id, generation, frames, tail, damage, end_before, *said)


def _first_identity(data: bytes, wanted: Callable[[int], bool]) -> tuple[int, int] | None:
    """Generation and salt of the first frame of a wanted generation.

    The first frame counts, because it lies before all bytes of clients of the same use, which could look like a frame.
    """
    for at in range(PAGE_BYTES, len(data), PAGE_BYTES):
        frame = parse_frame(data, at) if data.startswith(FRAME_MAGIC, at) else None
        if frame is not None and wanted(frame.generation):
            return frame.generation, frame.salt
    return None


def _last_identity(
    data: bytes, segment_id: int, known: int, is_bound: Callable[[int, int, int], bool]
) -> tuple[int, int] | None:
    """Generation and salt of the newest use later than generation ``known`` that has a frame of this store."""
    newest: tuple[int, int] | None = None
    for at in range(PAGE_BYTES, len(data), PAGE_BYTES):
        frame = parse_frame(data, at) if data.startswith(FRAME_MAGIC, at) else None
        if frame is None or (frame.generation, frame.salt) == newest:
            continue
        if frame.generation > (known if newest is None else newest[0]) and is_bound(
            segment_id, frame.generation, frame.salt
        ):
            newest = (frame.generation, frame.salt)
    return newest
