"""The errors readers of a data directory meet, under a public name."""

from __future__ import annotations

from magnetar.storage.errors import (
    CorruptEntryError,
    DamagedFileError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    StoreMismatchError,
    UnsupportedFormatError,
)

__all__ = [
    "CorruptEntryError",
    "DamagedFileError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "StorageError",
    "StoreMismatchError",
    "UnsupportedFormatError",
]
