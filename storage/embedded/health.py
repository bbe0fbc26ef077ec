"""The state of the store: running, full (appends fail until there is space), failed (appends fail until a restart)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.errors import StorageError, StorageFailedError, StorageFullError

__all__ = ["Health"]


class Health:
    """State of the engine, with callbacks. Loop only."""

    def __init__(self) -> None:
        self.failed: StorageFailedError | None = None
        """Set once a write or fsync failed: the process should end (exit code 74) and be started anew."""
        self.full_sources: dict[str, StorageFullError] = {}
        self.full: StorageFullError | None = None
        """Set while there is no space left."""
        self.problem: StorageError | None = None
        """The error of appends at the moment; None when the engine takes appends."""
        self._on_failure: list[Callable[[StorageFailedError], None]] = []
        self._on_change: list[Callable[[], None]] = []

    def on_failure(self, callback: Callable[[StorageFailedError], None]) -> None:
        """Call back once when the store fails; at once if the store has failed already."""
        if self.failed is not None:
            callback(self.failed)
        else:
            self._on_failure.append(callback)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever the state changes (full, running again, failed)."""
        self._on_change.append(callback)

    def fail(self, error: StorageFailedError) -> None:
        """Note the failure; only the first failure counts."""
        if self.failed is None:
            self.failed = self.problem = error
            waiting, self._on_failure = self._on_failure, []
            for callback in waiting:
                callback(error)
            self._changed()

    def set_full(self, error: StorageFullError | None, source: str = "journal") -> None:
        """Note that ``source``, a part of the engine (journal, write-behind, checkpoint, disk-usage), has no space;
        None: the part has space again.
        """
        before = self.full
        if error is None:
            self.full_sources.pop(source, None)
        else:
            self.full_sources[source] = error
        self.full = next(iter(self.full_sources.values()), None)
        self.problem = self.failed or self.full
        if (before is None) != (self.full is None):
            self._changed()

    def _changed(self) -> None:
        for callback in self._on_change:
            callback()
