"""Errors of the delayed room. None of them reaches a client: a broken index costs time, never a message.

::

    DelayedError
    +-- SnapshotError            a bucket's snapshot cannot be used: missing, damaged, of another format version
    |   +-- OldSnapshotError     an earlier version of the broker wrote it
    +-- CatalogueError           the record of the buckets does not decode
    +-- CatalogueConflictError   another owner has replaced that record: this index is no longer the owner
"""

from __future__ import annotations

__all__ = [
    "CatalogueConflictError",
    "CatalogueError",
    "DelayedError",
    "NothingLeftError",
    "OldSnapshotError",
    "SnapshotError",
]


class DelayedError(Exception):
    """Root of this room."""


class SnapshotError(DelayedError):
    """The snapshot in this ledger cannot be used; the index reads its range again from the log."""

    def __init__(self, detail: str, ledger_id: int = -1) -> None:
        super().__init__(detail)
        self.detail = detail
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"bucket snapshot {self.ledger_id}: {self.detail}"


class OldSnapshotError(SnapshotError):
    """The snapshot has the layout of an earlier version, which is no damage: an upgrade reads its range again."""


class NothingLeftError(DelayedError):
    """All indexes of the buckets to merge have fired meanwhile."""


class CatalogueError(DelayedError):
    """The stored bytes are no catalogue."""


class CatalogueConflictError(DelayedError):
    """The stored catalogue is not the last catalogue that this index stored: another owner has replaced it."""
