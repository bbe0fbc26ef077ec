"""The entry point of the embedded engine: ``open_embedded``.

Threads and their work: the loop owns all state; the frame writer, or the journal's thread, writes and syncs frames
(``journal/``), the write-behind thread fills ledger files (``writeback.py``), the checkpoint thread syncs them
(``checkpoints.py``), a helper prepares journal segments, a small pool reads, one thread owns the metadata and one
writes their snapshots.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.embedded.engine_stats import EngineStats, collect_stats
from magnetar.storage.embedded.environment import EngineEnvironment
from magnetar.storage.embedded.files import NO_DESCRIPTOR
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_catalog import LedgerCatalog, end_of, ledger_path, properties_of
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.lost_entries import log_lost_entries
from magnetar.storage.embedded.metadata.log_writer import LogEnvironment
from magnetar.storage.embedded.metadata.logged_metadata import LoggedMetadataStore
from magnetar.storage.embedded.metadata.opening import keep_format_1, open_metadata
from magnetar.storage.embedded.parts import EngineParts, Foundation, build_parts
from magnetar.storage.embedded.recovery.engine_recovery import Recovered, Recovery
from magnetar.storage.embedded.recovery.frame_replay import KnownLedgers
from magnetar.storage.embedded.store_directory import open_store
from magnetar.storage.embedded.writeback import SPACE_ERRORS
from magnetar.storage.errors import StorageFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.health import Health
    from magnetar.storage.embedded.recovery.recovery_report import RecoveryReport
    from magnetar.storage.entry_cache import EntryCache
    from magnetar.storage.interfaces import LedgerStore, MetadataStore

__all__ = ["EmbeddedStorage", "EngineEnvironment", "EngineSettings", "open_embedded"]

_log = structlog.get_logger()


class EmbeddedStorage:
    """An open data directory. ``open_embedded`` makes it."""

    def __init__(
        self,
        parts: EngineParts,
        metadata: MetadataStore,
        own_metadata: LoggedMetadataStore | None,
        recovery: RecoveryReport,
        release_lock: Callable[[], None],
    ) -> None:
        self.ledgers: LedgerStore = parts.ledgers
        self.metadata = metadata
        self.cache: EntryCache = parts.cache
        self.health: Health = parts.health
        """``health.failed``, ``health.full``, ``on_failure``, ``on_change``."""
        self.recovery = recovery
        """The findings of recovery at the start."""
        self._parts, self._own_metadata, self._release_lock = parts, own_metadata, release_lock
        self._closed = False

    def stats(self) -> EngineStats:
        """Counters since start and present sizes, for metrics."""
        return collect_stats(self._parts)

    async def checkpoint(self) -> None:
        """Write a checkpoint now, so that the journal can reuse its segments. Raises nothing: see ``health``."""
        await self._parts.checkpointer.wait()

    async def close(self) -> None:
        """Finish pending appends, write everything behind, leave an empty journal. Idempotent.

        After a failure ``close`` writes no entry: the next start recovers from the journal.
        """
        if self._closed:
            return
        self._closed = True
        await self._parts.close()
        if self._own_metadata is not None:
            await self._own_metadata.close()
        self._release_lock()
        _log.info(events.STORE_CLOSED, failed=self.health.failed is not None)


async def open_embedded(
    data_dir: str, settings: EngineSettings | None = None, environment: EngineEnvironment | None = None
) -> EmbeddedStorage:
    """Open (or make) the store in ``data_dir``; recovery is complete on return.

    Raises StoreLockedError, StoreMismatchError, UnsupportedFormatError, OSError, MetadataDamagedError (the engine
    serves nothing rather than forget topics), and StorageFullError when the disk has no room for recovery: nothing is
    lost, and the caller may start again once there is space. Too few descriptors are an OSError.
    """
    settings = settings or EngineSettings()
    environment = environment or EngineEnvironment.real()
    layout = Layout(data_dir)
    try:
        return await _open(layout, settings, environment)
    except OSError as error:
        if error.errno not in SPACE_ERRORS or error.errno in NO_DESCRIPTOR:
            raise
        raise StorageFullError(
            f"no space to open the store in {data_dir}: {error}; free some and start again"
        ) from error


async def _open(layout: Layout, settings: EngineSettings, environment: EngineEnvironment) -> EmbeddedStorage:
    environment.files.make_dir(layout.root)
    release_lock = environment.files.lock(layout.lock)
    own_metadata: LoggedMetadataStore | None = None
    try:
        metadata = environment.metadata
        if metadata is None:
            metadata = own_metadata = _open_metadata(layout, settings, environment)
        base = await _recover(layout, settings, environment, metadata, own_metadata)
        parts = build_parts(base)
        if own_metadata is not None:
            own_metadata.on_failure = parts.health.fail
        return EmbeddedStorage(parts, metadata, own_metadata, base.recovered.report, release_lock)
    except BaseException as error:
        # After a cancellation the start does not wait for the disk.
        if own_metadata is not None and isinstance(error, Exception):
            await own_metadata.close()
        release_lock()
        raise


def _open_metadata(layout: Layout, settings: EngineSettings, environment: EngineEnvironment) -> LoggedMetadataStore:
    """Open the engine's own metadata. ``found_damage`` of the result lists the repaired damage."""
    world = LogEnvironment(
        environment.files, layout, environment.clock, environment.entropy, settings.metadata_log_bytes
    )
    loaded = open_metadata(world, environment.read_format_1)
    large = settings.metadata_large_bytes
    return LoggedMetadataStore(world, loaded, environment.threads, environment.scheduler, large)


async def _recover(
    layout: Layout,
    settings: EngineSettings,
    environment: EngineEnvironment,
    metadata: MetadataStore,
    own: LoggedMetadataStore | None,
) -> Foundation:
    files, clock, entropy = environment.files, environment.clock, environment.entropy
    store_id, damage = await open_store(
        files, layout, metadata, lambda: entropy(16) if own is None else own.store_id, clock
    )
    keep_format_1(files, layout)
    catalog = LedgerCatalog(metadata)
    known = set(await catalog.ids())
    ledger_files = LedgerFiles(files, layout, store_id, clock, settings.max_open_files, settings.writeback_lag_bytes)
    half_deleted = await catalog.half_deleted()
    said = KnownLedgers(
        known,
        half_deleted,
        lambda ledger_id: properties_of(own.peek(ledger_path(ledger_id))) if own is not None else {},
        lambda ledger_id: end_of(own.peek(ledger_path(ledger_id))) if own is not None else None,
        0 if own is None else own.last_sequence,
    )
    try:
        recovered = Recovery(files, layout, store_id, ledger_files, said, clock, settings.max_record_bytes).run()
        await _finish_deletions(catalog, half_deleted, known, ledger_files)
    except BaseException:
        ledger_files.close()
        raise
    report = recovered.report
    report.newest_ledger_id = max(known, default=-1)
    catalog.reserve(report.greatest_ledger_id)
    report.damaged_files[:0] = [*(own.found_damage if own is not None else ()), *([damage] if damage else ())]
    _log_recovery(layout, recovered)
    sequence = (
        (lambda: 0) if own is None else partial(getattr, own, "last_sequence")
    )  # cheap, as each frame has the number
    return Foundation(layout, settings, environment, store_id, catalog, ledger_files, recovered, sequence)


async def _finish_deletions(
    catalog: LedgerCatalog, half_deleted: list[int], known: set[int], ledger_files: LedgerFiles
) -> None:
    """Finish deletions that a crash interrupted: the metadata no longer list the ledger, but its file may exist."""
    for ledger_id in half_deleted:
        if ledger_id not in known:
            ledger_files.remove(ledger_id)
            ledger_files.sync_names()
            await catalog.end_delete(ledger_id)


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
    log_lost_entries(report.damaged_entries)
    for first, last in report.missing_frames:
        _log.error(events.FRAMES_MISSING, first=first, last=last)
    for path in report.set_aside:
        _log.warning(events.FILE_SET_ASIDE, path=path)
