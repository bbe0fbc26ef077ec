"""The journal's writer: one frame per group commit. Everything here runs in the journal's own thread.

``write_batch`` takes all appends that are pending, writes them as frames and returns when they are on the disk. It
keeps the order of truth:

* An append goes out only when it follows the last journalled entry of its ledger; so behind a failed append nothing
  of that ledger is written before its writer has fallen back.
* No space (ENOSPC): this batch and all later ones fail with StorageFullError until ``RESUME`` came through the same
  queue. The write position does not move, so the next frame lies over the remains of the failed one.
* Any other error of write or sync: the journal has failed for good; nothing is ever written or acknowledged again.
"""

from __future__ import annotations

import errno
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES, JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.journal.format import PAGE_BYTES, encode_frame, frame_bytes
from magnetar.storage.embedded.ledger_head import birth_record
from magnetar.storage.errors import StorageError, StorageFailedError, StorageFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.files import Buffer
    from magnetar.storage.embedded.journal.segments import Segment, SegmentPool
    from magnetar.storage.embedded.ledger_state import LedgerState
    from magnetar.storage.interfaces import AppendDone, Clock
    from magnetar.storage.slab import Slab

__all__ = ["CONFIRM", "RESUME", "Append", "BatchResult", "Journal", "SpareOrder"]

_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""What passes by itself: no space on the disk, no descriptor for the next segment."""
_JOIN_ABOVE = 64
_HASTE_BYTES_PER_S = 96 << 20
"""Segments that fill faster than this leave no time, and no bandwidth, to zero the next one."""


class Append(NamedTuple):
    """One slab on its way, or without slab one of the control items below."""

    ledger: LedgerState | None
    slab: Slab | None
    done: AppendDone | None
    error: StorageError | None = None
    """Refused before: only takes its turn."""


RESUME = Append(None, None, None)
"""There is space again: what comes behind is tried."""

CONFIRM = Append(None, None, None)
"""Write an empty frame: from then on damage in the frame before cannot be taken for a torn end."""


class SpareOrder(NamedTuple):
    """A segment to be prepared."""

    size_bytes: int
    in_haste: bool


class BatchResult(NamedTuple):
    """What became of a batch."""

    errors: dict[int, StorageError] | None
    """By index in the batch; None when everything is on disk."""
    refusal: StorageError | None
    """Why the journal takes nothing at the moment."""
    last_sequence: int
    frames: int
    bytes_written: int
    seconds: float


class Journal:
    """Writes frames into segments."""

    def __init__(
        self,
        pool: SegmentPool,
        store_id: bytes,
        clock: Clock,
        entropy: Callable[[int], bytes],
        *,
        next_sequence: int,
        next_generation: int,
        max_frame_bytes: int,
        metadata_sequence: Callable[[], int] = lambda: 0,
    ) -> None:
        self._pool, self._store_id, self._clock, self._entropy = pool, store_id, clock, entropy
        self._metadata_sequence = metadata_sequence
        self._max_frame_bytes = max_frame_bytes
        self.next_sequence = next_sequence
        self.generation = next_generation - 1
        self._salt = 0
        self._segment: Segment | None = None
        self._segment_since_s = 0.0
        self._header: bytes | None = None
        """Segment header still to be written, together with the first frame."""
        self._full: list[Segment] = []
        self._refusal: StorageError | None = None
        self.released_sequence = -1
        """Set by the loop: frames up to this one are in synced ledger files and a durable checkpoint says so."""

    def write_batch(self, batch: list[Append]) -> BatchResult:
        """Write and sync; never raises for a state of the disk."""
        started = time.perf_counter()
        errors: dict[int, StorageError] = {}
        frame: list[tuple[int, Append]] = []
        size = frames = written = 0
        for index, item in enumerate(batch):
            bytes_more = item.slab.size_bytes if item.slab is not None else 0
            if frame and (item.slab is None or size + bytes_more > self._max_frame_bytes):
                written += self._write_frame(frame, errors)
                frames, size, frame = frames + 1, 0, []
            if item.slab is None:
                written += self._control(item)
            elif (error := item.error or self._refusal or _out_of_turn(item)) is not None:
                errors[index] = error
                _ledger(item).last_failure = error
            else:
                _ledger(item).journaled = item.slab.last_entry_id
                frame.append((index, item))
                size += bytes_more
        if frame:
            written += self._write_frame(frame, errors)
            frames += 1
        seconds = time.perf_counter() - started
        return BatchResult(errors or None, self._refusal, self.next_sequence - 1, frames, written, seconds)

    def wants_spare(self) -> SpareOrder | None:
        """The segment that should be prepared now (a glance from the loop, without lock)."""
        segment = self._segment
        if self._pool.spares or segment is None or segment.used_bytes * 2 < segment.size_bytes:
            return None
        seconds = self._clock.now_s() - self._segment_since_s
        in_haste = segment.used_bytes > _HASTE_BYTES_PER_S * seconds
        return SpareOrder(self._pool.grown(segment.size_bytes), in_haste)

    def close(self) -> None:
        """Close the files. Only after the lane is idle."""
        for segment in [*self._full, *([self._segment] if self._segment else [])]:
            segment.file.close()
        self._full, self._segment = [], None
        self._pool.close()

    def _control(self, item: Append) -> int:
        """RESUME: try again from here on, unless the journal failed for good. CONFIRM: an empty frame."""
        if item is RESUME and isinstance(self._refusal, StorageFullError):
            self._refusal = None
        if item is CONFIRM and self._refusal is None:
            return self._write_frame([], {})
        return 0

    def _write_frame(self, todo: list[tuple[int, Append]], errors: dict[int, StorageError]) -> int:
        """One frame; on failure the appends fall back and take the error. Returns bytes written."""
        buffers: list[Buffer] = []
        for _, item in todo:
            assert item.slab is not None
            slab = item.slab
            if slab.first_entry_id == 0:
                # Until the ledger's file is synced, this is what tells whose entries these are.
                buffers.append(birth_record(slab.ledger_id, _ledger(item).properties))
            buffers.append(slab.data if slab.size_bytes == len(slab.data) else slab.record_view())
        if len(buffers) > _JOIN_ABOVE:
            buffers = [b"".join(buffers)]
        try:
            return self._put(buffers)
        except OSError as error:
            if error.errno in _SPACE_ERRORS:
                self._refusal = StorageFullError(f"journal: {error}")
            else:
                self._refusal = StorageFailedError(f"journal: {error}")
                self._refusal.__cause__ = error
        for index, item in reversed(todo):
            assert item.slab is not None
            _ledger(item).journaled = item.slab.first_entry_id - 1
            _ledger(item).last_failure = self._refusal
            errors[index] = self._refusal
        return 0

    def _put(self, buffers: list[Buffer]) -> int:
        room = frame_bytes(sum(map(len, buffers)))
        segment = self._segment
        if segment is None or segment.used_bytes + room > segment.size_bytes:
            segment = self._next_segment(room)
        frame = encode_frame(
            self.generation,
            self._salt,
            self.next_sequence,
            buffers,
            self._clock.now_ms(),
            self._metadata_sequence(),
        )
        if self._header is None:
            segment.file.write(frame, segment.used_bytes, durable=True)
        else:
            padding = bytes(PAGE_BYTES - FILE_HEADER_BYTES)
            segment.file.write([self._header, padding, *frame], 0, durable=True)
            self._header = None
        segment.used_bytes += room
        segment.last_sequence = self.next_sequence
        self.next_sequence += 1
        return room

    def _next_segment(self, room: int) -> Segment:
        """Leave the active segment, reuse what is released, take the next. State changes only when all went well."""
        keep = []
        for old in self._full:
            if old.last_sequence <= self.released_sequence:
                self._pool.give_back(old)
            else:
                keep.append(old)
        self._full = keep
        segment = self._pool.take(room, self._segment.size_bytes if self._segment else 0)
        if self._segment is not None:
            self._full.append(self._segment)
        self._segment = segment
        self._segment_since_s = self._clock.now_s()
        self.generation += 1
        (self._salt,) = struct.unpack("<Q", self._entropy(8))
        header = FileHeader(
            JOURNAL_MAGIC, self._store_id, segment.segment_id, self.generation, self._salt, self._clock.now_ms()
        )
        self._header = header.pack()
        return segment


def _ledger(item: Append) -> LedgerState:
    assert item.ledger is not None
    return item.ledger


def _out_of_turn(item: Append) -> StorageError | None:
    """The error of an append that follows a failed one."""
    ledger = _ledger(item)
    if item.slab is not None and item.slab.first_entry_id == ledger.journaled + 1:
        return None
    return ledger.last_failure or StorageError("an append before this one failed")
