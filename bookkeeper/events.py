"""Names of the events this room logs."""

from __future__ import annotations

__all__ = [
    "BACKGROUND_CRASHED",
    "BACKGROUND_FAILED",
    "BOOKIES_CHANGED",
    "BOOKIES_NOT_READ",
    "BOOKIE_CONNECTED",
    "BOOKIE_LOST",
    "BOOKIE_QUARANTINED",
    "BOOKIE_SPACE_UNKNOWN",
    "ENSEMBLE_CHANGED",
    "ENTRY_DAMAGED",
    "LEDGER_DEGRADED",
    "LEDGER_FAILED",
    "LEDGER_RECOVERED",
    "RACKS_MALFORMED",
    "TLS_FILES_UNUSABLE",
    "ZOOKEEPER_ENDED",
]

BACKGROUND_CRASHED = "bookkeeper.background_crashed"
BACKGROUND_FAILED = "bookkeeper.background_failed"
BOOKIES_CHANGED = "bookkeeper.bookies_changed"
BOOKIES_NOT_READ = "bookkeeper.bookies_not_read"
BOOKIE_CONNECTED = "bookie.connected"
BOOKIE_LOST = "bookie.lost"
BOOKIE_QUARANTINED = "bookie.quarantined"
BOOKIE_SPACE_UNKNOWN = "bookie.space_unknown"
ENSEMBLE_CHANGED = "ledger.ensemble_changed"
ENTRY_DAMAGED = "ledger.entry_damaged"
LEDGER_DEGRADED = "ledger.degraded"
LEDGER_FAILED = "ledger.failed"
LEDGER_RECOVERED = "ledger.recovered"
RACKS_MALFORMED = "bookkeeper.racks_malformed"
TLS_FILES_UNUSABLE = "bookkeeper.tls_files_unusable"
ZOOKEEPER_ENDED = "zookeeper.ended"
"""The session does not connect again: the service refuses this client, or kazoo failed."""
