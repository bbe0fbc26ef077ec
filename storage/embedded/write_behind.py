"""The loop's side of write-behind: confirmed slabs gather here and go to the worker (``writeback.py``) in pieces.

One piece is under way at a time. While the journal writes frames, write-behind pauses between two pieces and leaves the
device to the journal. A pause lasts as long as the last piece or the last frame, whichever took longer, times a factor
that falls as the backlog grows; a backlog of ``relaxed_bytes`` is written without a pause. Without traffic there are no
pauses.

In a burst (``burst.py``) write-behind holds off until the burst ends or the backlog reaches ``held_off_bytes``: until
then the device writes each byte once. Readers of the device (``cold_reads.py``) have the device to themselves for a
second, up to the same backlog; then write-behind pauses for them as for the journal. Slabs beyond ``kept_bytes`` are
parked (``ledger_state.py``), oldest first, so the backlog of a burst takes no more memory. The entry cache holds the
slabs that are kept, and evicts pieces of ledger files before them, up to half of its size.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.embedded.burst import Burst
from magnetar.storage.embedded.ledger_state import UnwrittenSlab

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.cold_reads import ColdReads
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.space_limits import SpaceLimits
    from magnetar.storage.embedded.writeback import Job, WriteBack, WriteBackResult
    from magnetar.storage.interfaces import Clock, Scheduler, Timer

    Done = Callable[[list[Job], WriteBackResult | None, BaseException | None], None]

__all__ = ["WriteBehind"]

_GATHER_S = 0.05
_SELDOM_S = 0.01
_SOON_FACTOR = 4
_PIECE_BYTES = 2 << 20
"""The size of the buffer of direct writes, so that a piece is a single write; a frame that comes meanwhile waits for
this write. Only a stream that fills a piece during a pause has pieces of this size.
"""
_PIECES_OF_A_BACKLOG = 16
_LARGEST_PIECE_BYTES = 4 << 20
"""The most bytes of a piece of a large backlog. Large pieces are fewer, and each piece wakes two threads."""
_PATIENCE = 3.0
"""With an empty backlog a pause is this many times as long as the last piece or frame."""
_PATIENCE_IN_A_BURST = 8.0
"""The same in a burst whose backlog has reached the limit up to which write-behind holds off."""
_LONGEST_PAUSE_S = 0.02
_MOST_HELD_OFF = 1 << 15
"""Write-behind holds off for at most this many slabs: a parked slab still takes some 400 bytes of objects."""
_READERS_S = 1.0
"""The time for which write-behind holds off for readers, up to the same limit of the backlog as in a burst."""
_HOLD_OFF_S = 0.01
"""The time after which write-behind looks again whether it must hold off."""


class WriteBehind:
    """Loop only. ``on_written`` gets the jobs of each piece, in order, and the worker's result."""

    def __init__(
        self,
        threads: Threads,
        scheduler: Scheduler,
        clock: Clock,
        worker: WriteBack,
        limits: SpaceLimits,
        reads: ColdReads,
        *,
        gather_bytes: int,
        relaxed_bytes: int,
        kept_bytes: int,
    ) -> None:
        self._lane = threads.lane("write-behind", worker.work, self._written)
        self.on_written: Done = lambda _jobs, _result, _error: None
        self._limits, self._reads = limits, reads
        self._scheduler, self._clock = scheduler, clock
        self._gather_bytes, self._relaxed_bytes = gather_bytes, relaxed_bytes
        self._burst = Burst(clock.now_s())
        self._queue: deque[Job | None] = deque()
        self._queued_bytes = 0
        self._flushing = False
        """Whether the queued jobs go out however few bytes they have."""
        self._urgent = False
        """A caller waits for the end of the queue: no pauses until it is written."""
        self._piece: list[Job | None] = []
        """The jobs of the piece under way."""
        self._started_s = 0.0
        self._gathering: Timer | None = None
        self._pausing: Timer | None = None
        self._frame_seconds = 0.0
        """The duration of the last frame."""
        self._frame_seen = False
        """A frame was written since the piece under way began."""
        self.unwritten_bytes = 0
        self._max_kept_bytes = kept_bytes
        self.kept_bytes = 0
        """The unwritten bytes that are in memory."""
        self._kept: deque[UnwrittenSlab] = deque()
        """Unwritten slabs in memory, oldest first; slabs that were written since may remain at the front."""

    def write(self, jobs: list[UnwrittenSlab], frame_seconds: float) -> None:
        """Queue the slabs of frames that the journal wrote in ``frame_seconds``."""
        self._frame_seconds, self._frame_seen = frame_seconds, True
        size = 0
        for job in jobs:
            size += job.size_bytes
        burst = self._burst
        burst.frames += 1
        burst.bytes += size
        burst.frame_s += frame_seconds
        self._queue += jobs
        self._queued_bytes += size
        self.unwritten_bytes += size
        self._kept += jobs
        self.kept_bytes += size
        while self.kept_bytes > self._max_kept_bytes:
            job = self._kept.popleft()
            if job.slab is not None:
                job.slab = None  # parked
                self.kept_bytes -= job.size_bytes
        if not self._piece:
            self._next()

    def put(self, job: Job | None) -> None:
        """Queue another job, behind all slabs queued before; None: the worker repeats the jobs that found no space."""
        self._queue.append(job)
        self.flush()

    def flush(self) -> None:
        """Write the queued slabs, however few there are."""
        self._flushing = True
        if not self._piece:
            self._next()

    def press(self) -> None:
        """Write the queued slabs without pauses, because a caller waits for their end."""
        if self._queue:
            self._urgent = True
            if self._pausing is not None:
                self._pausing.cancel()
                self._pausing = None
        self.flush()

    async def close(self) -> None:
        """Finish the queued jobs."""
        self.press()
        while self._piece:
            await self._lane.wait_idle()
        await self._lane.close()

    def _next(self) -> None:
        """Begin the next piece, unless it must wait."""
        queue = self._queue
        if self._pausing is not None or not queue:
            return
        if not self._flushing and self._queued_bytes < self._least_bytes():
            if self._gathering is None:
                self._gathering = self._scheduler.call_later(_GATHER_S, self._gathered)
            return
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        size = 0
        piece = self._piece
        most = min(max(_PIECE_BYTES, self.unwritten_bytes // _PIECES_OF_A_BACKLOG), _LARGEST_PIECE_BYTES)
        while queue:
            job = queue[0]
            if isinstance(job, UnwrittenSlab):
                more = size + job.size_bytes
                if more > most and piece:
                    break
                size = more
            piece.append(queue.popleft())
        self._queued_bytes -= size
        if not queue:
            self._flushing = self._urgent = False
        self._started_s, self._frame_seen = self._clock.now_s(), False
        self._lane.submit(piece)

    def _least_bytes(self) -> int:
        """The least size of a piece in bytes; larger when the last piece began less than 10 ms ago."""
        if self._queued_bytes < self._gather_bytes or self._clock.now_s() - self._started_s > _SELDOM_S:
            return self._gather_bytes
        return _SOON_FACTOR * self._gather_bytes

    def _gathered(self) -> None:
        self._gathering = None
        self.flush()

    def _written(
        self, pieces: list[list[Job | None]], result: WriteBackResult | None, error: BaseException | None
    ) -> None:
        (piece,) = pieces
        took = self._clock.now_s() - self._started_s
        self._piece = []
        if result is not None:
            for job in result.finished:
                if isinstance(job, UnwrittenSlab):
                    job.ledger.written()
                    self.unwritten_bytes -= job.size_bytes
                    if job.slab is not None:
                        job.slab = None
                        self.kept_bytes -= job.size_bytes
            kept = self._kept
            while kept and kept[0].slab is None:
                kept.popleft()
        try:
            self.on_written([job for job in piece if job is not None], result, error)
        finally:
            pause_s = self._pause_s(took)
            if pause_s > 0:
                self._pausing = self._scheduler.call_later(pause_s, self._resume)
            elif not self._piece:
                self._next()

    def _pause_s(self, took: float) -> float:
        """The seconds to wait behind a piece that took ``took`` seconds."""
        if self._urgent or not self._queue:
            return 0.0
        if not self._frame_seen and not self._reads.last(self._clock.now_s()):
            return 0.0
        if self._holds_off():
            return _HOLD_OFF_S
        patience, limit, start = _PATIENCE, self._relaxed_bytes, 0
        if self._burst.lasts(self._clock.now_s()):
            # Appends wait for a full backlog: pauses end before.
            most, start = self._limits.max_unwritten_bytes, self._limits.held_off_bytes
            patience, limit = _PATIENCE_IN_A_BURST, most * 3 // 4
        left = 1.0 - (self.unwritten_bytes - start) / max(limit - start, 1)
        return min(max(took, self._frame_seconds) * patience * left, _LONGEST_PAUSE_S)

    def _resume(self) -> None:
        self._pausing = None
        if self._piece:
            return
        if self._holds_off():
            self._pausing = self._scheduler.call_later(_HOLD_OFF_S, self._resume)
        else:
            self._next()

    def _holds_off(self) -> bool:
        """Whether the backlog may grow until the burst ends, or until readers had their time."""
        if self._urgent or self.unwritten_bytes >= self._limits.held_off_bytes or len(self._queue) >= _MOST_HELD_OFF:
            return False
        now_s = self._clock.now_s()
        return self._burst.lasts(now_s) or (self._reads.last(now_s) and self._reads.seconds(now_s) < _READERS_S)
