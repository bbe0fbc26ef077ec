"""Write-behind and checkpoints, the loop's side: when journal frames may be forgotten.

A checkpoint: note the last completed frame S and how far each touched ledger is; wait until write-behind has passed
that point; in the checkpoint thread seal the closed ledgers (index and footer), sync every touched ledger file and the
folder, replace the checkpoint file. Only then segments with frames up to S may be used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.checkpoint_file import Checkpoint, write_checkpoint
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.ledger_format import encode_index
from magnetar.storage.embedded.write_behind import WriteBehind
from magnetar.storage.embedded.writeback import SPACE_ERRORS, Barrier, Remove, WriteBack
from magnetar.storage.errors import StorageFailedError, StorageFullError
from magnetar.storage.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.append_path import AppendPath
    from magnetar.storage.embedded.files import FileSystem
    from magnetar.storage.embedded.health import Health
    from magnetar.storage.embedded.journal.writer import Journal
    from magnetar.storage.embedded.lanes import Threads
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.ledger_index import LedgerIndex
    from magnetar.storage.embedded.ledger_state import LedgerState
    from magnetar.storage.embedded.writeback import Job, WriteBackResult, WriteSlab
    from magnetar.storage.interfaces import Clock, Scheduler, Timer

__all__ = ["CheckpointPlan", "Checkpointer", "Touched"]


class Touched(NamedTuple):
    """A ledger as a checkpoint takes it."""

    ledger: LedgerState
    entries: int
    length_bytes: int
    seal: LedgerIndex | None
    """Closed: write index and footer."""


class CheckpointPlan(NamedTuple):
    """The work of the checkpoint thread."""

    sequence: int
    touched: list[Touched]
    checkpoint: Checkpoint


class Checkpointer:
    """Loop only, except ``_work``."""

    def __init__(
        self,
        files: FileSystem,
        layout: Layout,
        store_id: bytes,
        ledger_files: LedgerFiles,
        threads: Threads,
        scheduler: Scheduler,
        clock: Clock,
        health: Health,
        last: Checkpoint,
        *,
        checkpoint_bytes: int,
        interval_s: float,
        max_unwritten_bytes: int,
        gather_bytes: int,
        relaxed_bytes: int,
        metadata_sequence: Callable[[], int],
    ) -> None:
        self._files, self._layout, self._store_id = files, layout, store_id
        self._ledger_files, self._scheduler, self._clock, self._health = ledger_files, scheduler, clock, health
        self._checkpoint_bytes, self._interval_s = checkpoint_bytes, interval_s
        self._max_unwritten_bytes = max_unwritten_bytes
        self._write_behind = WriteBehind(
            threads,
            scheduler,
            clock,
            WriteBack(ledger_files),
            self._written,
            gather_bytes=gather_bytes,
            relaxed_bytes=relaxed_bytes,
        )
        self._lane = threads.lane("checkpoint", self._work, self._finished)
        self._metadata_sequence = metadata_sequence
        self._number = last.number
        self._free_generation = last.free_generation
        self._synced = dict(last.synced)
        self._touched: dict[int, LedgerState] = {}
        self._plan: CheckpointPlan | None = None
        self._syncing = False
        """The plan is in the checkpoint thread."""
        self._again = False
        self._closing = False
        self._bytes = 0
        self._timer: Timer | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self.checkpoints = 0
        self.seconds = Histogram()
        self._started_s = 0.0
        self._appends: AppendPath | None = None
        self._journal: Journal | None = None

    def wire(self, appends: AppendPath, journal: Journal) -> None:
        """Set the served parts: appends wait when too much is unwritten, the journal learns which segments to reuse."""
        self._appends, self._journal = appends, journal

    @property
    def unwritten_bytes(self) -> int:
        """Confirmed and not yet in ledger files."""
        return self._write_behind.unwritten_bytes

    def write(self, jobs: list[WriteSlab], frame_seconds: float) -> None:
        """Confirmed slabs of a frame, to be written behind."""
        touched, size = self._touched, 0
        for ledger, slab, _ in jobs:
            touched[ledger.ledger_id] = ledger
            size += slab.size_bytes
        self._bytes += size
        behind = self._write_behind
        behind.write(jobs, frame_seconds)
        if behind.unwritten_bytes > self._max_unwritten_bytes and self._appends is not None:
            self._appends.hold()
        if self._bytes >= self._checkpoint_bytes:
            self.start()
        elif self._timer is None:
            self._timer = self._scheduler.call_later(self._interval_s, self._on_timer)

    def touch(self, ledger: LedgerState) -> None:
        """The ledger was closed, or its index was made again: the next checkpoint seals its file."""
        self._touched[ledger.ledger_id] = ledger
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._interval_s, self._on_timer)

    def remove(self, ledger: LedgerState, done: Callable[[OSError | None], None]) -> None:
        """The ledger is deleted in the metadata: forget it, remove its file."""
        self._touched.pop(ledger.ledger_id, None)
        self._synced.pop(ledger.ledger_id, None)
        self._write_behind.put(Remove(ledger.ledger_id, done))
        self._write_behind.press()

    def nudge(self) -> None:
        """There may be space again."""
        self._write_behind.put(None)

    def start(self) -> None:
        """Begin a checkpoint; while a checkpoint is under way, the next checkpoint begins right after it."""
        if self._plan is not None:
            self._again = True
            return
        if self._health.failed is not None:
            return
        self._bytes = 0
        touched, self._touched = self._touched, {}
        ledgers = [
            Touched(led, led.last_confirmed + 1, led.length_bytes, led.index if led.closed else None)
            for led in touched.values()
        ]
        for item in ledgers:
            if item.ledger.closed:
                self._synced.pop(item.ledger.ledger_id, None)
            else:
                self._synced[item.ledger.ledger_id] = (item.entries, item.length_bytes)
        assert self._appends is not None
        sequence = self._appends.last_sequence
        self._number += 1
        checkpoint = Checkpoint(
            self._number,
            sequence + 1,
            self._free_generation,
            dict(self._synced),
            metadata_sequence=self._metadata_sequence(),
        )
        self._plan = CheckpointPlan(sequence, ledgers, checkpoint)
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
        """Write everything behind; with ``free_generation`` a last checkpoint says the journal is empty."""
        self._closing = True
        self._write_behind.press()
        if self._timer is not None:
            self._timer.cancel()
        if free_generation is not None and self._health.problem is None:
            while self._plan is not None:
                await self.wait()
            self._free_generation = free_generation
            await self.wait()
        await self._write_behind.close()
        await self._lane.close()

    def _on_timer(self) -> None:
        self._timer = None
        if self._touched:
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
        if result.full is not None:
            self._health.set_full(StorageFullError(f"ledger file: {result.full}"), "write-behind")
            if self._closing:
                self._give_up()
        else:
            self._health.set_full(None, "write-behind")
        if self.unwritten_bytes * 4 <= self._max_unwritten_bytes * 3 and self._appends is not None:
            self._appends.release()

    def _write_back_failed(self, batch: list[Job], error: BaseException | None) -> None:
        """The store writes no more entries: fail every waiter."""
        known = isinstance(error, StorageFailedError)
        self._health.fail(error if known else StorageFailedError(f"write-behind: {error!r}"))  # type: ignore[arg-type]
        for job in batch:
            if isinstance(job, Remove):
                job.done(OSError(errno.EIO, str(error)))
        self._plan = None
        self._wake()

    def _give_up(self) -> None:
        """Drop a plan that waits for space in a closing store: the journal has all entries, the next start writes them.

        The files of the plan still need their sync: a later checkpoint must not take it for done. A plan in the
        checkpoint thread no longer waits for space; it ends by itself.
        """
        plan = self._plan
        if plan is not None and not self._syncing:
            self._plan = None
            self._touch_again(plan)
            self._wake()

    def _touch_again(self, plan: CheckpointPlan) -> None:
        """The checkpoint did not come about."""
        for item in plan.touched:
            if not item.ledger.deleted:
                self._touched.setdefault(item.ledger.ledger_id, item.ledger)

    def _passed(self, plan: CheckpointPlan) -> None:
        if plan is self._plan:  # else it was given up
            self._syncing = True
            self._lane.submit(plan)

    def _work(self, plans: list[CheckpointPlan]) -> None:
        """In the checkpoint thread. OSError with ENOSPC: try again later; StorageFailedError: a sync failed."""
        for plan in plans:
            for item in plan.touched:
                self._seal_and_sync(item)
            try:
                self._ledger_files.sync_names()
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    raise
                raise StorageFailedError(f"fsync of the ledger folder: {error}") from error
            write_checkpoint(self._files, self._layout, self._store_id, plan.checkpoint, self._clock.now_ms())

    def _seal_and_sync(self, item: Touched) -> None:
        ledger_id = item.ledger.ledger_id
        if item.ledger.deleted or not item.entries:
            return
        if item.seal is not None:
            sealed = encode_index(ledger_id, item.entries, item.length_bytes, item.seal)
            # Deleted this instant: its file must not come back.
            with contextlib.suppress(FileNotFoundError):
                offset = FILE_HEADER_BYTES + item.length_bytes
                self._ledger_files.write(ledger_id, [sealed], offset, create=False)
        try:
            self._ledger_files.sync(ledger_id)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise
            raise StorageFailedError(f"fsync of ledger {ledger_id}: {error}") from error

    def _finished(self, plans: list[CheckpointPlan], result: None, error: BaseException | None) -> None:  # noqa: ARG002 - the lane's form
        plan, self._plan, self._syncing = self._plan, None, False
        assert plan is not None
        if error is None:
            self.checkpoints += 1
            self.seconds.observe(self._clock.now_s() - self._started_s)
            self._health.set_full(None, "checkpoint")
            assert self._journal is not None
            self._journal.released_sequence = plan.sequence
        else:
            self._touch_again(plan)
            if isinstance(error, OSError) and error.errno in SPACE_ERRORS:
                self._health.set_full(StorageFullError(f"checkpoint: {error}"), "checkpoint")
            else:
                known = isinstance(error, StorageFailedError)
                self._health.fail(error if known else StorageFailedError(f"checkpoint: {error!r}"))  # type: ignore[arg-type]
        again, self._again = self._again, False
        if again and error is None:
            self.start()
        else:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
