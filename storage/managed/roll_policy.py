"""Decides when a ledger is full. Pure.

Pulsar's rule: a ledger is full when its entries or its size reach the limit, or its age reaches the maximum. While the
ledger is not older than the minimum time it does not count as full.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.storage.bitmaps import MAX_ENTRIES_PER_LEDGER

if TYPE_CHECKING:
    from magnetar.storage.managed.config import ManagedLedgerConfig

__all__ = [
    "HARD_MAX_ENTRIES",
    "bytes_of_room",
    "entries_of_room",
    "is_full",
    "is_nearly_full",
    "stretched",
    "young_ms",
]

HARD_MAX_ENTRIES = MAX_ENTRIES_PER_LEDGER >> 1
"""A ledger with so many entries is full, whatever its age."""

_NEARLY = 0.8
_STRETCH = 10


def stretched(config: ManagedLedgerConfig) -> ManagedLedgerConfig:
    """The limits of a ledger while the next ledger cannot be created."""
    return replace(
        config,
        max_entries_per_ledger=config.max_entries_per_ledger * _STRETCH,
        max_size_per_ledger_bytes=config.max_size_per_ledger_bytes * _STRETCH,
        max_rollover_ms=0,
    )


def is_full(entries: int, size_bytes: int, age_ms: float, config: ManagedLedgerConfig) -> bool:
    if entries >= HARD_MAX_ENTRIES:
        return True
    if not _old_enough(age_ms, config):
        return False
    return (
        entries >= config.max_entries_per_ledger
        or size_bytes >= config.max_size_per_ledger_bytes
        or 0 < config.max_rollover_ms <= age_ms
    )


def is_nearly_full(entries: int, size_bytes: int, age_ms: float, config: ManagedLedgerConfig) -> bool:
    """Whether to create the next ledger now, so that no append waits for it."""
    return age_ms >= young_ms(config) and (
        entries >= _NEARLY * config.max_entries_per_ledger or size_bytes >= _NEARLY * config.max_size_per_ledger_bytes
    )


def entries_of_room(entries: int, age_ms: float, config: ManagedLedgerConfig) -> int:
    """Return how many more entries the ledger takes before it is full by the number of entries."""
    limit = config.max_entries_per_ledger if _old_enough(age_ms, config) else HARD_MAX_ENTRIES
    return max(0, limit - entries)


def bytes_of_room(size_bytes: int, age_ms: float, config: ManagedLedgerConfig) -> int:
    """Return how many more bytes the ledger takes before it is full by its size."""
    return config.max_size_per_ledger_bytes - size_bytes if _old_enough(age_ms, config) else sys.maxsize


def young_ms(config: ManagedLedgerConfig) -> float:
    """Return the age below which only the number of entries can make a ledger full, and the next ledger is not created
    yet.
    """
    return _NEARLY * config.min_rollover_ms


def _old_enough(age_ms: float, config: ManagedLedgerConfig) -> bool:
    return config.min_rollover_ms <= 0 or age_ms > config.min_rollover_ms
