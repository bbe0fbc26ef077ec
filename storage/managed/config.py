"""Configuration of one managed ledger. Plain values; the broker computes them from policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.storage.managed.entry_interception import EntryMetadataSource

__all__ = ["UNLIMITED", "ConfigInForce", "ManagedLedgerConfig"]

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class ManagedLedgerConfig:
    """Defaults are those of Pulsar's ``broker.conf`` (managedLedger... keys, in milliseconds and bytes).

    ``set_config`` gives a running managed ledger a new configuration.
    """

    max_entries_per_ledger: int = 50_000
    max_size_per_ledger_bytes: int = 2048 << 20
    min_rollover_ms: int = 10 * 60_000
    """A full ledger that is younger stays open (0: no minimum)."""
    max_rollover_ms: int = 240 * 60_000
    """An older ledger is closed, also without traffic (0: never)."""
    inactive_rollover_ms: int = 0
    """A ledger without an append for this long is closed (0: never)."""

    retention_time_ms: int = 0
    """Consumed ledgers stay for this time after their closing; -1: for ever."""
    retention_size_bytes: int = 0
    """Consumed ledgers stay while the topic without them would be smaller; -1: without limit."""

    entry_timestamp: bool = True
    """Prepend broker_timestamp to every entry (PIP-70)."""
    entry_index: bool = True
    """Prepend the index of the entry's last message to every entry (PIP-90)."""

    entry_metadata: EntryMetadataSource | None = None
    """Makes entry metadata with more fields than timestamp and index; None: these two fields alone, which is faster."""

    cursor_save_interval_ms: int = 1000
    """The longest time between an acknowledgement and its save; ``flush`` saves earlier."""
    cursor_save_acks: int = 1000
    """A cursor is saved at once after this many acknowledgements."""
    cursor_max_entries_per_ledger: int = 50_000
    """A new cursor ledger replaces the old cursor ledger after this many entries."""
    cursor_inline_bytes: int = 16 << 10
    """At its closing a cursor stores a state up to this size in its metadata record."""
    cursor_chunk_bytes: int = 64 << 10
    """Larger states are written as several entries of this size."""


class ConfigInForce:
    """The configuration of a managed ledger, which its parts call for at any time."""

    __slots__ = ("value",)

    def __init__(self, value: ManagedLedgerConfig) -> None:
        self.value = value

    def __call__(self) -> ManagedLedgerConfig:
        return self.value
