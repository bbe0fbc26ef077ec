"""The bytes of parked slabs, for readers: slabs that are in the journal alone (``ledger_state.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.embedded.ledger_state import UnwrittenSlab

__all__ = ["ParkedBytes"]


class ParkedBytes:
    """The bytes of neighbouring parked slabs of one ledger, addressed like the ledger file (``LedgerBytes``)."""

    def __init__(self, slabs: Sequence[UnwrittenSlab]) -> None:
        self._slabs = slabs

    def read(self, _ledger_id: int, size: int, offset: int) -> bytes:
        parts = []
        for slab in self._slabs:
            skip = offset - slab.offset
            if 0 <= skip < slab.size_bytes and size > 0:
                file, at = slab.place
                want = min(size, slab.size_bytes - skip)
                part = file.read(want, at + skip)
                parts.append(part)
                if len(part) < want:
                    break
                offset += want
                size -= want
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self, _ledger_id: int) -> int:
        return self._slabs[-1].offset + self._slabs[-1].size_bytes
