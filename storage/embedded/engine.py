"""The embedded engine's door: ``open_embedded``.

Who does what: the loop owns all state; the journal's thread writes and syncs frames (``journal.py``), the write-behind
thread fills ledger files (``writeback.py``), the checkpoint thread syncs them (``checkpoints.py``), a helper prepares
journal segments, a small pool reads, one thread owns SQLite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.embedded.environment import EngineEnvironment
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_catalog import LedgerCatalog
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.metadata.sqlite_metadata import SqliteMetadataStore
from magnetar.storage.embedded.parts import EngineParts, Foundation, build_parts
from magnetar.storage.embedded.recovery.engine_recovery import Recovered, Recovery
from magnetar.storage.embedded.stats import EngineStats, collect_stats
from magnetar.storage.embedded.store_directory import open_store
from magnetar.storage.embedded.writeback import SPACE_ERRORS
from magnetar.storage.errors import StorageFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.entry_cache import EntryCache
    from magnetar.storage.embedded.health import Health
    from magnetar.storage.embedded.recovery.engine_recovery import RecoveryReport
    from magnetar.storage.interfaces import LedgerStore, MetadataStore

__all__ = ["EmbeddedStorage", "EngineEnvironment", "EngineSettings", "open_embedded"]

_log = structlog.get_logger()


class EmbeddedStorage:
    """An open data directory. Made by ``open_embedded``."""

    def __init__(
        self,
        parts: EngineParts,
        metadata: MetadataStore,
        own_metadata: SqliteMetadataStore | None,
        recovery: RecoveryReport,
        release_lock: Callable[[], None],
    ) -> None:
        self.ledgers: LedgerStore = parts.ledgers
        self.metadata = metadata
        self.cache: EntryCache = parts.cache
        self.health: Health = parts.health
        """``health.failed``, ``health.full``, ``on_failure``, ``on_change``."""
        self.recovery = recovery
        """What the start found."""
        self._parts, self._own_metadata, self._release_lock = parts, own_metadata, release_lock
        self._closed = False

    def stats(self) -> EngineStats:
        """Counters since start and present sizes, for metrics."""
        return collect_stats(self._parts)

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
        await self._parts.close()
        if self._own_metadata is not None:
            await self._own_metadata.close()
        self._release_lock()
        _log.info(events.STORE_CLOSED, failed=self.health.failed is not None)


async def open_embedded(
    data_dir: str, settings: EngineSettings | None = None, environment: EngineEnvironment | None = None
) -> EmbeddedStorage:
    """Open (or make) the store in ``data_dir``; recovery is complete on return.

    Raises StoreLockedError, StoreMismatchError, UnsupportedFormatError, DamagedFileError (metadata), OSError,
    StorageFullError when there is no room to recover: nothing is lost, start again once there is space.
    """
    settings = settings or EngineSettings()
    environment = environment or EngineEnvironment.real()
    layout = Layout(data_dir)
    try:
        return await _open(layout, settings, environment)
    except OSError as error:
        if error.errno not in SPACE_ERRORS:
            raise
        raise StorageFullError(
            f"no space to open the store in {data_dir}: {error}; free some and start again"
        ) from error


async def _open(layout: Layout, settings: EngineSettings, environment: EngineEnvironment) -> EmbeddedStorage:
    environment.files.make_dir(layout.root)
    release_lock = environment.files.lock(layout.lock)
    own_metadata: SqliteMetadataStore | None = None
    try:
        metadata = environment.metadata
        if metadata is None:
            metadata = own_metadata = await SqliteMetadataStore.open(layout.metadata, environment.threads)
        base = await _recover(layout, settings, environment, metadata)
        parts = build_parts(base)
        if own_metadata is not None:
            own_metadata.on_failure = parts.health.fail
        return EmbeddedStorage(parts, metadata, own_metadata, base.recovered.report, release_lock)
    except BaseException:
        if own_metadata is not None:
            await own_metadata.close()
        release_lock()
        raise


async def _recover(
    layout: Layout, settings: EngineSettings, environment: EngineEnvironment, metadata: MetadataStore
) -> Foundation:
    files, clock = environment.files, environment.clock
    store_id, damage = await open_store(files, layout, metadata, environment.entropy, clock)
    catalog = LedgerCatalog(metadata)
    known = set(await catalog.ids())
    ledger_files = LedgerFiles(files, layout, store_id, clock, settings.max_open_files, settings.writeback_lag_bytes)
    try:
        await _finish_deletions(catalog, known, ledger_files)
        recovered = Recovery(files, layout, store_id, ledger_files, known, clock, settings.max_record_bytes).run()
    except BaseException:
        ledger_files.close()
        raise
    recovered.report.newest_ledger_id = max(known, default=-1)
    if damage is not None:
        recovered.report.damaged_files.append(damage)
    _log_recovery(layout, recovered)
    return Foundation(layout, settings, environment, store_id, catalog, ledger_files, recovered)


async def _finish_deletions(catalog: LedgerCatalog, known: set[int], ledger_files: LedgerFiles) -> None:
    """Ledgers whose deletion a crash interrupted: gone from the metadata, their files perhaps not yet."""
    for ledger_id in await catalog.half_deleted():
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
    for position in report.damaged_entries:
        _log.error(events.ENTRY_LOST, ledger_id=position.ledger_id, entry_id=position.entry_id)
    for first, last in report.missing_frames:
        _log.error(events.FRAMES_MISSING, first=first, last=last)
    for path in report.set_aside:
        _log.warning(events.FILE_SET_ASIDE, path=path)
