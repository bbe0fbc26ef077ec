"""The bucket based index of delayed messages (Apache Pulsar's PIP-195), shared by all subscriptions of a topic.

::

    publish --> mutable bucket --seal--> immutable buckets (ledgers) --merge--> fewer of them
                     |                        |
                     +------- firing ---------+---> views of the subscriptions ---> dispatch
    pending bitmaps: entries that cursors skip

This file is the shell: timers, loads of segments, recovery, background work. `firing.py` handles entries,
`bucket_keeper.py` buckets. See docs/features/delayed-delivery.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

import structlog
from pyroaring import BitMap

from magnetar.delayed.bucket_keeper import BucketKeeper
from magnetar.delayed.bucket_merge import decoded
from magnetar.delayed.bucket_recovery import recover_bucket, scan_log
from magnetar.delayed.bucket_view import BucketDelayView
from magnetar.delayed.catalogue import Catalogue, CatalogueRecord
from magnetar.delayed.delay_settings import LONGEST_WAIT_S
from magnetar.delayed.errors import CatalogueConflictError, CatalogueError, OldSnapshotError, SnapshotError
from magnetar.delayed.firing import Firing
from magnetar.delayed.index_stats import DelayIndexStats
from magnetar.delayed.position_ranges import PositionRanges
from magnetar.delayed.snapshot_store import SnapshotStore
from magnetar.delayed.sorted_run import AFTER_ALL
from magnetar.storage.errors import ManagedLedgerFencedError, StorageClosedError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from magnetar.delayed.catalogue import BucketRecord
    from magnetar.delayed.delay_ports import DelayCursor, DelayEnvironment, Log
    from magnetar.delayed.delay_settings import BucketSettings, DelayPolicy
    from magnetar.delayed.immutable_bucket import ImmutableBucket
    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.interfaces import Timer
    from magnetar.storage.position import Position

__all__ = ["BucketDelayIndex"]

log = structlog.get_logger(__name__)
_LOOK_EVERY_S = 30.0
_RECOVERED = asyncio.Event()  # of all indexes without stored buckets: an event takes 800 bytes
_RECOVERED.set()


class BucketDelayIndex:
    """The delayed index of one topic. Call `open` first; `close` or `delete` last."""

    def __init__(
        self, topic: str, log_: Log, policy: DelayPolicy, settings: BucketSettings, environment: DelayEnvironment
    ) -> None:
        self._topic, self._log, self._settings, self._environment = topic, log_, settings, environment
        self._firing = Firing(policy, environment.now_ms, settings.slice_indexes, environment.shelf)
        stores = SnapshotStore(environment.ledgers, topic), Catalogue(log_, topic)
        self._keeper = BucketKeeper(self._firing, stores, log_, settings, environment)
        self._keeper.on_damage = self._damaged
        self._keeper.on_changed = self._fire_soon
        self._tasks: set[asyncio.Task[object]] = set()
        self._worker: asyncio.Task[object] | None = None
        self._recovered = asyncio.Event()
        self._closed = False
        self._scans: tuple[tuple[Position, Position, bool], ...] = ()
        self._scanning = False
        self._retry_ms = settings.retry_initial_ms
        self._timer: Timer | None = None
        self._armed_ms = AFTER_ALL
        self._fire_timer: Timer | None = None
        self._work_timer: Timer | None = None
        self._look_timer: Timer | None = None
        self._patience_timer: Timer | None = None

    # --- its life ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the catalogue; buckets come into service in the background. Raises StorageError."""
        keeper, end = self._keeper, self._log.last_confirmed
        try:
            record = await keeper.catalogue.load()
        except CatalogueError as error:
            log.error("delayed_index.catalogue_damaged", topic=self._topic, error=str(error))  # noqa: TRY400 - one line
            record = None
            keeper.dirty = True
        if self._firing.policy.active:
            keeper.set_live(live=True)
        if record is None:
            self._recovered = _RECOVERED
            return
        for ledger_id, bitmap in record.cancelled.items():
            self._firing.cancelled.update(int(ledger_id), BitMap.deserialize(bitmap))
        if record.buckets:
            self._firing.recovering = True
            patience_s = self._settings.recovery_patience_ms / 1000
            self._patience_timer = self._environment.call_later(patience_s, self._served)
        self._spawn(self._recover(record, end), "delayed_index.recover")

    def _served(self) -> None:
        """End the pause of dispatch that waits for buckets to come into service."""
        firing = self._firing
        if firing.recovering:
            firing.recovering = False
            for view in list(firing.views.values()):
                view.wake()

    async def close(self) -> None:
        """Store all pending indexes, durable on return. If the store refuses, the next load finds them in the log."""
        if self._closed:
            return
        keeper, firing, recovered = self._keeper, self._firing, self._recovered.is_set()
        await self._stop()
        if recovered and keeper.owner and (firing.mutable.growing or keeper.catalogue.exists):
            try:
                keeper.forget_trimmed()
                for first, last, _ in self._scans:  # cut off; the index counts the last entry of the load as covered
                    keeper.covered = keeper.covered.without(first, last)
                if firing.mutable.growing or keeper.coverage() != keeper.stored_coverage or keeper.dirty:
                    await keeper.seal()
                while firing.mutable.growing:
                    await keeper.seal()
            except (StorageError, CatalogueConflictError) as error:
                log.warning("delayed_index.not_saved", topic=self._topic, error=str(error))
        firing.views.clear()
        firing.pending.clear()
        keeper.forget_callbacks()

    async def delete(self) -> None:
        """Remove all data of the topic's index from the stores. Raises StorageError: the caller may repeat the call,
        unless another owner has the log, whose index keeps all of its ledgers.
        """
        await self._stop()
        try:
            with contextlib.suppress(CatalogueError):
                record = await self._keeper.catalogue.load()
                for bucket in record.buckets if record is not None else ():
                    self._keeper.doomed.add(bucket.ledger_id)
                self._keeper.doomed.update(record.doomed if record is not None else ())
            await self._keeper.delete_all()
        except CatalogueConflictError as error:
            raise ManagedLedgerFencedError(self._topic, "delayed index") from error
        self._firing.views.clear()
        self._firing.pending.clear()
        self._keeper.forget_callbacks()

    async def _stop(self) -> None:
        self._closed = True
        for timer in (self._timer, self._fire_timer, self._work_timer, self._look_timer, self._patience_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._fire_timer = self._work_timer = self._look_timer = None
        if self._worker is not None:
            await asyncio.wait({self._worker})
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._recovered.set()  # for cancellations that wait
        await self._keeper.wait_saved()

    # --- calls of the topic --------------------------------------------------------------------------------------

    def view(self, name: str, cursor: DelayCursor, wake: Callable[[], None]) -> BucketDelayView:
        """Return the view of a subscription; the index calls `wake` when entries become due."""
        view = self._firing.views[name] = BucketDelayView(self._firing, cursor, wake, self._settings.ready_limit)
        view.on_held = self._held
        return view

    def remove_view(self, name: str) -> None:
        self._firing.views.pop(name, None)

    def published(self, run: EntryRun, pieces: Iterable[tuple[int, int, int, int]]) -> None:
        """Index stored entries. Precondition: no dispatcher has read the entries, or each that did holds them back."""
        if self._firing.published(run, pieces):
            self._held()

    def _held(self) -> None:
        """Schedule the work and the timer after new entries began to wait."""
        keeper, working = self._keeper, self._worker or self._work_timer
        if not keeper.catalogue.exists:
            keeper.dirty = True
        if not working and (keeper.dirty or self._firing.mutable.growing >= self._settings.min_index_count):
            self._work_soon()
        self._arm()

    def set_policy(self, policy: DelayPolicy) -> None:
        """Follow changed policies; when delays are switched off, all entries are due."""
        firing = self._firing
        if policy == firing.policy:
            return
        before, firing.policy = firing.policy, policy
        if before.active != policy.active:
            self._keeper.set_live(live=policy.active)
            self._work_soon()
        self._disarm()
        self._fire_soon()

    def clock_moved(self) -> None:
        """Fire due entries at once after the wall clock jumped."""
        self._disarm()
        self._fire_soon()

    # --- firing --------------------------------------------------------------------------------------------------

    def _fire_soon(self) -> None:
        if self._fire_timer is None and not self._closed:
            self._fire_timer = self._environment.call_later(0, self._fire)

    def _fire(self) -> None:
        """Fire one piece of the due entries, then give other tasks their turn."""
        self._fire_timer = None
        if self._closed:
            return
        firing = self._firing
        was_behind, more = firing.behind, firing.fire()
        self._load_wanted()
        if more or was_behind:
            for view in list(firing.views.values()):
                view.wake()
        if more:
            self._fire_soon()
        elif self._keeper.has_work:
            self._work_soon()
        self._arm()

    def _arm(self) -> None:
        """Set the timer of `_fire` to the time when the next index is due or the next segment should be loaded."""
        if self._closed or self._fire_timer is not None:
            return
        firing, settings = self._firing, self._settings
        wanted_ms = firing.next_time()
        if wanted_ms != AFTER_ALL:
            wanted_ms = wanted_ms if firing.policy.active else 0  # exact; entries due within a tick fire too
        for bucket in firing.buckets:
            if bucket.waits_for_load and bucket.loading < 0 and not bucket.resting:
                wanted_ms = min(
                    wanted_ms, bucket.next_time - settings.prefetch_ms - firing.early_ms if firing.policy.active else 0
                )
        if wanted_ms >= AFTER_ALL:
            self._disarm()
            return
        if self._timer is not None and self._armed_ms <= wanted_ms:
            return
        self._disarm()
        self._armed_ms = wanted_ms
        wait_ms = max(wanted_ms - self._environment.now_ms(), settings.min_fire_interval_ms)
        self._timer = self._environment.call_later(min(wait_ms / 1000, LONGEST_WAIT_S), self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_ms = None, AFTER_ALL

    def _on_timer(self) -> None:
        self._timer, self._armed_ms = None, AFTER_ALL
        self._fire()

    def _load_wanted(self) -> None:
        firing = self._firing
        horizon = firing.cutoff() + self._settings.prefetch_ms if firing.policy.active else AFTER_ALL
        for bucket in firing.buckets:
            segment = -1 if bucket.resting else bucket.wanted_segment(horizon)
            if segment >= 0:
                bucket.loading = segment
                self._spawn(self._load(bucket, segment), "delayed_index.load")

    async def _load(self, bucket: ImmutableBucket, segment: int) -> None:
        """Read one segment of a bucket in service."""
        counters, started, ledger_id = self._firing.counters, self._environment.now_ms(), bucket.record.ledger_id
        try:
            (data,) = await self._keeper.store.read(ledger_id, segment, segment)
            columns = decoded(data, bucket.directory, segment, ledger_id)
        except SnapshotError as error:
            counters.ended("load", 0, failed=True)
            self._damaged(bucket, error)
        except StorageError as error:
            counters.ended("load", 0, failed=True)
            log.warning("delayed_index.load_failed", topic=self._topic, ledger_id=ledger_id, error=str(error))
            self._rest(bucket)
        else:
            counters.ended("load", self._environment.now_ms() - started)
            if not bucket.gone:
                bucket.loaded(segment, columns)
        finally:
            bucket.loading = -1
        self._fire_soon()

    def _rest(self, bucket: ImmutableBucket) -> None:
        """Try to read this bucket again later, because the store does not answer."""
        bucket.resting = True

        def again() -> None:
            bucket.resting = False
            self._fire_soon()

        self._environment.call_later(self._settings.retry_initial_ms / 1000, again)

    # --- background ----------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[object]:
        task = self._environment.spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _work_soon(self) -> None:
        """Schedule the keeper's search for work in a later turn, so that the index has the whole burst of a publish."""
        if self._worker is None and self._work_timer is None and not self._closed:
            self._work_timer = self._environment.call_later(0, self._start_work)

    def _start_work(self) -> None:
        self._work_timer = None
        if self._worker is None and not self._closed and self._keeper.owner and self._recovered.is_set():
            self._worker = self._environment.spawn(self._work(), "delayed_index.work")

    async def _work(self) -> None:
        try:
            while not self._closed and await self._keeper.step():
                pass
            self._retry_ms = self._settings.retry_initial_ms
        except StorageError as error:
            log.warning("delayed_index.work_failed", topic=self._topic, error=str(error), retry_ms=self._retry_ms)
            if not self._closed:
                self._work_timer = self._environment.call_later(self._retry_ms / 1000, self._start_work)
            self._retry_ms = min(self._retry_ms * 2, self._settings.retry_max_ms)
        except CatalogueConflictError:
            log.error("delayed_index.not_the_owner", topic=self._topic)  # noqa: TRY400 - one line
        finally:
            self._worker = None
            self._look_later()

    def _look_later(self) -> None:
        """Schedule the next periodic search for work: trimming and the growth of the log cause no call."""
        if self._look_timer is None and not self._closed:

            def look() -> None:
                self._look_timer = None
                self._work_soon()

            self._look_timer = self._environment.call_later(_LOOK_EVERY_S, look)

    async def _recover(self, record: CatalogueRecord, end: Position) -> None:
        """Bring the catalogue's buckets into service, then examine the entries up to ``end`` that no bucket covers."""
        firing, keeper = self._firing, self._keeper
        lost: list[BucketRecord] = []
        for bucket in record.buckets:
            try:
                await self._retrying(partial(recover_bucket, bucket, firing, keeper.store, self._environment.off_loop))
            except OldSnapshotError as error:
                log.info("delayed_index.snapshot_outdated", topic=self._topic, reason=str(error))
                lost.append(bucket)
            except SnapshotError as error:
                log.error("delayed_index.snapshot_lost", topic=self._topic, error=str(error))  # noqa: TRY400 - one line
                lost.append(bucket)
            self._fire_soon()
        firing.counters.rebuilds += len(lost)
        firing.counters.collected += len(record.doomed)
        keeper.restored(record, lost)
        self._recovered.set()
        self._served()
        self._work_soon()
        if not firing.policy.active:
            keeper.set_live(live=False)
            return
        gaps = keeper.stored_coverage.gaps_up_to(end)  # also those of scans that an earlier close has cut off
        for first, last in PositionRanges((*(bucket.range for bucket in lost), *gaps)).ranges:
            self._scan_later(first, last, repair=False)

    async def _retrying(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Repeat the work until the store answers; a SnapshotError passes to the caller."""
        wait_ms = self._settings.retry_initial_ms
        while True:
            try:
                await work()
            except StorageError as error:
                log.warning("delayed_index.read_failed", topic=self._topic, error=str(error), retry_ms=wait_ms)
                await self._pause(wait_ms)
                wait_ms = min(wait_ms * 2, self._settings.retry_max_ms)
            else:
                return

    async def _pause(self, wait_ms: int) -> None:
        over = asyncio.Event()
        timer = self._environment.call_later(wait_ms / 1000, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def _damaged(self, bucket: ImmutableBucket, error: SnapshotError) -> None:
        """Replace an unreadable bucket: scan its part of the log again. Other buckets stay in service."""
        if bucket.gone:
            return
        log.error("delayed_index.bucket_lost", topic=self._topic, error=str(error))
        firing, keeper = self._firing, self._keeper
        bucket.gone = True
        firing.buckets = [b for b in firing.buckets if b is not bucket]
        firing.counters.rebuilds += 1
        keeper.doomed.add(bucket.record.ledger_id)
        keeper.uncover(*bucket.record.range)
        self._scan_later(*bucket.record.range, repair=True)
        self._work_soon()

    def _scan_later(self, first: Position, last: Position, *, repair: bool) -> None:
        self._scans = (*self._scans, (first, last, repair))
        if not self._scanning and not self._closed:
            self._scanning = True
            self._spawn(self._scan_all(), "delayed_index.scan")

    async def _scan_all(self) -> None:
        try:
            while self._scans:
                first, last, repair = self._scans[0]
                await self._retrying(partial(scan_log, self._log, first, last, self._firing, repair=repair))
                self._scans = self._scans[1:]
                if self._keeper.live_from is not None:
                    self._keeper.covered = self._keeper.covered.with_range(first, last)
                self._held()
                self._fire_soon()
        finally:
            self._scanning = False

    # --- for operators -------------------------------------------------------------------------------------------

    async def cancel(self, position: Position) -> bool:
        """Cancel the delivery of this entry; durable on return. False when it is not waiting. Raises StorageError."""
        firing, keeper = self._firing, self._keeper
        await self._recovered.wait()
        if self._closed:
            raise StorageClosedError("the index of delayed messages is closed")
        if position not in firing.cancelled:
            if position not in firing.pending:
                return False
            await keeper.save(cancel=position)
            if position not in firing.pending and position not in firing.cancelled:
                keeper.dirty = True  # the entry fired meanwhile
                self._work_soon()
                return False
            firing.cancelled.add(*position)
            firing.pending.discard(*position)
        for view in list(firing.views.values()):  # also when repeated: a crash may have taken the acknowledgements
            view.cursor.ack_many((position,))
        for view in list(firing.views.values()):
            await view.cursor.flush()
        return True

    @property
    def earliest_ms(self) -> int | None:
        """The time when the next message is due; None when no message waits."""
        return self._firing.earliest

    @property
    def latest_ms(self) -> int | None:
        """The latest deliver_at of the mutable bucket and the buckets in service; None when no message waits."""
        return self._firing.latest

    @property
    def pending_count(self) -> int:
        return len(self._firing.pending)

    @property
    def memory_bytes(self) -> int:
        return self._firing.memory_bytes

    def contains(self, position: Position) -> bool:
        """Whether the entry is waiting (Pulsar's containsMessage)."""
        return position in self._firing.pending

    def stats(self) -> DelayIndexStats:
        """Return the current figures."""
        firing, keeper = self._firing, self._keeper
        return DelayIndexStats(
            bucket_total=len(firing.buckets) + 1,
            loaded=firing.loaded,
            snapshot_size_bytes=sum(b.record.size_bytes for b in firing.buckets),
            memory_bytes=firing.memory_bytes,
            pending=len(firing.pending),
            earliest_ms=firing.earliest,
            latest_ms=firing.latest,
            cancelled=len(firing.cancelled),
            covered=repr(keeper.coverage()),
            coverage_gap_entries=keeper.gap_entries,
            fired=firing.counters.fired,
            lateness_counts=firing.counters.lateness,
            lateness_sum_ms=firing.counters.lateness_sum_ms,
            rebuilds=firing.counters.rebuilds,
            collected=firing.counters.collected,
            spills=firing.counters.spills,
            shelved=firing.pending.shelved,
            operations=firing.counters.operations(),
        )
