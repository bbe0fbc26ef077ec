"""Names of the events this room logs."""

from __future__ import annotations

__all__ = ["DAMAGE_FOUND", "ENTRY_LOST", "FILE_SET_ASIDE", "FRAMES_MISSING", "STORE_CLOSED", "STORE_OPENED"]

STORE_OPENED = "store.opened"
STORE_CLOSED = "store.closed"
DAMAGE_FOUND = "damage.found"
ENTRY_LOST = "entry.lost"
FRAMES_MISSING = "frames.missed"
FILE_SET_ASIDE = "file.set_aside"
