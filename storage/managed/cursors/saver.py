"""Decides when to save a durable cursor: once a second, after a number of acks, or at once for a waiting caller; one
save at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import ManagedLedgerFencedError, StorageClosedError, StorageError

if TYPE_CHECKING:
    from magnetar.storage.interfaces import Scheduler, Timer
    from magnetar.storage.managed.background import Background
    from magnetar.storage.managed.cursors.ack_state import AckState
    from magnetar.storage.managed.cursors.store import CursorStore
    from magnetar.storage.managed.log_counters import LogCounters
    from magnetar.storage.position import Position

__all__ = ["CursorSaver"]

log = structlog.get_logger(__name__)


class CursorSaver:
    """Saves the changes of one cursor. Callers that wait while a save runs share the next save."""

    def __init__(
        self,
        store: CursorStore,
        acks: AckState,
        properties: dict[str, int],
        scheduler: Scheduler,
        background: Background,
        counters: LogCounters,
    ) -> None:
        self._store = store
        self._acks = acks
        self.properties = properties
        """The present properties of the mark-delete position; saved with it."""
        self._scheduler = scheduler
        self._background = background
        self._counters = counters
        self._unsaved = 0
        self._saving = 0
        """The changes that the save under way stores."""
        self._timer: Timer | None = None
        self._running = False
        self._waiters: list[asyncio.Future[None]] = []
        self._lock = asyncio.Lock()
        self._closed = False
        self.saved_mark_delete = acks.mark_delete
        """The stored state has this mark-delete position or a newer one."""

    @property
    def is_dirty(self) -> bool:
        """Whether a crash now may lose changes."""
        return self._unsaved + self._saving > 0

    @property
    def stored_at(self) -> Position:
        return self._store.stored_at

    def changed(self, acks: int = 1) -> None:
        """Count ``acks`` unsaved acknowledgements; start a save, or the timer of the next save."""
        self._unsaved += acks
        if self._running or self._closed:
            return
        if self._unsaved >= self._store.config.cursor_save_acks:
            self._start()
        elif self._timer is None:
            self._arm()

    async def flush(self) -> None:
        """Make all changes so far durable before return. Raises the StorageError of the save."""
        if not self._unsaved and not self._running:
            return
        if self._closed:
            raise StorageClosedError("cursor is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if not self._running:
            self._start()
        await waiter

    async def set_cursor_properties(self, cursor_properties: dict[str, str]) -> None:
        async with self._lock:
            await self._store.set_cursor_properties(cursor_properties)

    async def close(self, *, save: bool = True) -> None:
        """Save the cursor a last time, in the form that the next opening reads fastest; without ``save`` only end."""
        self.stop()
        async with self._lock:
            if not save:
                return
            await self._store.close(self._acks, self._present_properties, dirty=self.is_dirty)
            self._unsaved = 0

    async def delete(self) -> None:
        """Delete the stored cursor, durable on return. When the store fails, the saver continues to save changes, and
        saves the cursor once more: its record may be gone.
        """
        self.stop()
        async with self._lock:
            try:
                await self._store.delete()
            except StorageError as error:
                self._closed = False
                self._unsaved += not isinstance(error, ManagedLedgerFencedError)
                self._settle()
                raise
            self._unsaved = 0

    def stop(self) -> None:
        """Cancel the timer; start no further saves."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _present_properties(self) -> dict[str, int]:
        return self.properties

    def _arm(self) -> None:
        self._timer = self._scheduler.call_later(self._store.config.cursor_save_interval_ms / 1000, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._running:
            self._running = True
            self._background.start(self._run(), "save cursor")

    async def _run(self) -> None:
        try:
            async with self._lock:
                while self._unsaved and await self._save():
                    if not self._waiters and self._unsaved < self._store.config.cursor_save_acks:
                        break
        finally:
            self._running = False
        self._settle()

    async def _save(self) -> bool:
        """Save once; return False, after failing the waiters, when the save failed."""
        waiters, self._waiters = self._waiters, []
        self._saving, self._unsaved = self._unsaved, 0
        saved, failure = False, StorageError("the save was interrupted")
        mark_delete = self._acks.mark_delete
        self._counters.mark_deletes += 1
        try:
            await self._store.write(self._acks, self._present_properties)
            saved, self.saved_mark_delete = True, mark_delete
        except StorageError as error:
            failure = error
        finally:  # after any failure (a bug too) the changes count as unsaved
            saving, self._saving = self._saving, 0
            if not saved:
                self._unsaved += saving
                self._acks.needs_snapshot()
                self._failed(waiters, failure)
        if not saved:
            return False
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return True

    def _settle(self) -> None:
        """Release every remaining waiter after the last save of a series."""
        if not self._unsaved:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        elif self._waiters:
            self._start()
        elif self._timer is None and not self._closed:
            self._arm()

    def _failed(self, waiters: list[asyncio.Future[None]], error: StorageError) -> None:
        log.warning(events.CURSOR_SAVE_FAILED, error=str(error))
        waiters, self._waiters = waiters + self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
