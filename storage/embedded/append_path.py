"""From ``append`` to ``done``: the loop's side of the journal.

One lane takes all pending appends of all ledgers; appends that arrive while a frame is synced form the next frame
(group commit without delay). Completion is one callback of the loop per batch: entries become readable, go to the cache
and to write-behind, then each ``done`` is called in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.embedded.journal.commit_lane import CommitLane
from magnetar.storage.embedded.journal.writer import CONFIRM, RENEW, RESUME, Append, SpareOrder
from magnetar.storage.embedded.writeback import SPACE_ERRORS
from magnetar.storage.errors import StorageClosedError, StorageError, StorageFailedError, StorageFullError
from magnetar.storage.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.health import Health
    from magnetar.storage.embedded.journal.busy_poll import Poll
    from magnetar.storage.embedded.journal.frame_writer import FrameWriter
    from magnetar.storage.embedded.journal.segments import Segment, SegmentPool
    from magnetar.storage.embedded.journal.writer import BatchResult, Journal
    from magnetar.storage.embedded.lanes import Lane, Threads
    from magnetar.storage.embedded.ledger_state import LedgerState, UnwrittenSlab
    from magnetar.storage.entry_cache import EntryCache
    from magnetar.storage.interfaces import AppendDone, Clock, Scheduler, Timer
    from magnetar.storage.read_turns import ReadTurns
    from magnetar.storage.slab import Slab

__all__ = ["AppendPath"]

_CONFIRM_AFTER_S = 1.0


class AppendPath:
    """The queue of appends before the journal. Loop only.

    ``on_confirmed`` gets the write-behind jobs of each batch, and the seconds that the batch's frames took.
    """

    def __init__(
        self,
        journal: Journal,
        pool: SegmentPool,
        threads: Threads,
        scheduler: Scheduler,
        health: Health,
        cache: EntryCache,
        on_confirmed: Callable[[list[UnwrittenSlab], float], None],
        *,
        max_batch_bytes: int,
        clock: Clock,
        turns: ReadTurns,
        frame_writer: FrameWriter | None = None,
        poll: Poll | None = None,
        is_busy: bool = False,
    ) -> None:
        self._journal, self._pool, self._scheduler = journal, pool, scheduler
        self._health, self._cache, self._on_confirmed = health, cache, on_confirmed
        self._lane: Lane[Append] = (
            threads.lane("journal", journal.write_batch, self._complete, max_batch_bytes)
            if frame_writer is None
            else CommitLane(
                journal,
                frame_writer,
                threads,
                self._complete,
                max_batch_bytes,
                clock=clock,
                turns=turns,
                poll=poll,
                is_busy=is_busy,
            )
        )
        self._helper = threads.lane("journal-prepare", self._prepare, self._prepared)
        self._preparing = False
        self._resuming = False
        """RESUME is in the lane: the journal refuses appends until RESUME is done."""
        self._no_spare_for = -1
        self._on_renewed: list[Callable[[], None]] = []
        """To be called behind the next RENEW."""
        self.held: deque[Append] | None = None
        """Appends that wait for write-behind; None while none has to."""
        self._confirm_timer: Timer | None = None
        self._confirmed_at = -1
        self._closing = False
        self._late: list[Append] | None = None
        """Appends that came while ``close`` ended the lane; None before and behind that time."""
        self._closed = False
        self.last_sequence = journal.next_sequence - 1
        """The sequence of the last frame whose appends were completed."""
        self.entries = self.bytes = self.frames = self.frame_bytes = self.batches = 0
        self.sync_seconds = Histogram()

    def submit(self, ledger: LedgerState, slab: Slab, done: AppendDone, error: StorageError | None) -> None:
        """Queue one append behind all others. An append with ``error`` is not written: it fails in its turn."""
        ledger.pushed = slab.last_entry_id
        ledger.pending += 1
        item = Append(ledger, slab, done, error or self._health.problem)
        if self.held is not None:
            self.held.append(item)
        elif self._late is not None:
            self._late.append(item)
        elif self._closed:
            asyncio.get_running_loop().call_soon(self._refuse, [item])
        else:
            self._lane.submit(item, slab.size_bytes)

    def hold(self) -> None:
        """Keep appends back until ``release``, because write-behind has too many bytes in memory."""
        if self.held is None and not self._closing:
            self.held = deque()

    def release(self, error: StorageError | None = None) -> None:
        """End ``hold``. With ``error`` the appends that were kept back fail with it, each in its turn."""
        held, self.held = self.held, None
        for item in held or ():
            failing = item if error is None or item.error is not None else item._replace(error=error)
            self._lane.submit(failing, item.slab.size_bytes if item.slab else 0)

    def renew(self, done: Callable[[], None]) -> None:
        """Let the journal leave a lost segment, and call ``done`` behind that. A closing journal, all of whose appends
        have their answers, does neither.
        """
        if not self._closing:
            self._on_renewed.append(done)
            self._lane.submit(RENEW)

    async def wait_idle(self, ledger: LedgerState) -> None:
        """Wait until every append of the ledger has its answer."""
        if ledger.pending:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ledger.idle_waiters.append(future)
            await future

    def try_resume(self) -> None:
        """After ``health.full``, let the lane take appends again when a segment is free, or prepare a segment first."""
        if self._preparing or self._resuming:
            return
        if self._journal.has_free_segment():
            self._resuming = True
            self._lane.submit(RESUME)
        else:
            self._preparing = True
            self._helper.submit(SpareOrder(self._pool.grown(0), in_haste=False))

    async def close(self) -> None:
        """Finish pending appends, confirm the last frame, stop the threads. The journal's files stay open: write-behind
        may need them. Later appends fail, each in its turn.
        """
        self.release()
        await self._lane.wait_idle()
        self._closing = True
        self.release()
        self._late = []
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
            self._lane.submit(CONFIRM)
        await self._lane.close()
        await self._helper.close()
        late, self._late, self._closed = self._late, None, True
        self._refuse(late)

    def _refuse(self, late: list[Append]) -> None:
        closed = StorageClosedError("the store is closed")
        self._answer(late, {index: item.error or closed for index, item in enumerate(late)})

    def _complete(self, batch: list[Append], result: BatchResult | None, error: BaseException | None) -> None:
        if result is None:
            failure = StorageFailedError(f"journal: {error!r}")
            failure.__cause__ = error
            errors: dict[int, StorageError] | None = dict.fromkeys(range(len(batch)), failure)
            self._health.fail(failure)
        else:
            errors = result.errors
            self.batches += 1
            self.frames += result.frames
            self.frame_bytes += result.bytes_written
            if result.frames:
                self.sync_seconds.observe(result.seconds)
            if self._resuming or result.refusal is not None:
                self._note_state(batch, result.refusal)
        jobs: list[UnwrittenSlab] = []
        for index, item in enumerate(batch):
            if item.slab is None or item.ledger is None or item.done is None:
                continue
            failed = errors.get(index) if errors else None
            if failed is None:
                assert result is not None
                jobs.append(item.ledger.confirm(item.slab, result.places[index]))
                self._cache.put(item.slab)
                self.entries += item.slab.count
                self.bytes += item.slab.size_bytes
        # Answers go out first, because callers wait for them. ``last_sequence`` grows last: a checkpoint counts a frame
        # only when write-behind has the frame's slabs.
        self._answer(batch, errors)
        if jobs:
            self._on_confirmed(jobs, result.seconds if result is not None else 0.0)
        if result is not None:
            self.last_sequence = result.last_sequence
            if self._on_renewed and any(item is RENEW for item in batch):
                waiting, self._on_renewed = self._on_renewed, []
                for renewed in waiting:
                    renewed()
        if jobs and self._confirm_timer is None:
            self._arm_confirm()
        if not self._preparing:
            self._order_spare()

    def _answer(self, batch: list[Append], errors: dict[int, StorageError] | None) -> None:
        for index, item in enumerate(batch):
            ledger, done = item.ledger, item.done
            if ledger is None or done is None:
                continue
            failed = errors.get(index) if errors else None
            ledger.pending -= 1
            if not ledger.pending:
                if failed is not None:
                    ledger.pushed = ledger.last_confirmed
                waiters, ledger.idle_waiters = ledger.idle_waiters, []
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
            try:
                done(failed)
            except Exception as error:  # noqa: BLE001 - the callback's bug must not cost others their answer
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"callback of an append to ledger {ledger.ledger_id} failed", "exception": error}
                )

    def _note_state(self, batch: list[Append], refusal: StorageError | None) -> None:
        """Set the health after a batch. A batch before RESUME may report a refusal that RESUME ends, so only the batch
        with RESUME ends the full state.
        """
        is_over = self._resuming and any(item is RESUME for item in batch)
        if is_over:
            self._resuming = False
        if refusal is None:
            if is_over:
                self._health.set_full(None)
        elif isinstance(refusal, StorageFailedError):
            self._health.fail(refusal)
        elif isinstance(refusal, StorageFullError):
            self._health.set_full(refusal)

    def _prepare(self, orders: list[SpareOrder]) -> list[Segment]:
        return [self._pool.prepare(order.size_bytes, in_haste=order.in_haste) for order in orders]

    def _prepared(self, orders: list[SpareOrder], segments: list[Segment] | None, error: BaseException | None) -> None:  # noqa: ARG002 - the lane's form
        self._preparing = False
        if segments is not None:
            self._pool.spares.extend(segments)
            if "journal" in self._health.full_sources and not self._resuming:
                self._resuming = True
                self._lane.submit(RESUME)
        elif isinstance(error, OSError) and error.errno in SPACE_ERRORS:
            # Appends fail only when the journal itself has no room; until then the engine needs no spare.
            self._no_spare_for = self._journal.generation
        else:
            self._health.fail(StorageFailedError(f"journal segment: {error!r}"))

    def _order_spare(self) -> None:
        """Order the segment that the journal wants, unless the engine has a problem or an order for the segment in use
        found no space. The caller makes sure that no segment is being prepared.
        """
        if self._health.problem or self._no_spare_for == self._journal.generation:
            return
        if order := self._journal.wants_spare():
            self._preparing = True
            self._helper.submit(order)

    def _arm_confirm(self) -> None:
        if self._confirm_timer is None and not self._closing:
            self._confirmed_at = self.last_sequence
            self._confirm_timer = self._scheduler.call_later(_CONFIRM_AFTER_S, self._confirm)

    def _confirm(self) -> None:
        """Write an empty frame that confirms the last frame, when no frame was completed since the timer began.

        The journal keeps room for the empty frame, so a full disk does not prevent the write. A failed journal writes
        nothing.
        """
        self._confirm_timer = None
        if self._closing:
            return
        if self.last_sequence != self._confirmed_at:
            self._arm_confirm()
        else:
            self._lane.submit(CONFIRM)
