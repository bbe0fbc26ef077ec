"""Message ids on the wire: u64 that Java reads as signed, so -1 travels as 2^64 - 1."""

from __future__ import annotations

MASK = (1 << 64) - 1


def signed(value: int) -> int:
    """A u64 of the wire as the signed number it means."""
    return value - (1 << 64) if value >> 63 else value


def unsigned(value: int) -> int:
    """A signed number as the u64 that travels."""
    return value & MASK
