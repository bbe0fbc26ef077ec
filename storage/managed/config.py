"""Configuration of one managed ledger. Plain values; the broker computes them from policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.managed.entry_interception import EntryMetadataSource

__all__ = ["UNLIMITED", "ManagedLedgerConfig"]

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class ManagedLedgerConfig:
    """Defaults are those of Pulsar's ``broker.conf`` (managedLedger... keys, in milliseconds and bytes).

    ``set_config`` gives a running managed ledger a new configuration.
    """

    max_entries_per_ledger: int = 50_000
    max_size_per_ledger_bytes: int = 2048 << 20
    min_rollover_ms: int = 10 * 60_000
    """A full ledger younger than this stays open (0: no minimum)."""
    max_rollover_ms: int = 240 * 60_000
    """An older ledger is closed, also without traffic (0: never)."""
    inactive_rollover_ms: int = 0
    """A ledger without an append for this long is closed (0: never)."""

    retention_time_ms: int = 0
    """Keep consumed ledgers this long after they were closed; -1 for ever."""
    retention_size_bytes: int = 0
    """Keep consumed ledgers while the topic is smaller than this; -1 without limit."""

    entry_timestamp: bool = True
    """Prepend broker_timestamp to every entry (PIP-70)."""
    entry_index: bool = True
    """Prepend the index of the entry's last message to every entry (PIP-90)."""

    entry_metadata: EntryMetadataSource | None = None
    """Makes more of the entries' metadata than timestamp and index; None: these alone, which is faster."""

    cursor_save_interval_ms: int = 1000
    """Acknowledgements are on disk this long after they arrived at the latest (earlier on request)."""
    cursor_save_acks: int = 1000
    """... or after this many of them."""
    cursor_max_entries_per_ledger: int = 50_000
    """A new cursor ledger replaces a cursor ledger after this many saves."""
    cursor_inline_bytes: int = 16 << 10
    """A cursor state up to this size is kept in its metadata record when the cursor is closed."""
    cursor_chunk_bytes: int = 64 << 10
    """Larger states are written as several entries of this size."""
