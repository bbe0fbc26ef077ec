"""The parts of a running engine: how they are put together, and in which order they stop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from magnetar.storage.embedded.append_path import AppendPath
from magnetar.storage.embedded.checkpoint_plan import CheckpointWriter, TouchedLedgers
from magnetar.storage.embedded.checkpoints import CheckpointDue, Checkpointer
from magnetar.storage.embedded.cold_reads import ColdReads
from magnetar.storage.embedded.disk_usage import DiskUsageWatch
from magnetar.storage.embedded.health import Health
from magnetar.storage.embedded.journal.segments import Segment, SegmentPool
from magnetar.storage.embedded.journal.writer import Journal
from magnetar.storage.embedded.ledger_store import EmbeddedLedgerStore
from magnetar.storage.embedded.read_path import ReadPath
from magnetar.storage.embedded.space_limits import SpaceLimits
from magnetar.storage.embedded.space_probe import SpaceProbe
from magnetar.storage.embedded.write_behind import WriteBehind
from magnetar.storage.embedded.writeback import WriteBack
from magnetar.storage.entry_cache import EntryCache
from magnetar.storage.errors import StorageFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.engine_settings import EngineSettings
    from magnetar.storage.embedded.environment import EngineEnvironment
    from magnetar.storage.embedded.lanes import Pool
    from magnetar.storage.embedded.layout import Layout
    from magnetar.storage.embedded.ledger_catalog import LedgerCatalog
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.recovery.engine_recovery import Recovered

__all__ = ["EngineParts", "Foundation", "build_parts"]


@dataclass(frozen=True, slots=True)
class Foundation:
    """The facts known once recovery is complete."""

    layout: Layout
    settings: EngineSettings
    environment: EngineEnvironment
    store_id: bytes
    catalog: LedgerCatalog
    ledger_files: LedgerFiles
    recovered: Recovered
    metadata_sequence: Callable[[], int]
    """Returns the sequence of the last durable change of the metadata; any thread may call it."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """A running engine."""

    health: Health
    cache: EntryCache
    journal: Journal
    checkpointer: Checkpointer
    appends: AppendPath
    read_pool: Pool
    reads: ReadPath
    ledgers: EmbeddedLedgerStore
    probe: SpaceProbe
    ledger_files: LedgerFiles
    disk_usage: DiskUsageWatch | None
    """None where the engine takes appends as long as the disk has any room."""

    async def close(self) -> None:
        """Finish appends, then write-behind and the last checkpoint, then close the files."""
        await self.ledgers.close()
        self.probe.close()
        if self.disk_usage is not None:
            await self.disk_usage.close()
        await self.appends.close()
        await self.checkpointer.close(self.journal.generation if self.health.problem is None else None)
        await self.reads.close()
        await self.read_pool.close()
        if self.health.problem is not None and (lost := self.journal.find_lost()):
            # No last checkpoint: the next start needs the journal for the entries that found no space.
            self.health.fail(StorageFailedError(f"another program has removed, replaced or cut {', '.join(lost)}"))
        self.journal.close()
        self.ledger_files.close()


def build_parts(base: Foundation) -> EngineParts:
    """Build the parts of the engine and connect them. Each lane starts its thread with its first item."""
    environment, settings = base.environment, base.settings
    health = Health()
    cache = EntryCache(settings.cache_bytes)
    limits = _space_limits(base)
    cold = ColdReads()
    checkpointer = _checkpointer(base, health, limits, cold)
    limits.waiting_bytes = lambda: checkpointer.unwritten_bytes
    cache.protected_bytes = lambda: checkpointer.kept_bytes
    pool = _segment_pool(base, limits)
    journal = _journal(base, pool)
    appends = AppendPath(
        journal,
        pool,
        environment.threads,
        environment.scheduler,
        health,
        cache,
        checkpointer.write,
        max_batch_bytes=settings.journal_max_frame_bytes,
        clock=environment.clock,
        turns=environment.turns,
        frame_writer=environment.frame_writer(),
        poll=environment.poll(),
        is_busy=settings.busy_polling,
    )
    checkpointer.wire(appends, journal)
    read_pool = environment.threads.pool("read", settings.read_threads)
    reads = ReadPath(
        base.ledger_files,
        cache,
        read_pool,
        checkpointer.touch,
        cold,
        environment.clock,
        environment.direct_reader(),
        piece_bytes=settings.read_piece_bytes,
        max_record_bytes=settings.max_record_bytes,
    )
    ledgers = EmbeddedLedgerStore(
        base.catalog,
        appends,
        reads,
        checkpointer,
        cache,
        base.ledger_files,
        base.recovered,
        store_id=base.store_id,
        max_record_bytes=settings.max_record_bytes,
    )
    probe = SpaceProbe(health, environment.scheduler, appends, checkpointer, settings.full_probe_s)
    disk_usage = None
    if settings.watches_disk_usage or settings.disk_usage_warn_threshold < 1:
        disk_usage = DiskUsageWatch(
            health, environment.files, base.layout.root, environment.scheduler, environment.threads, settings
        )
    return EngineParts(
        health, cache, journal, checkpointer, appends, read_pool, reads, ledgers, probe, base.ledger_files, disk_usage
    )


def _space_limits(base: Foundation) -> SpaceLimits:
    settings = base.settings
    return SpaceLimits(
        partial(base.environment.files.free_bytes, base.layout.root),
        held_off_bytes=settings.max_unwritten_bytes * 5 // 8,
        max_unwritten_bytes=settings.max_unwritten_bytes,
        checkpoint_bytes=settings.checkpoint_bytes,
        reserve_bytes=2 * settings.journal_max_frame_bytes,
    )


def _segment_pool(base: Foundation, limits: SpaceLimits) -> SegmentPool:
    """Make the pool after recovery, when all segments are free: the pool keeps the largest segments, as many as an
    ordinary load needs, and the other segments are removed.
    """
    files, layout, settings = base.environment.files, base.layout, base.settings
    pool = SegmentPool(
        files,
        layout,
        base.store_id,
        first_bytes=settings.journal_first_segment_bytes,
        segment_bytes=settings.journal_segment_bytes,
        zeroed_bytes=settings.journal_zeroed_bytes,
        next_segment_id=base.recovered.next_segment_id,
        limits=limits,
    )
    keep = max(2, settings.checkpoint_bytes // settings.journal_segment_bytes // 2)
    by_size = sorted(base.recovered.segments, key=lambda segment: -segment[1])
    for segment_id, size_bytes in by_size[:keep]:
        pool.spares.append(Segment(segment_id, files.open(layout.segment(segment_id)), size_bytes))
    for segment_id, _ in by_size[keep:]:
        files.remove(layout.segment(segment_id))
    return pool


def _journal(base: Foundation, pool: SegmentPool) -> Journal:
    checkpoint = base.recovered.checkpoint
    return Journal(
        pool,
        base.store_id,
        base.environment.clock,
        base.environment.entropy,
        next_sequence=checkpoint.next_sequence,
        next_generation=checkpoint.free_generation + 1,
        max_frame_bytes=base.settings.journal_max_frame_bytes,
        metadata_sequence=base.metadata_sequence,
    )


def _checkpointer(base: Foundation, health: Health, limits: SpaceLimits, cold: ColdReads) -> Checkpointer:
    environment, settings = base.environment, base.settings
    behind = WriteBehind(
        environment.threads,
        environment.scheduler,
        environment.clock,
        WriteBack(base.ledger_files, limits.measure),
        limits,
        cold,
        gather_bytes=settings.write_behind_bytes,
        # The limit holds for a large cache, too: above ``max_unwritten_bytes`` appends wait, and pauses of write-behind
        # would make that wait longer.
        relaxed_bytes=max(min(settings.cache_bytes // 4, settings.max_unwritten_bytes * 3 // 4), 1),
        kept_bytes=settings.unwritten_memory_bytes,
    )
    return Checkpointer(
        TouchedLedgers(base.recovered.checkpoint, base.metadata_sequence),
        CheckpointWriter(
            environment.files,
            base.layout,
            base.store_id,
            base.ledger_files,
            environment.clock,
            environment.threads,
        ),
        behind,
        CheckpointDue(environment.scheduler, settings.checkpoint_interval_s),
        limits,
        environment.threads,
        environment.clock,
        health,
    )
