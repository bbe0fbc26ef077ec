"""The journal's lane when frames are written without a Python thread.

Appends gather during the write of a frame; then they become the next frame. Planning and reporting happen on the loop,
the write in the ``FrameWriter``. Work of more than one write (a new segment, a control item, all work after a refusal)
goes to the journal's thread instead, and the lane begins no other write until that work is done: so the journal has one
owner at any time, and frames stay in order.
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

    Done = Callable[[list[Append], BatchResult | None, BaseException | None], None]

__all__ = ["CommitLane"]


class CommitLane:
    """A ``Lane`` of appends. Loop only."""

    def __init__(
        self, journal: Journal, writer: FrameWriter, threads: Threads, done: Done, max_batch_bytes: int
    ) -> None:
        self._journal, self._writer, self._done = journal, writer, done
        self._max_batch_bytes = max_batch_bytes
        self._thread = threads.lane("journal", journal.write_batch, self._worked, max_batch_bytes)
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[Append, int]] = deque()
        self._busy = False
        """A frame is under way, or is begun at the end of this turn."""
        self._in_thread = 0
        self._idle = Idle()
        self._batch: list[Append] = []
        self._plan: Plan | None = None

    def submit(self, item: Append, size: int = 0) -> None:
        self._idle.submitted += 1
        self._pending.append((item, size))
        if not self._busy:
            # Not at once, so that appends of other connections in this turn share the sync.
            self._busy = True
            self._loop.call_soon(self._begin)

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        await self._idle.wait()
        await self._thread.close()
        self._writer.close()

    def _begin(self) -> None:
        """The next frame, of the pending appends."""
        pending = self._pending
        item, size = pending.popleft()
        batch = [item]
        if item.slab is not None:
            while pending and pending[0][0].slab is not None and size + pending[0][1] <= self._max_batch_bytes:
                item, more = pending.popleft()
                batch.append(item)
                size += more
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
            self._begin()
        try:
            self._done(batch, result, error)
        finally:
            self._idle.finish(len(batch))
