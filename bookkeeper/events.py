"""Names of the events this room logs."""

from __future__ import annotations

__all__ = [
    "BACKGROUND_CRASHED",
    "BACKGROUND_FAILED",
]

BACKGROUND_CRASHED = "bookkeeper.background_crashed"
BACKGROUND_FAILED = "bookkeeper.background_failed"
