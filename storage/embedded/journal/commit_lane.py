"""The journal's lane when a ``FrameWriter`` writes the frames without a Python thread.

Appends gather during the write of a frame; then they become the next frame. Planning and reporting happen on the loop,
the write in the ``FrameWriter``. Work of more than one write (a new segment, a control item, all work after a refusal)
goes to the journal's thread instead, and the lane begins no other write until that work is done: so the journal has one
owner at any time, and frames stay in order.

The lane limits the rate of small frames. A frame costs nearly the same for few messages as for many, and a producer
that does not wait for its receipts has appends for the next frame as soon as the last frame is written. The appends of
such producers wait until ``FrameWriter.pace_s`` has passed since the last frame began, and ``ReadTurns`` holds the
reading of their connections as long. The lane does not delay appends of producers that wait for each receipt, large
frames, the next appends of the producer of a large frame, frames that are rare anyway, or frames on a slower disk. All
these times are multiples of the pace, on the engine's clock.

While a single producer waits for each receipt, a frame begins in the call that submits its append instead of at the end
of the turn, and the append gets early notice (``PromptDone``) as soon as the frame is written. Where the producer's
next message comes within microseconds, its frame begins before the report of the last frame: the books are kept while
the disk works.

A run of many entries that is alone in its frame gets its early notice as well, behind the begin of the next frame: its
receipts are encoded while the disk works, and the producer makes its next messages while the books are kept.

A large read takes the loop longer than a frame takes the disk. So behind a turn with many appended bytes the lane looks
for the end of the frame under way, before the loop reads the next connection: the next frame begins at once.

With ``is_busy`` the loop does not sleep until the end of the frame and until the next message, while producers that
wait for each receipt send one message quickly behind the other (``busy_poll.py``).
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from magnetar.storage.embedded.journal.busy_poll import DISK_S, END_S, REST_S, SLOW_S, TURN_S, Polled, QuickLaps
from magnetar.storage.embedded.lanes import Idle
from magnetar.storage.interfaces import PromptDone

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.journal.busy_poll import Poll
    from magnetar.storage.embedded.journal.frame_writer import FrameWriter
    from magnetar.storage.embedded.journal.writer import Append, BatchResult, Journal, Plan
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.interfaces import Clock, EarlyAnswer, NextMessage
    from magnetar.storage.read_turns import ReadTurns

    Done = Callable[[list[Append], BatchResult | None, BaseException | None], None]
    Result = TypeVar("Result")

__all__ = ["CommitLane"]

_OFTEN = 2.4
"""The lane delays no frame while the average time between the beginnings of frames is longer than this many paces."""
_SELDOM = 20
"""The average counts a longer time between two frames as this many paces."""
_SMALL_BYTES = 32 << 10
"""Pending appends of at least this many bytes together are not delayed."""
_OVERLAP = 2
"""An append that comes while an earlier append of its ledger is unanswered shows, for this many paces, that the
producers of the ledger do not wait for receipts.
"""
_LONE_FRAMES = 8
"""So many small frames behind each other, each with a single entry of a producer that waits for its receipts, and with
no append that waits at its end, show that the journal has a single such producer.
"""
_MANY_ENTRIES = 64
"""A run of at least so many entries gets early notice."""
_EARLY = 0.9
"""A frame may begin after this part of its pace: the time of a paced frame begins with its first append, and the frame
itself a little later, at the end of the turn.
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
        turns: ReadTurns,
        poll: Poll | None = None,
        is_busy: bool = False,
    ) -> None:
        self._journal, self._writer, self._done = journal, writer, done
        self._max_batch_bytes = max_batch_bytes
        self._thread = threads.lane("journal", journal.write_batch, self._worked, max_batch_bytes)
        self._loop = asyncio.get_running_loop()
        self._now_s, self._turns = clock.now_s, turns
        self._pending: deque[tuple[Append, int]] = deque()
        self._busy = False
        """A frame is under way, waits for the pace, or begins at the end of this turn of the loop."""
        self._pace_s = pace_s = writer.pace_s
        self._often_s = _OFTEN * pace_s or -1.0  # without a pace no frame is delayed
        self._seldom_s, self._overlap_s = _SELDOM * pace_s, _OVERLAP * pace_s
        self._slack_s = (1 - _EARLY) * pace_s
        self._pending_bytes = 0
        self._hurried = False
        """Whether a pending append must not wait for the pace."""
        self._waiting = False
        """Whether the pending appends wait for the pace."""
        self._has_timer = False
        """``_on_time`` is due; then the held connections read on, and the waiting appends get their frame."""
        self._began_s = 0.0
        self._filler: object | None = None
        """The ledger of the last append in the last frame, if that frame was large."""
        self._refills = False
        """Whether a pending append is of the ``_filler`` of its time."""
        self._interval_s = self._seldom_s
        """The average time in seconds between the beginnings of frames."""
        self._poll, self._is_busy, self._laps = poll, is_busy, QuickLaps()
        self._is_lap = False
        """Whether the last frame was small, and its producers wait for each receipt."""
        self._is_lone = False
        """Whether the last frame has a single entry besides."""
        self._is_awaited = False
        """Whether the system may write the frame under way without a thread."""
        self._rested_s = 0.0
        """The time of the report of a lap's frame while no append came since; else 0."""
        self._lone_frames = 0
        """The number of last frames as ``_LONE_FRAMES`` describes them."""
        self._in_thread = 0
        self._idle = Idle()
        self._batch: list[Append] = []
        self._plan: Plan | None = None
        self._notice: EarlyAnswer | None = None
        """The early answer of the append of the frame under way."""
        self._looks = False
        """``_look`` is due."""
        self._late: object | None = None
        """The ledger of the frame whose append has its early answer and not yet its report."""

    def submit(self, item: Append, size: int = 0) -> None:
        self._idle.submitted += 1
        ledger, now_s = item.ledger, self._now_s()
        if ledger is None:
            self._hurried = True
        elif ledger.pending > (1 if ledger is not self._late else 2):
            ledger.overlapped_s = now_s
        elif now_s - ledger.overlapped_s > self._overlap_s:
            if self._lone_frames >= _LONE_FRAMES and not self._busy and size < _SMALL_BYTES:
                self._begin_alone(item, now_s)
                return
            self._hurried = True
        if ledger is not None and ledger is self._filler:
            self._refills = True
        self._pending.append((item, size))
        self._pending_bytes += size
        self._turns.is_held = is_paced = not self._hurried and self._is_paced()
        is_due = True
        if is_paced:
            rest_s = self._began_s + self._pace_s - now_s
            is_due = rest_s <= self._slack_s
            self._set_timer(self._pace_s if is_due else rest_s)
        if self._busy and not self._waiting:
            if self._pending_bytes >= _SMALL_BYTES and self._plan is not None and not self._looks:
                self._looks = True
                self._loop.call_soon(self._look)
            return
        if self._rested_s:
            self._laps.rested(now_s - self._rested_s)
            self._rested_s = 0.0
        self._busy = True
        self._turns.is_idle = False
        self._waiting = not is_due
        if is_due:
            # The frame begins at the end of this turn, so that appends of other connections in the turn share the sync.
            self._loop.call_soon(self._begin_in_time)

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        await self._idle.wait()
        await self._thread.close()
        self._writer.close()

    def _is_paced(self) -> bool:
        """Whether the frame of the pending appends begins a pace after the frame before. The producer of a large frame
        fills the next frame at once, and a delay of its first append would delay the whole window.
        """
        may_wait = not self._hurried and not self._refills
        return may_wait and self._interval_s <= self._often_s and self._pending_bytes < _SMALL_BYTES

    def _set_timer(self, delay_s: float) -> None:
        """Have ``_on_time`` called, in ``delay_s`` seconds unless a call is due already."""
        if not self._has_timer:
            self._has_timer = True
            self._writer.call_after(delay_s, self._on_time)

    def _on_time(self) -> None:
        """Let the held connections read, then begin a frame with the waiting appends."""
        self._has_timer = False
        self._turns.begin()
        if self._waiting:
            # The loop reads behind the first of these turns, and the frame begins in the second.
            self._loop.call_soon(self._loop.call_soon, self._begin_waiting)

    def _begin_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._begin_in_time()

    def _look(self) -> None:
        """End the frame under way if its write has ended, without the wait for a wake-up."""
        self._looks = False
        if self._plan is not None:
            self._writer.wait(0.0)

    def _begin_alone(self, item: Append, now_s: float) -> None:
        """Begin a frame with the next append of the only producer, within its ``submit``. Preconditions: no frame is
        under way, no append is pending, and the producer waits for each receipt.
        """
        if self._rested_s:
            self._laps.rested(now_s - self._rested_s)
            self._rested_s = 0.0
        turns, slab = self._turns, item.slab
        turns.is_idle = turns.is_held = False
        self._busy = self._is_lap = True
        self._filler = None
        self._is_lone = slab is not None and slab.count == 1
        batch = [item]
        plan = self._journal.plan(batch)
        if plan is None:
            self._give_to_thread(batch)
        else:
            # The producer sends each message right behind the receipt of the last.
            self._write(batch, plan, is_quick=self._is_lone and self._laps.are_quick)
            if self._late is None:
                self._ask_for_notice()
        self._interval_s += (min(now_s - self._began_s, self._seldom_s) - self._interval_s) / 8
        self._began_s = now_s

    def _begin_in_time(self) -> None:
        """Begin a frame while no other is under way, at the end of a turn."""
        self._begin()
        self._ask_for_notice()

    def _begin(self) -> None:
        """Begin the next frame with the pending appends, or give them to the journal's thread."""
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
        self._filler = item.ledger if size >= _SMALL_BYTES else None
        self._refills = bool(pending) and self._refills
        self._is_lap = self._hurried and size < _SMALL_BYTES
        self._is_lone = self._is_lap and len(batch) == 1 and item.slab is not None and item.slab.count == 1
        self._hurried = bool(pending) and self._hurried
        plan = None if item.slab is None else self._journal.plan(batch)
        if plan is None:
            self._give_to_thread(batch)
        else:
            self._write(batch, plan)

    def _write(self, batch: list[Append], plan: Plan, *, is_quick: bool = False) -> None:
        """Begin the write of a planned frame. ``is_quick``: the system may write the frame without a thread."""
        self._batch, self._plan = batch, plan
        self._is_awaited = is_quick and self._laps.system.may_try()
        try:
            self._writer.write(plan.frame, self._written, is_awaited=self._is_awaited)
        except Exception as error:  # noqa: BLE001 - without a report every later append would wait for ever
            self._loop.call_soon(self._written, _as_os_error(error), 0.0)
        else:
            if self._is_busy and self._is_lap and self._laps.are_quick and self._laps.disk.may_try():
                self._loop.call_soon(self._poll_for_disk)

    def _give_to_thread(self, batch: list[Append]) -> None:
        """Have the journal's thread write the batch."""
        self._in_thread = len(batch)
        for item in batch:
            self._thread.submit(item, item.slab.size_bytes if item.slab is not None else 0)

    def _ask_for_notice(self) -> None:
        """Get the early answer of the frame under way, if its producer is the only one and waits for receipts, or if a
        run of many entries is alone in the frame. Precondition: the batch before is reported.
        """
        plan = self._plan
        if plan is None or plan.errors or len(self._batch) > 1:
            return
        _, slab, done, _ = self._batch[0]
        has_many = slab is not None and slab.count >= _MANY_ENTRIES
        if has_many or (self._is_lone and self._lone_frames >= _LONE_FRAMES):
            self._notice = done.notice() if isinstance(done, PromptDone) else None

    def _written(self, error: OSError | None, seconds: float) -> None:
        plan, batch = self._plan, self._batch
        assert plan is not None
        self._plan, self._batch = None, []
        if self._is_awaited and seconds > SLOW_S:
            self._laps.system.failed()
        notice, self._notice = self._notice, None
        if notice is None or error is not None or self._pending or not self._is_lone:
            early = None if self._is_lone or error is not None else notice
            self._report(batch, self._journal.finish(plan, error, seconds), None, early)
            return
        go_on = self._guarded(notice)
        result = self._journal.finish(plan, error, seconds)
        if go_on is not None and self._poll is not None and self._laps.are_quick and self._laps.turn.may_try():
            self._report_late(batch, result, go_on)
        else:
            self._report(batch, result, None)

    def _report_late(self, batch: list[Append], result: BatchResult, go_on: NextMessage) -> None:
        """Take the next message of the batch's only producer, which may begin a frame, then report the batch."""
        self._rest()
        self._late = batch[0].ledger
        has_come = self._guarded(partial(go_on, TURN_S))
        if not has_come:
            self._laps.turn.failed()
        self._late = None
        if not self._busy:
            self._poll_rest()
        has_begun = self._plan is not None
        try:
            self._done(batch, result, None)
        finally:
            self._idle.finish(len(batch))
            if has_begun:
                self._ask_for_notice()
                if not self._is_busy and self._laps.end.may_try():
                    # Behind the turns in which the connections write and read.
                    self._loop.call_soon(self._loop.call_soon, partial(self._wait_for_end, self._plan))

    def _wait_for_end(self, plan: Plan | None) -> None:
        """Wait some microseconds for the end of the frame of this plan, without sleeping."""
        if plan is not None and self._plan is plan and not self._writer.wait(END_S):
            self._laps.end.failed()

    def _guarded(self, function: Callable[[], Result]) -> Result | None:
        """Call a part of an early answer, whose bug must not cost the append its report."""
        try:
            return function()
        except Exception as failure:  # noqa: BLE001 - see above
            message = "the early answer of an append failed"
            self._loop.call_exception_handler({"message": message, "exception": failure})
            return None

    def _worked(self, batch: list[Append], result: BatchResult | None, error: BaseException | None) -> None:
        self._in_thread -= len(batch)
        if self._in_thread:
            self._done(batch, result, error)
            self._idle.finish(len(batch))
        else:
            self._report(batch, result, error)

    def _report(
        self,
        batch: list[Append],
        result: BatchResult | None,
        error: BaseException | None,
        notice: EarlyAnswer | None = None,
    ) -> None:
        """Begin the next frame, then call ``notice`` and report this frame's batch: the disk works on the next frame
        while the answers go out.
        """
        has_begun = False
        if not self._pending:
            self._rest()
            self._poll_rest()
        else:
            self._busy, self._turns.is_idle, self._lone_frames = True, False, 0
            rest_s = self._began_s + self._pace_s - self._now_s()
            if self._is_paced() and rest_s > self._slack_s:
                self._waiting = True
                self._set_timer(rest_s)
            else:
                self._begin()
                has_begun = True
        if notice is not None:
            self._guarded(notice)
        try:
            self._done(batch, result, error)
        finally:
            self._idle.finish(len(batch))
            if has_begun:
                self._ask_for_notice()

    def _rest(self) -> None:
        """Begin a rest behind the last frame: no append is pending."""
        self._busy, self._turns.is_idle = False, True
        self._lone_frames = self._lone_frames + 1 if self._is_lone else 0
        if self._is_lap and self._poll is not None:
            self._rested_s = self._now_s()

    def _poll_rest(self) -> None:
        """With busy polling, poll for the next append of a quick lap behind the turns in which the receipts go out."""
        if self._is_busy and self._is_lap and self._laps.are_quick and self._laps.rest.may_try():
            self._loop.call_soon(self._loop.call_soon, self._poll_for_append)

    def _poll_for_disk(self) -> None:
        """Wait for the end of the frame without sleeping, or for another event of the loop."""
        if self._plan is not None and self._poll is not None and self._poll(DISK_S) != Polled.EVENT:
            self._laps.disk.failed()

    def _poll_for_append(self) -> None:
        """Wait for the next append without sleeping, or for another event of the loop."""
        if not self._busy and self._poll is not None and self._poll(REST_S) != Polled.EVENT:
            self._laps.rest.failed()


def _as_os_error(error: Exception) -> OSError:
    """The error of a frame whose write could not begin. Without memory or a thread the journal fails for good."""
    if isinstance(error, OSError):
        return error
    number = errno.ENOMEM if isinstance(error, MemoryError) else errno.EIO
    return OSError(number, f"the write of a frame could not begin: {error!r}")
