"""The embedded engine: wiring, start and stop. ``open_embedded`` is the door.

Who does what: the loop owns all state; the journal's thread writes and syncs frames (``journal.py``), the
write-behind thread
fills ledger files (``writeback.py``), the checkpoint thread syncs them (``checkpoints.py``), a helper prepares
journal segments, a small pool reads, one thread owns SQLite.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.append_path import AppendPath
from magnetar.storage.checkpoints import Checkpointer
from magnetar.storage.clock import SystemClock
from magnetar.storage.embedded_ledgers import EmbeddedLedgerStore
from magnetar.storage.engine_settings import EngineSettings
from magnetar.storage.engine_stats import EngineStats, collect_stats
from magnetar.storage.entry_cache import EntryCache
from magnetar.storage.files import FileSystem, RealFiles
from magnetar.storage.health import Health
from magnetar.storage.journal import Journal
from magnetar.storage.journal_segments import Segment, SegmentPool
from magnetar.storage.lanes import RealThreads
from magnetar.storage.layout import Layout
from magnetar.storage.ledger_catalog import LedgerCatalog
from magnetar.storage.ledger_files import LedgerFiles
from magnetar.storage.read_path import ReadPath
from magnetar.storage.recovery import Recovered, Recovery
from magnetar.storage.space_probe import SpaceProbe
from magnetar.storage.sqlite_metadata import SqliteMetadataStore
from magnetar.storage.store_directory import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import Clock, LedgerStore, MetadataStore, Scheduler
    from magnetar.storage.lanes import Threads
    from magnetar.storage.recovery import RecoveryReport

__all__ = ["EmbeddedStorage", "EngineEnvironment", "EngineSettings", "open_embedded"]

_log = structlog.get_logger()


@dataclass(slots=True)
class EngineEnvironment:
    """What the engine touches of the world. Tests give a simulated disk, inline threads, a clock moved by hand."""

    files: FileSystem
    clock: Clock
    threads: Threads
    scheduler: Scheduler
    entropy: Callable[[int], bytes] = os.urandom
    metadata: MetadataStore | None = None
    """None: SQLite in the data directory. One given is not closed by the engine."""

    @classmethod
    def real(cls) -> EngineEnvironment:
        """Of this process and its running loop."""
        return cls(RealFiles(), SystemClock(), RealThreads(), asyncio.get_running_loop())


class EmbeddedStorage:
    """An open data directory. Built by ``open_embedded``."""

    def __init__(
        self,
        ledgers: EmbeddedLedgerStore,
        metadata: MetadataStore,
        cache: EntryCache,
        health: Health,
        recovery: RecoveryReport,
        parts: _Parts,
    ) -> None:
        self.ledgers: LedgerStore = ledgers
        self.metadata = metadata
        self.cache = cache
        self.health = health
        """``health.failed``, ``health.full``, ``on_failure``, ``on_change``."""
        self.recovery = recovery
        """What the start found."""
        self._ledgers, self._parts = ledgers, parts
        self._closed = False

    def stats(self) -> EngineStats:
        """Counters since start and present sizes, for metrics."""
        parts = self._parts
        return collect_stats(
            parts.appends, parts.checkpointer, parts.reads, self.cache, parts.ledger_files, self._ledgers, self.health
        )

    async def checkpoint(self) -> None:
        """Sync ledger files now, so that the journal can be used again."""
        await self._parts.checkpointer.wait()

    async def close(self) -> None:
        """Finish pending appends, write everything behind, leave an empty journal. Idempotent.

        After a failure nothing more is written: the next start recovers from the journal.
        """
        if self._closed:
            return
        self._closed = True
        await self._ledgers.close()
        await self._parts.close(self.health)
        _log.info(events.STORE_CLOSED, failed=self.health.failed is not None)


@dataclass(slots=True)
class _Parts:
    """What has to be closed, in this order."""

    appends: AppendPath
    checkpointer: Checkpointer
    reads: ReadPath
    ledger_files: LedgerFiles
    journal: Journal
    probe: SpaceProbe
    own_metadata: MetadataStore | None
    release_lock: Callable[[], None]
    close_pool: Callable[[], object]

    async def close(self, health: Health) -> None:
        self.probe.close()
        await self.appends.close()
        await self.checkpointer.close(self.journal.generation if health.problem is None else None)
        closing = self.close_pool()
        if asyncio.iscoroutine(closing):
            await closing
        self.ledger_files.close()
        if self.own_metadata is not None:
            await self.own_metadata.close()
        self.release_lock()


async def open_embedded(
    data_dir: str, settings: EngineSettings | None = None, environment: EngineEnvironment | None = None
) -> EmbeddedStorage:
    """Open (or make) the store in ``data_dir``; recovery is complete on return.

    Raises StoreLockedError, StoreMismatchError, UnsupportedFormatError, DamagedFileError (metadata), OSError.
    """
    settings = settings or EngineSettings()
    env = environment or EngineEnvironment.real()
    layout = Layout(data_dir)
    env.files.make_dir(data_dir)
    release_lock = env.files.lock(layout.lock)
    own_metadata: SqliteMetadataStore | None = None
    try:
        if env.metadata is None:
            own_metadata = await SqliteMetadataStore.open(layout.metadata, env.threads)
        return await _open_locked(layout, settings, env, own_metadata, release_lock)
    except BaseException:
        if own_metadata is not None:
            await own_metadata.close()
        release_lock()
        raise


async def _open_locked(
    layout: Layout,
    settings: EngineSettings,
    env: EngineEnvironment,
    own_metadata: SqliteMetadataStore | None,
    release_lock: Callable[[], None],
) -> EmbeddedStorage:
    metadata = env.metadata or own_metadata
    assert metadata is not None
    store_id, damage = await open_store(env.files, layout, metadata, env.entropy, env.clock)
    catalog = LedgerCatalog(metadata)
    known = set(await catalog.ids())
    ledger_files = LedgerFiles(env.files, layout, store_id, env.clock, settings.max_open_files)
    for ledger_id in await catalog.half_deleted():
        if ledger_id not in known:
            ledger_files.remove(ledger_id)
            ledger_files.sync_names()
            await catalog.end_delete(ledger_id)
    recovery = Recovery(env.files, layout, store_id, ledger_files, known, env.clock, settings.max_record_bytes)
    recovered = recovery.run()
    if damage is not None:
        recovered.report.damaged_files.append(damage)
    _log_recovery(layout, recovered)
    return _assemble(layout, settings, env, store_id, catalog, ledger_files, recovered, own_metadata, release_lock)


def _assemble(
    layout: Layout,
    settings: EngineSettings,
    env: EngineEnvironment,
    store_id: bytes,
    catalog: LedgerCatalog,
    ledger_files: LedgerFiles,
    recovered: Recovered,
    own_metadata: SqliteMetadataStore | None,
    release_lock: Callable[[], None],
) -> EmbeddedStorage:
    health = Health()
    cache = EntryCache(settings.cache_bytes)
    pool = _segment_pool(layout, settings, env, store_id, recovered)
    journal = Journal(
        pool,
        store_id,
        env.clock,
        env.entropy,
        next_sequence=recovered.checkpoint.next_sequence,
        next_generation=recovered.checkpoint.free_generation + 1,
        max_frame_bytes=settings.journal_max_frame_bytes,
    )
    checkpointer = Checkpointer(
        env.files,
        layout,
        store_id,
        ledger_files,
        env.threads,
        env.scheduler,
        env.clock,
        health,
        recovered.checkpoint,
        checkpoint_bytes=settings.checkpoint_bytes,
        interval_s=settings.checkpoint_interval_s,
        max_unwritten_bytes=settings.max_unwritten_bytes,
        gather_bytes=settings.write_behind_bytes,
    )
    appends = AppendPath(
        journal,
        pool,
        env.threads,
        env.scheduler,
        health,
        cache,
        checkpointer.write,
        max_batch_bytes=settings.journal_max_frame_bytes,
    )
    checkpointer.wire(appends, journal)
    read_pool = env.threads.pool("read", settings.read_threads)
    reads = ReadPath(
        ledger_files,
        cache,
        read_pool,
        checkpointer.touch,
        piece_bytes=settings.read_piece_bytes,
        max_record_bytes=settings.max_record_bytes,
    )
    ledgers = EmbeddedLedgerStore(
        catalog,
        appends,
        reads,
        checkpointer,
        cache,
        ledger_files,
        recovered,
        max_record_bytes=settings.max_record_bytes,
    )
    probe = SpaceProbe(health, env.scheduler, appends, checkpointer, settings.full_probe_s)
    parts = _Parts(
        appends, checkpointer, reads, ledger_files, journal, probe, own_metadata, release_lock, read_pool.close
    )
    metadata = env.metadata or own_metadata
    assert metadata is not None
    return EmbeddedStorage(ledgers, metadata, cache, health, recovered.report, parts)


def _segment_pool(
    layout: Layout, settings: EngineSettings, env: EngineEnvironment, store_id: bytes, recovered: Recovered
) -> SegmentPool:
    """All segments are free after recovery: the largest are used again, those too many removed."""
    pool = SegmentPool(
        env.files,
        layout,
        store_id,
        first_bytes=settings.journal_first_segment_bytes,
        segment_bytes=settings.journal_segment_bytes,
        next_segment_id=recovered.next_segment_id,
    )
    keep = settings.checkpoint_bytes // settings.journal_segment_bytes + 2
    by_size = sorted(recovered.segments, key=lambda segment: -segment[1])
    for segment_id, size_bytes in by_size[:keep]:
        pool.spares.append(Segment(segment_id, env.files.open(layout.segment(segment_id)), size_bytes))
    for segment_id, _ in by_size[keep:]:
        env.files.remove(layout.segment(segment_id))
    return pool


def _log_recovery(layout: Layout, recovered: Recovered) -> None:
    report = recovered.report
    _log.info(
        events.STORE_OPENED,
        path=layout.root,
        frames=report.frames,
        entries=report.entries,
        torn_frame=report.torn_frame,
        duration_ms=round(report.duration_s * 1000),
    )
    for error in report.damaged_files:
        _log.error(events.DAMAGE_FOUND, path=error.path, offset=error.offset, detail=error.detail)
    for position in report.damaged_entries:
        _log.error(events.ENTRY_LOST, ledger_id=position.ledger_id, entry_id=position.entry_id)
    for first, last in report.missing_frames:
        _log.error(events.FRAMES_MISSING, first=first, last=last)
    for path in report.set_aside:
        _log.warning(events.FILE_SET_ASIDE, path=path)
