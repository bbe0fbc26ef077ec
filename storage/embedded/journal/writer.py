"""The journal's writer: one frame per group commit.

``write_batch`` runs in the journal's own thread: it takes all pending appends, writes them as frames and returns when
they are on the disk. ``plan`` and ``finish`` do the steps before and after the write for a batch that is one frame and
needs no thread (``frame_writer.py``). Both ways keep these rules:

* The journal writes an append only when it follows the last journalled entry of its ledger. So behind a failed append
  the journal writes nothing of that ledger until its writer appends from the failed entry on.
* No space (ENOSPC) or no descriptor: the appends of the frame and all later appends fail with StorageFullError until
  ``RESUME`` comes through the same queue. The write position does not move, so the next frame overwrites the remains of
  the failed frame. Every segment keeps a page for an empty frame, so ``CONFIRM`` succeeds meanwhile.
* Any other error of write or sync: the journal has failed for good; it never writes or acknowledges an append again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.file_header import JOURNAL_MAGIC, FileHeader
from magnetar.storage.embedded.journal.format import FRAME_HEADER_BYTES, encode_first_page, frame_bytes
from magnetar.storage.embedded.journal.frame_writer import Frame
from magnetar.storage.embedded.journal.uses import BoundSalts
from magnetar.storage.embedded.ledger_head import birth_record
from magnetar.storage.errors import StorageError, StorageFailedError, StorageFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.embedded.files import Buffer
    from magnetar.storage.embedded.journal.segments import Segment, SegmentPool
    from magnetar.storage.embedded.ledger_state import LedgerState, Place
    from magnetar.storage.interfaces import AppendDone, Clock
    from magnetar.storage.slab import Slab

__all__ = ["CONFIRM", "RENEW", "RESUME", "Append", "BatchResult", "Journal", "Plan", "SpareOrder"]

_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that pass by themselves: no space on the disk, no descriptor for the next segment."""
_JOIN_ABOVE = 64
_EMPTY_FRAME_BYTES = frame_bytes(0)
"""The bytes of the empty frame that confirms the frame before. Each frame of appends leaves this room behind it."""
_HASTE_BYTES_PER_S = 96 << 20
"""Segments that fill faster than this leave no time, and no bandwidth, to zero the next segment."""


class Append(NamedTuple):
    """A slab to write, or, without a slab, a control item (below)."""

    ledger: LedgerState | None
    slab: Slab | None
    done: AppendDone | None
    error: StorageError | None = None
    """The append was refused before: it fails with this error in its turn."""


RESUME = Append(None, None, None)
"""Space is free again: try the later items."""

CONFIRM = Append(None, None, None)
"""Write an empty frame: from then on recovery cannot take damage in the frame before for a torn end."""


RENEW = Append(None, None, None)
"""Go on in another segment if the active segment is lost."""


class SpareOrder(NamedTuple):
    """A segment to prepare."""

    size_bytes: int
    in_haste: bool


class BatchResult(NamedTuple):
    """The result of a batch."""

    errors: dict[int, StorageError] | None
    """The errors by index in the batch; None when everything is on disk."""
    refusal: StorageError | None
    """The error of appends at the moment; None: the journal takes appends."""
    last_sequence: int
    frames: int
    bytes_written: int
    seconds: float
    places: dict[int, Place]
    """Where the slabs of the batch lie in the journal, by index in the batch."""


class _Part(NamedTuple):
    """The appends of a frame, as index in the batch and append, and the frame's bytes."""

    todo: list[tuple[int, Append]]
    payload: list[Buffer]
    checksums: list[int]
    """The checksum of each buffer of the payload, -1 where the checksum is not known."""
    starts: list[int]
    """The offset of each slab in the payload."""
    size: int


class Plan(NamedTuple):
    """A frame to write, and its part of the batch."""

    todo: list[tuple[int, Append]]
    errors: dict[int, StorageError]
    room: int
    frame: Frame
    starts: Sequence[int]
    """The offset of each slab in the frame's payload."""


class Journal:
    """Writes frames into segments. The journal's thread or, with a ``FrameWriter``, the loop owns the journal, never
    both at a time (``CommitLane``).
    """

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
        self._salts = BoundSalts(store_id)
        self._salt = 0
        self._segment: Segment | None = None
        self._segment_since_s = 0.0
        self._first_page = b""
        """The first page of a new segment, which the writer writes together with the first frame."""
        self._full: list[Segment] = []
        self._refusal: StorageError | None = None
        self.released_sequence = -1
        """A durable checkpoint records that frames up to this sequence are in synced ledger files. Set by the loop."""

    def write_batch(self, batch: list[Append]) -> BatchResult:
        """Write and sync the batch, in the journal's thread. Errors of the disk are in the result, not raised."""
        started_s = self._clock.now_s()
        errors: dict[int, StorageError] = {}
        places: dict[int, Place] = {}
        frames = written = start = 0
        while start < len(batch):
            end = self._frame_end(batch, start)
            if batch[start].slab is None:
                written += self._control(batch[start])
            elif (part := self._gather(batch, start, end, errors)).todo:
                written += self._write(part, errors, places)
                frames += 1
            start = end
        seconds = self._clock.now_s() - started_s
        return BatchResult(errors or None, self._refusal, self.next_sequence - 1, frames, written, seconds, places)

    def plan(self, batch: list[Append]) -> Plan | None:
        """Plan the batch as one frame that needs only its write. Returns None, without effect, when the batch needs
        more work; then call ``write_batch``. Call no other method between a plan and its ``finish``.
        """
        if self._refusal is not None or (len(batch) > 1 and self._frame_end(batch, 0) < len(batch)):
            return None
        if len(batch) == 1 and (plan := self._plan_alone(batch[0])) is not None:
            return plan
        errors: dict[int, StorageError] = {}
        todo, payload, checksums, starts, size = self._gather(batch, 0, len(batch), errors)
        room = frame_bytes(size)
        needed = room + _EMPTY_FRAME_BYTES
        segment = self._segment
        fits = segment is not None and segment.used_bytes + needed <= segment.size_bytes
        if not todo or not (fits or (self._pool.allows_spare() and self._pool.has_spare(needed))):
            for _, item in reversed(todo):
                _fall_back(item)
            return None
        if not fits:
            self._next_segment(needed)
        return Plan(todo, errors, room, self._frame(payload, checksums), starts)

    def _plan_alone(self, item: Append) -> Plan | None:
        """Plan a frame with this append alone if nothing stands in its way; else return None, without effect. A lone
        message waits for this call, and a run has one as well: so the call has fewer steps than ``_gather``.
        """
        ledger, slab, segment = item.ledger, item.slab, self._segment
        if ledger is None or slab is None or segment is None or item.error is not None:
            return None
        first, size = slab.first_entry_id, slab.size_bytes
        room = frame_bytes(size)
        fits = segment.used_bytes + room + _EMPTY_FRAME_BYTES <= segment.size_bytes
        if not first or first != ledger.journaled + 1 or not fits:
            return None
        ledger.journaled = slab.last_entry_id
        data: Buffer = slab.data if size == len(slab.data) else slab.record_view()
        return Plan([(0, item)], {}, room, self._frame((data,), (slab.checksum,)), (0,))

    def finish(self, plan: Plan, error: OSError | None, seconds: float) -> BatchResult:
        """Return the result of a plan after its write; ``error``: the write failed."""
        places: dict[int, Place] = {}
        if error is None:
            self._written(plan.todo, plan.starts, plan.room, places)
        else:
            self._fail(plan.todo, error, plan.errors)
        written = plan.room if error is None else 0
        return BatchResult(plan.errors or None, self._refusal, self.next_sequence - 1, 1, written, seconds, places)

    def wants_spare(self) -> SpareOrder | None:
        """The segment to prepare now, or None. The loop calls this without a lock, so figures may be a little old."""
        segment = self._segment
        if self._pool.spares or segment is None or segment.used_bytes * 2 < segment.size_bytes:
            return None
        seconds = self._clock.now_s() - self._segment_since_s
        in_haste = segment.used_bytes > _HASTE_BYTES_PER_S * seconds
        return SpareOrder(self._pool.grown(segment.size_bytes), in_haste)

    def has_free_segment(self) -> bool:
        """Whether the journal could go on with a segment that exists, as far as the loop can tell without a lock."""
        if not self._pool.allows_spare():
            return False
        released = any(segment.last_sequence <= self.released_sequence for segment in list(self._full))
        return released or self._pool.has_spare(_EMPTY_FRAME_BYTES)

    def find_lost(self) -> list[str]:
        """Find segments that another program has removed, replaced or cut since the last look, and return their paths.
        The next frame goes to another segment; frames in a lost segment need a checkpoint. In any thread but the
        loop's, or when the lane is idle.
        """
        active = self._segment
        return self._pool.find_lost([*list(self._full), *([active] if active else [])])

    def close(self) -> None:
        """Close the files. Call only when the lane is idle."""
        for segment in [*self._full, *([self._segment] if self._segment else [])]:
            segment.file.close()
        self._full, self._segment = [], None
        self._pool.close()

    def _control(self, item: Append) -> int:
        """Carry out a control item; returns the bytes written. RESUME: take appends again, unless the journal has
        failed for good. CONFIRM: write an empty frame, also while the disk is full. RENEW: write an empty frame, the
        first of another segment, if the active segment is lost.
        """
        if item is RENEW and self._refusal is None and self._segment is not None and self._segment.is_lost:
            return self._write(_Part([], [], [], [], 0), {}, {})
        if item is RESUME and isinstance(self._refusal, StorageFullError):
            self._refusal = None
        if item is CONFIRM and not isinstance(self._refusal, StorageFailedError) and self._fits(_EMPTY_FRAME_BYTES):
            return self._write(_Part([], [], [], [], 0), {}, {})
        return 0

    def _frame_end(self, batch: list[Append], start: int) -> int:
        """The end of the frame that begins with append ``start``: before a control item, or before an append that would
        make the frame too large.
        """
        size = 0
        for index in range(start, len(batch)):
            slab = batch[index].slab
            if slab is None:
                return max(index, start + 1)
            size += slab.size_bytes
            if size > self._max_frame_bytes and index > start:
                return index
        return len(batch)

    def _gather(self, batch: list[Append], start: int, end: int, errors: dict[int, StorageError]) -> _Part:
        """Return the appends that may be written, and put the errors of the other appends into ``errors``."""
        todo: list[tuple[int, Append]] = []
        payload: list[Buffer] = []
        checksums: list[int] = []
        starts: list[int] = []
        size = 0
        for index in range(start, end):
            item = batch[index]
            ledger, slab, error = item.ledger, item.slab, item.error or self._refusal
            assert ledger is not None
            assert slab is not None
            if error is None and slab.first_entry_id == ledger.journaled + 1:
                ledger.journaled = slab.last_entry_id
                if slab.first_entry_id == 0:
                    # Until the sync of the ledger's file, only this record holds the ledger's properties beside the
                    # metadata.
                    birth = birth_record(slab.ledger_id, ledger.properties, ledger.proof)
                    payload.append(birth)
                    checksums.append(-1)
                    size += len(birth)
                slab_bytes = slab.size_bytes
                todo.append((index, item))
                payload.append(slab.data if slab_bytes == len(slab.data) else slab.record_view())
                checksums.append(slab.checksum)
                starts.append(size)
                size += slab_bytes
            else:
                errors[index] = ledger.last_failure = error or _out_of_turn(ledger)
        return _Part(todo, payload, checksums, starts, size)

    def _write(self, part: _Part, errors: dict[int, StorageError], places: dict[int, Place]) -> int:
        """Write and sync one frame; returns the bytes written, 0 after a failure. After a failure the appends get the
        error, and their ledgers end before them.
        """
        todo, payload, _, starts, size = part
        if len(payload) > _JOIN_ABOVE:
            payload = [b"".join(payload)]
        room = frame_bytes(size)
        try:
            if not self._fits(room + _EMPTY_FRAME_BYTES):
                self._pool.check_spare()
            frame = self._place(payload, room)
            frame.file.write(frame.buffers(), frame.offset, durable=True)
        except OSError as error:
            self._fail(todo, error, errors)
            return 0
        self._written(todo, starts, room, places)
        return room

    def _fail(self, todo: list[tuple[int, Append]], error: OSError, errors: dict[int, StorageError]) -> None:
        """Fail the appends of a frame whose write or sync failed, and refuse later appends."""
        if error.errno in _SPACE_ERRORS:
            self._refusal = StorageFullError(f"journal: {error}")
        else:
            self._refusal = StorageFailedError(f"journal: {error}")
            self._refusal.__cause__ = error
        for index, item in reversed(todo):
            _fall_back(item).last_failure = self._refusal
            errors[index] = self._refusal

    def _fits(self, room: int) -> bool:
        segment = self._segment
        return segment is not None and segment.used_bytes + room <= segment.size_bytes

    def _place(self, payload: list[Buffer], room: int) -> Frame:
        """Place the next frame; takes another segment when the active segment is full. Raises OSError when the journal
        cannot make another segment.
        """
        needed = room + _EMPTY_FRAME_BYTES if payload else room
        if not self._fits(needed):
            self._next_segment(needed)
        return self._frame(payload)

    def _frame(self, payload: Sequence[Buffer], checksums: Sequence[int] = ()) -> Frame:
        """The next frame, at the write position of the active segment."""
        segment = self._segment
        assert segment is not None
        return Frame(
            segment.file,
            segment.used_bytes - len(self._first_page),
            self._first_page,
            self.generation,
            self._salt,
            self.next_sequence,
            self._clock.now_ms(),
            self._metadata_sequence(),
            payload,
            checksums,
        )

    def _written(
        self, todo: list[tuple[int, Append]], starts: Sequence[int], room: int, places: dict[int, Place]
    ) -> None:
        """Note the places of a frame's appends, and move the write position behind the frame, which is on the disk."""
        segment = self._segment
        assert segment is not None
        file, first = segment.file, segment.used_bytes + FRAME_HEADER_BYTES
        for (index, _), start in zip(todo, starts, strict=True):
            places[index] = file, first + start
        self._first_page = b""
        segment.used_bytes += room
        segment.last_sequence = self.next_sequence
        self.next_sequence += 1

    def _next_segment(self, room: int) -> None:
        """Give released segments back to the pool, leave the active segment and take the next segment. On OSError the
        active segment stays in use.
        """
        keep = []
        for old in self._full:
            if old.last_sequence <= self.released_sequence:
                self._pool.give_back(old)
            else:
                keep.append(old)
        self._full = keep
        before = self._segment
        segment = self._pool.take(room, before.size_bytes if before else 0)
        if before is not None:
            self._full.append(before)
        self._segment = segment
        self._segment_since_s = self._clock.now_s()
        self.generation += 1
        self._salt = self._salts.make(segment.segment_id, self.generation, self._entropy(8))
        header = FileHeader(
            JOURNAL_MAGIC, self._store_id, segment.segment_id, self.generation, self._salt, self._clock.now_ms()
        )
        self._first_page = encode_first_page(header, before.used_bytes if before else 0)


def _fall_back(item: Append) -> LedgerState:
    """Set the ledger's journalled end before an append that is not written; returns the ledger."""
    ledger, slab = item.ledger, item.slab
    assert ledger is not None
    assert slab is not None
    ledger.journaled = slab.first_entry_id - 1
    return ledger


def _out_of_turn(ledger: LedgerState) -> StorageError:
    """The error of an append that follows a failed append."""
    return ledger.last_failure or StorageError("an append before this one failed")
