"""The hash of a list of topic names, by which clients know whether their list is still true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable


def topics_hash(names: Iterable[str]) -> str:
    """CRC-32C of the sorted names joined by commas, its bytes little-endian in hex; 00000000 for no names."""
    joined = ",".join(sorted(names))
    return crc32c(joined.encode()).to_bytes(4, "little").hex() if joined else "00000000"
