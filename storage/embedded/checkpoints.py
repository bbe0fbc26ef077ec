"""Write-behind and checkpoints on the loop: the checkpointer decides when the journal may reuse segments.

A checkpoint has these steps: note the last completed frame S and the end of each touched ledger; wait until
write-behind has written everything up to there; let the checkpoint thread carry out the plan (``checkpoint_plan.py``).
Only then may the journal reuse segments whose frames are all up to S.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.embedded.lost_entries import log_lost_entries
from magnetar.storage.embedded.writeback import SPACE_ERRORS, Barrier, Remove
from magnetar.storage.errors import StorageFailedError, StorageFullError
from magnetar.storage.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.append_path import AppendPath
    from magnetar.storage.embedded.checkpoint_plan import CheckpointPlan, CheckpointWriter, TouchedLedgers
    from magnetar.storage.embedded.health import Health
    from magnetar.storage.embedded.journal.writer import Journal
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.ledger_state import LedgerState, UnwrittenSlab
    from magnetar.storage.embedded.space_limits import SpaceLimits
    from magnetar.storage.embedded.write_behind import WriteBehind
    from magnetar.storage.embedded.writeback import Job, WriteBackResult
    from magnetar.storage.interfaces import Clock, Scheduler, Timer

__all__ = ["CheckpointDue", "Checkpointer"]

_log = structlog.get_logger()

_RELEASE_PART = 32
"""Appends that wait for write-behind go on when this part of the limit is free: a wider part made each wait longer, a
tenth of a second at a quarter.
"""


class CheckpointDue:
    """When a checkpoint is due. Calls ``on_due`` once at the end of the interval that ``time`` begins; the caller
    compares ``bytes`` with its limit itself.
    """

    def __init__(self, scheduler: Scheduler, interval_s: float) -> None:
        self.on_due: Callable[[], None] = lambda: None
        self.bytes = 0
        """Bytes of slabs confirmed since the last checkpoint began."""
        self.is_timed = False
        self._scheduler, self._interval_s = scheduler, interval_s
        self._timer: Timer | None = None

    def time(self) -> None:
        """Begin the interval, unless the interval already runs."""
        if not self.is_timed:
            self.is_timed = True
            self._timer = self._scheduler.call_later(self._interval_s, self._on_timer)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self.is_timed, self._timer = False, None
        self.on_due()


class Checkpointer:
    """Directs write-behind and checkpoints. Loop only. Call ``wire`` before the first write."""

    def __init__(
        self,
        touched: TouchedLedgers,
        writer: CheckpointWriter,
        write_behind: WriteBehind,
        due: CheckpointDue,
        limits: SpaceLimits,
        threads: Threads,
        clock: Clock,
        health: Health,
    ) -> None:
        self._touched, self._write_behind, self._due, self._limits = touched, write_behind, due, limits
        self._clock, self._health = clock, health
        write_behind.on_written = self._written
        due.on_due = self._start_where_touched
        self._writer = writer
        self._lane = threads.lane("checkpoint", self._work, self._finished)
        self._plan: CheckpointPlan | None = None
        self._syncing = False
        """The plan is in the checkpoint thread."""
        self._again = False
        self._closing = False
        self._waiting: list[asyncio.Future[None]] = []
        self.checkpoints = 0
        self.seconds = Histogram()
        self._started_s = 0.0
        self._appends: AppendPath | None = None
        self._journal: Journal | None = None

    def wire(self, appends: AppendPath, journal: Journal) -> None:
        """Set the parts that the checkpointer controls: it holds appends back while too much is unwritten, and sets the
        journal's ``released_sequence``.
        """
        self._appends, self._journal = appends, journal

    @property
    def unwritten_bytes(self) -> int:
        """Bytes that are confirmed and not yet in ledger files."""
        return self._write_behind.unwritten_bytes

    @property
    def kept_bytes(self) -> int:
        """The unwritten bytes that are in memory."""
        return self._write_behind.kept_bytes

    def write(self, jobs: list[UnwrittenSlab], frame_seconds: float) -> None:
        """Queue the confirmed slabs of a batch for write-behind, and begin a checkpoint when enough bytes were written.

        ``frame_seconds``: the time that the batch's frames took.
        """
        touched, written, size = self._touched.ledgers, self._touched.written, 0
        for job in jobs:
            touched[job.ledger.ledger_id] = job.ledger
            written.add(job.ledger.ledger_id)
            size += job.size_bytes
        behind, due, limits = self._write_behind, self._due, self._limits
        due.bytes += size
        behind.write(jobs, frame_seconds)
        if behind.unwritten_bytes > limits.max_unwritten_bytes and self._health.problem is None:
            assert self._appends is not None
            self._appends.hold()
            behind.flush()
        if due.bytes >= limits.checkpoint_bytes:
            self.start()
        elif not due.is_timed:
            due.time()

    def touch(self, ledger: LedgerState) -> None:
        """Let the next checkpoint seal the file of a ledger that was closed or whose index was made again."""
        self._touched.ledgers[ledger.ledger_id] = ledger
        self._due.time()

    def holds(self, ledger_id: int) -> bool:
        """Whether a checkpoint that is due or under way may seal the file of the ledger, with its state."""
        return self._plan is not None or ledger_id in self._touched.ledgers

    def remove(self, ledger: LedgerState, done: Callable[[OSError | None], None]) -> None:
        """Remove the file of a ledger that the metadata no longer list; ``done`` gets the error, or None."""
        self._touched.forget(ledger.ledger_id)
        self._write_behind.put(Remove(ledger.ledger_id, done))
        self._write_behind.press()

    def catch_up(self) -> None:
        """Begin a checkpoint if entries were confirmed since the last checkpoint began: its end frees segments."""
        if self._due.bytes:
            self.start()

    def nudge(self) -> None:
        """Try again to write the slabs that found no space."""
        self._write_behind.put(None)

    def start(self) -> None:
        """Begin a checkpoint; while a checkpoint is under way, the next checkpoint begins right after it."""
        if self._plan is not None:
            self._again = True
            return
        if self._health.failed is not None:
            return
        self._due.bytes = 0
        assert self._appends is not None
        self._plan = self._touched.plan(self._appends.last_sequence)._replace(in_haste=self._closing)
        self._started_s = self._clock.now_s()
        plan = self._plan
        self._write_behind.put(Barrier(lambda: self._passed(plan)))

    async def wait(self) -> None:
        """Begin a checkpoint and wait for its end. Raises nothing: see ``Health``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.start()
        self._write_behind.press()
        if self._plan is None:
            self._wake()
        await future

    async def close(self, free_generation: int | None) -> None:
        """Write all queued slabs into ledger files and stop the threads.

        With ``free_generation``, the newest generation of the journal, a last checkpoint records that the journal is
        empty. None: the store has a problem, so no last checkpoint is written.
        """
        self._closing = True
        self._write_behind.press()
        self._due.close()
        if free_generation is not None and self._health.problem is None:
            while self._plan is not None:
                await self.wait()
            self._touched.free_generation = free_generation
            await self.wait()
        await self._write_behind.close()
        await self._lane.close()

    def _start_where_touched(self) -> None:
        if self._touched.ledgers:
            self.start()

    def _written(self, batch: list[Job], result: WriteBackResult | None, error: BaseException | None) -> None:
        if result is None:
            self._write_back_failed(batch, error)
            return
        for job in result.finished:
            if isinstance(job, Remove):
                job.done(result.remove_errors.get(job.ledger_id))
            elif isinstance(job, Barrier):
                job.done()
        if (full := result.full or self._limits.shortage) is not None:
            error = StorageFullError(f"ledger file: {full}")
            self._health.set_full(error, "write-behind")
            if self._appends is not None:
                self._appends.release(error)
            if self._closing and result.full is not None:
                self._give_up()
        elif self._health.full is not None:
            self._health.set_full(None, "write-behind")
        if result.lost:
            log_lost_entries(result.lost)
        most = self._limits.max_unwritten_bytes
        if (
            self._appends is not None
            and self._appends.held is not None
            and self._write_behind.unwritten_bytes <= most - most // _RELEASE_PART
        ):
            self._appends.release()

    def _write_back_failed(self, batch: list[Job], error: BaseException | None) -> None:
        """Mark the store as failed, answer pending removals and the appends that wait for write-behind with an error,
        drop a plan that waits for write-behind.
        """
        known = isinstance(error, StorageFailedError)
        self._health.fail(error if known else StorageFailedError(f"write-behind: {error!r}"))  # type: ignore[arg-type]
        if self._appends is not None:
            self._appends.release(self._health.failed)
        for job in batch:
            if isinstance(job, Remove):
                job.done(OSError(errno.EIO, str(error)))
        if not self._syncing:  # a plan in the checkpoint thread ends by itself
            self._plan = None
            self._wake()

    def _give_up(self) -> None:
        """Drop a plan that waits for space in a closing store: the journal has all entries, the next start writes them.

        The files of the plan still need a sync, so a later checkpoint takes their ledgers again. A plan in the
        checkpoint thread no longer waits for write-behind, so it stays and ends by itself.
        """
        plan = self._plan
        if plan is not None and not self._syncing:
            self._plan = None
            self._touched.take_back(plan)
            self._wake()

    def _work(self, plans: list[CheckpointPlan]) -> list[str]:
        """Write the checkpoints, then return the journal's segments that another program has taken, in the checkpoint
        thread.
        """
        self._writer.work(plans)
        assert self._journal is not None
        return self._journal.find_lost()

    def _passed(self, plan: CheckpointPlan) -> None:
        if plan is self._plan:  # else ``_give_up`` dropped the plan
            self._syncing = True
            self._lane.submit(plan)

    def _finished(self, plans: list[CheckpointPlan], lost: list[str] | None, error: BaseException | None) -> None:  # noqa: ARG002 - the lane's form
        plan, self._plan, self._syncing = self._plan, None, False
        assert plan is not None
        if error is None:
            self.checkpoints += 1
            self.seconds.observe(self._clock.now_s() - self._started_s)
            self._health.set_full(None, "checkpoint")
            assert self._journal is not None
            self._journal.released_sequence = plan.sequence
            if lost:
                self._leave(lost)
        else:
            self._touched.take_back(plan)
            if isinstance(error, OSError) and error.errno in SPACE_ERRORS:
                self._health.set_full(StorageFullError(f"checkpoint: {error}"), "checkpoint")
            else:
                known = isinstance(error, StorageFailedError)
                self._health.fail(error if known else StorageFailedError(f"checkpoint: {error!r}"))  # type: ignore[arg-type]
        again, self._again = self._again, False
        if again and error is None:
            self.start()
        if self._plan is None:  # no next checkpoint, or the store has failed meanwhile
            self._wake()

    def _leave(self, segments: list[str]) -> None:
        """Let the journal leave these lost segments, and write their last frames' entries, which a crash would lose,
        into ledger files.
        """
        for path in segments:
            _log.error(events.SEGMENT_LOST, path=path)
        assert self._appends is not None
        self._appends.renew(self.start)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
