"""CRC-32C (Castagnoli), the checksum of frames and records."""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
