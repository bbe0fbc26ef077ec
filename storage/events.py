"""Names of the events this room logs."""

from __future__ import annotations

__all__ = [
    "APPEND_FAILED",
    "BACKGROUND_CRASHED",
    "BACKGROUND_FAILED",
    "CURSOR_CLAMPED",
    "CURSOR_LEDGER_NOT_DELETED",
    "CURSOR_SAVE_FAILED",
    "CURSOR_STATE_DAMAGED",
    "CURSOR_STATE_LOST",
    "DAMAGE_FOUND",
    "DISK_NEARLY_FULL",
    "DISK_NOT_MEASURED",
    "DISK_OVER_THRESHOLD",
    "DISK_UNDER_THRESHOLD",
    "ENTRY_DAMAGED",
    "ENTRY_LOST",
    "FILE_SET_ASIDE",
    "FRAMES_MISSING",
    "LEDGERS_RECOVERED",
    "LEDGERS_TRIMMED",
    "LEDGER_CLOSED",
    "LEDGER_CREATION_FAILED",
    "LEDGER_LOST",
    "LEDGER_NOT_DELETED",
    "MANAGED_LEDGER_NOT_SAVED",
    "NODE_NOT_WATCHED",
    "ORPHAN_DELETED",
    "ORPHAN_KEPT",
    "RECORD_UNREADABLE",
    "SEGMENT_LOST",
    "STORE_CLOSED",
    "STORE_OPENED",
]

STORE_OPENED = "store.opened"
STORE_CLOSED = "store.closed"
DAMAGE_FOUND = "damage.found"
ENTRY_LOST = "entry.lost"
FRAMES_MISSING = "frames.missed"
FILE_SET_ASIDE = "file.set_aside"
SEGMENT_LOST = "segment.lost"
DISK_NEARLY_FULL = "disk.nearly_full"
DISK_NOT_MEASURED = "disk.not_measured"
DISK_OVER_THRESHOLD = "disk.over_threshold"
DISK_UNDER_THRESHOLD = "disk.under_threshold"

# managed ledgers and cursors
APPEND_FAILED = "append.failed"
BACKGROUND_CRASHED = "background.crashed"
BACKGROUND_FAILED = "background.failed"
CURSOR_CLAMPED = "cursor.clamped"
CURSOR_LEDGER_NOT_DELETED = "cursor_ledger.not_deleted"
CURSOR_SAVE_FAILED = "cursor.save_failed"
CURSOR_STATE_DAMAGED = "cursor.state_damaged"
CURSOR_STATE_LOST = "cursor.state_lost"
DELETION_COMPLETED = "deletion.completed"
ENTRY_DAMAGED = "entry.damaged"
LEDGERS_RECOVERED = "ledgers.recovered"
LEDGERS_TRIMMED = "ledgers.trimmed"
LEDGER_CLOSED = "ledger.closed"
LEDGER_CREATION_FAILED = "ledger.creation_failed"
LEDGER_LOST = "ledger.lost"
LEDGER_NOT_DELETED = "ledger.not_deleted"
MANAGED_LEDGER_NOT_SAVED = "managed_ledger.not_saved"
ORPHAN_DELETED = "orphaned_ledger.deleted"
ORPHAN_KEPT = "orphaned_ledger.kept"
RECORD_UNREADABLE = "record.unreadable"

# metadata of a cluster
NODE_NOT_WATCHED = "node.not_watched"
