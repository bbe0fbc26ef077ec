"""The loop's side of write-behind: confirmed slabs gather here and go to the worker (``writeback.py``) in pieces.

One piece is under way at a time. While the journal writes frames, write-behind pauses between two pieces and leaves the
device to the journal. A pause lasts as long as the last piece or the last frame, whichever took longer, times a factor
that falls as the backlog grows; a backlog of ``relaxed_bytes`` is written without a pause. Without traffic there are no
pauses. The newest part of the entry cache holds the unwritten entries too, so a backlog below the size of the cache
costs no extra memory, and slabs leave memory one by one, as new slabs arrive.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.embedded.writeback import WriteSlab

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.lanes import Threads
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
_LONGEST_PAUSE_S = 0.02


class WriteBehind:
    """Loop only. ``on_written`` gets the jobs of each piece, in order, and the worker's result."""

    def __init__(
        self,
        threads: Threads,
        scheduler: Scheduler,
        clock: Clock,
        worker: WriteBack,
        *,
        gather_bytes: int,
        relaxed_bytes: int,
        max_unwritten_bytes: int,
    ) -> None:
        self._lane = threads.lane("write-behind", worker.work, self._written)
        self.on_written: Done = lambda _jobs, _result, _error: None
        self.max_unwritten_bytes = max_unwritten_bytes
        """Appends wait while more bytes than this are unwritten."""
        self._scheduler, self._clock = scheduler, clock
        self._gather_bytes, self._relaxed_bytes = gather_bytes, relaxed_bytes
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

    def write(self, jobs: list[WriteSlab], frame_seconds: float) -> None:
        """Queue the slabs of frames that the journal wrote in ``frame_seconds``."""
        self._frame_seconds, self._frame_seen = frame_seconds, True
        size = 0
        for job in jobs:
            size += job.slab.size_bytes
        self._queue += jobs
        self._queued_bytes += size
        self.unwritten_bytes += size
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
            if isinstance(job, WriteSlab):
                more = size + job.slab.size_bytes
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
                if isinstance(job, WriteSlab):
                    self.unwritten_bytes -= job.ledger.written().size_bytes
        try:
            self.on_written([job for job in piece if job is not None], result, error)
        finally:
            pause_s = self._pause_s(took)
            if pause_s > 0:
                self._pausing = self._scheduler.call_later(pause_s, self._resume)
            elif not self._piece:
                self._next()

    def _pause_s(self, took: float) -> float:
        if not self._frame_seen or self._urgent or not self._queue:
            return 0.0
        left = 1.0 - self.unwritten_bytes / self._relaxed_bytes
        return min(max(took, self._frame_seconds) * _PATIENCE * left, _LONGEST_PAUSE_S)

    def _resume(self) -> None:
        self._pausing = None
        if not self._piece:
            self._next()
