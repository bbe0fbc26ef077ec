"""Buckets on the disk: sealing, merging and deleting, one at a time, away from the paths of messages.

Seal     1 freeze the mutable bucket (it stays in service)   2 sort and encode, off the loop
         3 create the ledger, name it doomed   4 write and close it
         5 catalogue: + bucket, coverage, - doomed   6 the bucket takes the frozen chunks' place
Merge    1 create the ledger, name it doomed   2 read the sources (they stay in service), encode and write
         3 close it   4 catalogue: + merged, - sources, sources doomed
         5 the merged bucket takes their place   6 delete their ledgers
Delete   1 out of service   2 catalogue: - bucket, doomed   3 delete the ledger   4 no longer doomed (next record)
The end  1 catalogue: no buckets, all doomed   2 delete the ledgers   3 delete the catalogue

A failure before the step of the catalogue changes nothing; the work is repeated. A crash at any step leaves
at most ledgers named doomed, which the next opening deletes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.delayed.bucket_merge import mergeable, write_merged
from magnetar.delayed.catalogue import BucketRecord, CatalogueRecord
from magnetar.delayed.due_merge import take_due
from magnetar.delayed.errors import CatalogueConflictError, NothingLeftError, SnapshotError
from magnetar.delayed.immutable_bucket import ImmutableBucket
from magnetar.delayed.position_ranges import PositionRanges
from magnetar.delayed.snapshot_format import SnapshotEncoder
from magnetar.delayed.sorted_run import AFTER_ALL
from magnetar.delayed.sorting import WINDOW_INDEXES
from magnetar.storage.errors import ManagedLedgerFencedError, StorageError
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from magnetar.delayed.bucket_merge import Bounds
    from magnetar.delayed.catalogue import Catalogue
    from magnetar.delayed.delay_ports import DelayEnvironment, Log
    from magnetar.delayed.delay_settings import BucketSettings
    from magnetar.delayed.firing import Firing
    from magnetar.delayed.mutable_bucket import Chunk
    from magnetar.delayed.snapshot_format import Directory
    from magnetar.delayed.snapshot_store import SnapshotStore, SnapshotWriter

__all__ = ["BucketKeeper"]

_NONE_DOOMED: frozenset[int] = frozenset()
_NO_RANGES = PositionRanges()


class BucketKeeper:
    """State of one topic's index on the disk."""

    def __init__(
        self,
        firing: Firing,
        stores: tuple[SnapshotStore, Catalogue],
        log: Log,
        settings: BucketSettings,
        environment: DelayEnvironment,
    ) -> None:
        self.store, self.catalogue = stores
        self.environment = environment
        self.covered = _NO_RANGES
        """The ranges in which every delayed entry is indexed, without the entries published from `live_from` on."""
        self.live_from: Position | None = None
        """The index has every delayed entry published from this position on; None while delays are switched off."""
        self.doomed: set[int] = set()
        self.dirty = False
        """Whether the stored catalogue differs from memory."""
        self.owner = True
        """Whether no other index has written the catalogue, and no other owner has the log, as far as is known."""
        self.on_damage: Callable[[ImmutableBucket, SnapshotError], None]
        self.on_changed: Callable[[], None]
        """Called when buckets came into service."""
        self.forget_callbacks()
        self._firing = firing
        self._log = log
        self._settings = settings
        self._stored_doomed = _NONE_DOOMED
        self._stored_coverage = _NO_RANGES
        self._saving = asyncio.Lock()
        """Held from the making of a record until it is stored: each record holds the changes of the record before."""

    # --- coverage ------------------------------------------------------------------------------------------------

    def forget_callbacks(self) -> None:
        """Call no function of the index any more: a closed index then leaves no cycle to the garbage collector."""
        self.on_damage, self.on_changed = _no_damage, _no_change

    def coverage(self) -> PositionRanges:
        """The ranges of the log in which every delayed entry is indexed."""
        if self.live_from is None:
            return self.covered
        return self.covered.with_range(self.live_from, self._log.last_confirmed)

    def uncover(self, first: Position, last: Position) -> None:
        """Remove a range from the coverage, because its part of the index was lost."""
        self.covered = self.coverage().without(first, last)
        if self.live_from is not None:
            self.live_from = self._log.last_confirmed.next()
        self.dirty = True

    def set_live(self, *, live: bool) -> None:
        """Switch the indexing of published entries on or off (off: the index covers no range any more)."""
        if live:
            last = self._log.last_confirmed
            # A scan after a crash starts at `last`. The range does no harm if the index lacks that entry.
            self.covered = self.covered.with_range(last, last)
            self.live_from = last.next()
        else:
            self.live_from, self.covered = None, PositionRanges()
        self.dirty = self.dirty or self.catalogue.exists

    def restored(self, record: CatalogueRecord, lost: Sequence[BucketRecord]) -> None:
        """Take over the catalogue's record, whose buckets are in service except the lost buckets."""
        self.doomed = set(record.doomed) | {bucket.ledger_id for bucket in lost}
        self._stored_doomed = frozenset(record.doomed)
        stored = PositionRanges((Position(a, b), Position(c, d)) for a, b, c, d in record.coverage)
        for bucket in lost:
            stored = stored.without(*bucket.range)
        self._stored_coverage = stored
        self.covered = PositionRanges((*self.covered.ranges, *stored.ranges))
        self.dirty = self.dirty or bool(lost)

    # --- the next piece of work ----------------------------------------------------------------------------------

    async def step(self) -> bool:
        """Do a piece of work; returns whether there was work. Raises StorageError, CatalogueConflictError."""
        firing = self._firing
        self.forget_trimmed()
        if firing.mutable.growing >= self._settings.min_index_count:
            await self.seal()
        elif self.dirty:
            await self.save()  # first: it may be unknown whether the last record was stored
        elif exhausted := [b for b in firing.buckets if b.exhausted and not b.merging]:
            await self.drop(exhausted)
        elif self.doomed & self._stored_doomed:
            await self._delete_doomed()
        elif sources := self._to_merge():
            await self.merge(sources)
        elif self.catalogue.exists and self._uncovered() >= self._settings.uncovered_entries:
            await self.seal()
        else:
            return False
        return True

    def _to_merge(self) -> list[ImmutableBucket]:
        firing = self._firing
        return mergeable(firing.buckets, self._settings, firing.cutoff())

    @property
    def has_work(self) -> bool:
        """Whether firing has left work: a bucket is used up, or buckets are to be merged."""
        return any(bucket.exhausted for bucket in self._firing.buckets) or bool(self._to_merge())

    def _uncovered(self) -> int:
        """The number of entries that a start would have to examine after a crash now, and that the index has."""
        if self.live_from is None:
            return 0
        gaps = PositionRanges(self._stored_coverage.gaps_up_to(self._log.last_confirmed))
        return self._entries_in(gaps.within(self.coverage()))

    @property
    def gap_entries(self) -> int:
        """The number of entries in gaps of the coverage: those that a scan of the log has not reached yet."""
        return self._entries_in(PositionRanges(self.coverage().gaps_up_to(self._log.last_confirmed)))

    def _entries_in(self, ranges: PositionRanges) -> int:
        return sum(self._log.entries_between(first.previous(), last) for first, last in ranges.ranges)

    def forget_trimmed(self) -> None:
        """Drop the indexes of ledgers that no longer exist."""
        first = self._log.first_position
        ledger_id = self._log.last_confirmed.ledger_id if first is None else first.ledger_id
        firing = self._firing
        firing.pending.drop_below(ledger_id)
        if firing.cancelled.drop_below(ledger_id):
            self.dirty = True
        for bucket in firing.buckets:
            if bucket.record.last[0] < ledger_id and not bucket.merging:
                bucket.exhaust()
        self.covered = self.covered.from_ledger(ledger_id)

    # --- seal ----------------------------------------------------------------------------------------------------

    async def seal(self) -> None:
        """Make an immutable bucket from the oldest chunks of the mutable bucket."""
        firing, started = self._firing, self.environment.now_ms()
        chunks = firing.mutable.freeze(self._settings.min_index_count)
        coverage = None if firing.mutable.growing else self.coverage()
        try:
            if chunks:
                await self._seal(chunks, coverage, started)
            else:
                await self.save(coverage=coverage)
        except BaseException:
            firing.mutable.thaw()
            raise

    async def _seal(self, chunks: list[Chunk], coverage: PositionRanges | None, started: int) -> None:
        firing, settings = self._firing, self._settings

        def encode() -> tuple[list[bytes], Directory, Bounds]:
            encoder = SnapshotEncoder(settings.segment_limit, settings.segment_step_ms)
            while (window := take_due(chunks, AFTER_ALL, WINDOW_INDEXES)).rows:
                encoder.add(window)
            return *encoder.finish(), encoder.bounds()

        entries, directory, bounds = await self.environment.off_loop(encode)

        async def write(writer: SnapshotWriter) -> tuple[Directory, Bounds]:
            await writer.append(entries)
            return directory, bounds

        bucket = await self._create(write, "create", started)
        await self.save(add=bucket, coverage=coverage)
        bucket.skip_before(firing.mutable.frozen_time())
        firing.mutable.sealed()
        firing.buckets.append(bucket)
        firing.pending.compact()
        firing.pending.keep_within()
        self.on_changed()

    async def _create(
        self, write: Callable[[SnapshotWriter], Awaitable[tuple[Directory, Bounds]]], operation: str, started: int
    ) -> ImmutableBucket:
        """Store a snapshot; its ledger is doomed until the catalogue names the snapshot as a bucket."""
        counters = self._firing.counters
        try:
            directory, bounds, ledger_id, size = await self._written(write)
        except (StorageError, SnapshotError):
            counters.ended(operation, 0, failed=True)
            raise
        counters.ended(operation, self.environment.now_ms() - started)
        times = directory.first_times[0], directory.last_times[-1]
        record = BucketRecord(
            ledger_id, sum(directory.counts), *bounds, *times, size, directory.entries, directory.bitmap_entries
        )
        return ImmutableBucket(record, directory)

    async def _written(
        self, write: Callable[[SnapshotWriter], Awaitable[tuple[Directory, Bounds]]]
    ) -> tuple[Directory, Bounds, int, int]:
        writer = await self.store.create()
        try:
            self.doomed.add(writer.ledger_id)
            await self.save()
            directory, bounds = await write(writer)
            return directory, bounds, writer.ledger_id, await writer.close()
        except BaseException:
            await writer.abandon()
            raise

    # --- merge ---------------------------------------------------------------------------------------------------

    async def merge(self, sources: list[ImmutableBucket]) -> None:
        """Make one bucket of several."""
        firing, started = self._firing, self.environment.now_ms()
        for source in sources:
            source.merging = True
        try:
            merged = await self._merged(sources, started)
            if merged is None or any(source.gone for source in sources):
                if merged is not None:
                    self.dirty = True
                return
            await self.save(add=merged, without=sources)
        finally:
            for source in sources:
                source.merging = False
        merged.skip_before(min(source.next_time for source in sources))
        firing.buckets = [b for b in firing.buckets if b not in sources] + [merged]
        for source in sources:
            source.gone = True
        self.on_changed()

    async def _merged(self, sources: list[ImmutableBucket], started: int) -> ImmutableBucket | None:
        def write(writer: SnapshotWriter) -> Awaitable[tuple[Directory, Bounds]]:
            return write_merged(writer, sources, self.store, self._settings, self.environment.off_loop)

        try:
            return await self._create(write, "merge", started)
        except NothingLeftError:
            return None
        except SnapshotError as error:
            self.dirty = True
            for source in sources:
                if source.record.ledger_id == error.ledger_id:
                    self.on_damage(source, error)
            return None

    # --- delete --------------------------------------------------------------------------------------------------

    async def drop(self, buckets: Sequence[ImmutableBucket]) -> None:
        """Take buckets out of service and of the catalogue; their ledgers are doomed."""
        firing = self._firing
        firing.buckets = [b for b in firing.buckets if b not in buckets]
        for bucket in buckets:
            bucket.gone = True
            self.doomed.add(bucket.record.ledger_id)
        await self.save()

    async def _delete_doomed(self) -> None:
        """Delete the ledgers that the stored catalogue names as doomed."""
        for ledger_id in sorted(self.doomed & self._stored_doomed):
            started = self.environment.now_ms()
            try:
                await self.store.delete(ledger_id)
            except StorageError:
                self._firing.counters.ended("delete", 0, failed=True)
                raise
            self._firing.counters.ended("delete", self.environment.now_ms() - started)
            self.doomed.discard(ledger_id)
        self.dirty = True

    async def delete_all(self) -> None:
        """Name all ledgers doomed, delete them, then the catalogue: after a failure the next attempt finds the ledgers
        that remain, and another owner of the log finds a catalogue without buckets or all ledgers of its buckets.
        Raises StorageError, CatalogueConflictError.
        """
        doomed = {b.record.ledger_id for b in self._firing.buckets} | self.doomed
        if doomed:
            await self.catalogue.save(self._record([], doomed, _NO_RANGES, None))
        for ledger_id in sorted(doomed):
            await self.store.delete(ledger_id)
        await self.catalogue.delete()

    # --- the catalogue -------------------------------------------------------------------------------------------

    async def save(
        self,
        *,
        add: ImmutableBucket | None = None,
        without: Sequence[ImmutableBucket] = (),
        coverage: PositionRanges | None = None,
        cancel: Position | None = None,
    ) -> None:
        """Store the catalogue with the buckets in service after this step, and ``cancel`` as cancelled; durable on
        return.

        ``coverage``: None keeps the stored ranges, unless they shrank.
        """
        async with self._saving:
            await self._save(add, without, coverage, cancel)

    async def wait_saved(self) -> None:
        """Return when the saves that were called before have ended: a save behind the end of the index would make the
        catalogue of the next index outdated.
        """
        async with self._saving:
            pass

    async def _save(
        self,
        add: ImmutableBucket | None,
        without: Sequence[ImmutableBucket],
        coverage: PositionRanges | None,
        cancel: Position | None,
    ) -> None:
        buckets = [b.record for b in self._firing.buckets if b not in without]
        doomed = self.doomed | {b.record.ledger_id for b in without}
        if add is not None:
            buckets.append(add.record)
            doomed.discard(add.record.ledger_id)
        if coverage is None:
            coverage = self._still_covered()
        self.dirty = False
        try:
            await self.catalogue.save(self._record(buckets, doomed, coverage, cancel))
        except (CatalogueConflictError, ManagedLedgerFencedError):
            self.owner = False
            raise
        except BaseException:
            self.dirty = True
            raise
        self._stored_doomed, self._stored_coverage = frozenset(doomed), coverage
        self.doomed = (self.doomed | doomed) - ({add.record.ledger_id} if add is not None else set())
        self.dirty = self.dirty or bool(self.doomed - doomed)

    def _still_covered(self) -> PositionRanges:
        """The positions that the stored buckets cover: the stored coverage without the ranges lost since.

        The stored buckets do not cover entries of the mutable bucket; while that is empty, the present coverage counts.
        """
        now = self.coverage()
        if not len(self._firing.mutable):
            return now
        return self._stored_coverage.within(now) or PositionRanges(_starts(now))

    def _record(
        self, buckets: list[BucketRecord], doomed: set[int], coverage: PositionRanges, cancel: Position | None
    ) -> CatalogueRecord:
        cancelled = self._firing.cancelled
        bitmaps = {ledger_id: BitMap(cancelled.of(ledger_id)) for ledger_id in cancelled.ledgers()}
        if cancel is not None:
            bitmaps.setdefault(cancel.ledger_id, BitMap()).add(cancel.entry_id)
        return CatalogueRecord(
            buckets=tuple(buckets),
            coverage=tuple((*first, *last) for first, last in coverage.ranges),
            doomed=tuple(sorted(doomed)),
            cancelled={str(ledger_id): bitmap.serialize() for ledger_id, bitmap in bitmaps.items()},
        )

    @property
    def stored_coverage(self) -> PositionRanges:
        return self._stored_coverage


def _starts(ranges: PositionRanges) -> list[tuple[Position, Position]]:
    """Return the first position as a range: after a crash the scan of the log starts there."""
    return [(first, first) for first, _ in ranges.ranges[:1]]


def _no_damage(_bucket: ImmutableBucket, _error: SnapshotError) -> None:
    """Do nothing."""


def _no_change() -> None:
    """Do nothing."""
