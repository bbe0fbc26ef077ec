"""The journal's lane when frames are written without a Python thread.

Appends gather during the write of a frame; then they become the next frame. Planning and reporting happen on the loop,
the write in the ``FrameWriter``. Work of more than one write (a new segment, a control item, all work after a refusal)
goes to the journal's thread instead, and the lane begins no other write until that work is done: so the journal has one
owner at any time, and frames stay in order.

Small frames keep a pace: a frame costs much the same however few messages it is of, and a producer that does not wait
for its receipts fills the next frame as soon as the last frame is written. The appends of such producers wait until the
time ``FrameWriter.pace_s`` has passed since the last frame began. Appends of producers that wait for each receipt,
large frames, frames that are seldom anyway, and frames on a slower disk wait for nothing. All these times are multiples
of the pace and pass on the engine's clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.embedded.lanes import Idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.journal.frame_writer import FrameWriter
    from magnetar.storage.embedded.journal.writer import Append, BatchResult, Journal, Plan
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.interfaces import Clock, Scheduler

    Done = Callable[[list[Append], BatchResult | None, BaseException | None], None]

__all__ = ["CommitLane"]

_OFTEN = 2.4
"""Frames that begin more seldom than after so many paces, on average, have no pace."""
_SELDOM = 20
"""Longer times between frames count as so many paces in the average."""
_SMALL_BYTES = 32 << 10
"""Appends of this size are a frame that waits for no other appends."""
_OVERLAP = 4
"""For so many paces an append beside an unanswered append shows that the producers of its ledger do not wait."""
_TICK = 2
"""Appends wait for so many paces at most, when no further append comes: a millisecond, the resolution of the loop's
timers.
"""


class CommitLane:
    """A ``Lane`` of appends. Loop only."""

    def __init__(
        self,
        journal: Journal,
        writer: FrameWriter,
        threads: Threads,
        done: Done,
        max_batch_bytes: int,
        *,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._journal, self._writer, self._done = journal, writer, done
        self._max_batch_bytes = max_batch_bytes
        self._thread = threads.lane("journal", journal.write_batch, self._worked, max_batch_bytes)
        self._loop = asyncio.get_running_loop()
        self._now_s, self._scheduler = clock.now_s, scheduler
        self._pending: deque[tuple[Append, int]] = deque()
        self._busy = False
        """A frame is under way, waits for its time, or is begun at the end of this turn."""
        self._pace_s = pace_s = writer.pace_s
        self._often_s, self._seldom_s, self._overlap_s = _OFTEN * pace_s, _SELDOM * pace_s, _OVERLAP * pace_s
        self._pending_bytes = 0
        self._hurried = False
        """A pending append may not wait for the pace."""
        self._waiting = False
        """The pending appends wait for the pace."""
        self._has_tick = False
        self._began_s = 0.0
        self._interval_s = self._seldom_s
        """Between the beginnings of frames, on average."""
        self._in_thread = 0
        self._idle = Idle()
        self._batch: list[Append] = []
        self._plan: Plan | None = None

    def submit(self, item: Append, size: int = 0) -> None:
        self._idle.submitted += 1
        self._pending.append((item, size))
        self._pending_bytes += size
        ledger, now_s = item.ledger, self._now_s()
        if ledger is None:
            self._hurried = True
        elif ledger.pending > 1:
            ledger.overlapped_s = now_s
        elif now_s - ledger.overlapped_s > self._overlap_s:
            self._hurried = True
        if self._busy and not self._waiting:
            return
        self._busy = True
        if self._is_due(now_s):
            # Not at once, so that appends of other connections in this turn share the sync.
            self._waiting = False
            self._loop.call_soon(self._begin)
        else:
            self._wait()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        await self._idle.wait()
        await self._thread.close()
        self._writer.close()

    def _is_due(self, now_s: float) -> bool:
        """Whether the pending appends are to be written now."""
        return (
            self._hurried
            or self._interval_s > self._often_s
            or self._pending_bytes >= _SMALL_BYTES
            or now_s - self._began_s >= self._pace_s
        )

    def _wait(self) -> None:
        """Wait for the next append that finds the time come, at most for a tick."""
        self._waiting = True
        if not self._has_tick:
            self._has_tick = True
            self._scheduler.call_later(_TICK * self._pace_s, self._tick)

    def _tick(self) -> None:
        self._has_tick = False
        if self._waiting:
            self._waiting = False
            self._begin()

    def _begin(self) -> None:
        """The next frame, of the pending appends."""
        now_s = self._now_s()
        self._interval_s += (min(now_s - self._began_s, self._seldom_s) - self._interval_s) / 8
        self._began_s = now_s
        pending = self._pending
        item, size = pending.popleft()
        batch = [item]
        if item.slab is not None:
            while pending and pending[0][0].slab is not None and size + pending[0][1] <= self._max_batch_bytes:
                item, more = pending.popleft()
                batch.append(item)
                size += more
        self._pending_bytes -= size
        self._hurried = bool(pending) and self._hurried
        if item.slab is not None:
            plan = self._journal.plan(batch)
            if plan is not None:
                self._batch, self._plan = batch, plan
                self._writer.write(plan.frame, self._written)
                return
        self._in_thread = len(batch)
        for item in batch:
            self._thread.submit(item, item.slab.size_bytes if item.slab is not None else 0)

    def _written(self, error: OSError | None, seconds: float) -> None:
        plan, batch = self._plan, self._batch
        assert plan is not None
        self._plan, self._batch = None, []
        self._report(batch, self._journal.finish(plan, error, seconds), None)

    def _worked(self, batch: list[Append], result: BatchResult | None, error: BaseException | None) -> None:
        self._in_thread -= len(batch)
        if self._in_thread:
            self._done(batch, result, error)
            self._idle.finish(len(batch))
        else:
            self._report(batch, result, error)

    def _report(self, batch: list[Append], result: BatchResult | None, error: BaseException | None) -> None:
        """Begin the next frame first, so that the disk works on that frame while the answers of this frame go out."""
        self._busy = bool(self._pending)
        if self._busy:
            if self._is_due(self._now_s()):
                self._begin()
            else:
                self._wait()
        try:
            self._done(batch, result, error)
        finally:
            self._idle.finish(len(batch))
