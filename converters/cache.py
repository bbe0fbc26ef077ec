"""Converted entries, shared by all subscriptions of a topic (guarantee G11): a fan-out of fifty converts once.

Keyed by position and `LoadedConverter.tag`: a new version or other settings never meet old results. Bounded in bytes,
least recently used first out. Failures are not kept: their policy decides when they are tried again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.converters.outcome import Converted

_OVERHEAD_BYTES = 300
"""Bytes of a key, a Converted and their place in the dict: so a million empty entries count, too."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since start, and the present content."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int


class ConversionCache:
    """A byte-bounded LRU map. Not thread-safe: the loop that dispatches owns it."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` 0 turns caching off."""
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[int, int, str], Converted] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def get(self, ledger_id: int, entry_id: int, tag: str) -> Converted | None:
        """The conversion of this entry by the converter with this tag, if it is still held."""
        found = self._entries.get((ledger_id, entry_id, tag))
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end((ledger_id, entry_id, tag))
        return found

    def put(self, ledger_id: int, entry_id: int, tag: str, converted: Converted) -> bool:
        """Keep a result; returns whether it is kept. Identities (the stored bytes) and results larger than the cache
        are not kept.
        """
        weight = _weight(converted)
        if converted.identity or weight > self._max_bytes:
            return False
        key = (ledger_id, entry_id, tag)
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= _weight(old)
        self._entries[key] = converted
        self._bytes += weight
        while self._bytes > self._max_bytes:
            _, dropped = self._entries.popitem(last=False)
            self._bytes -= _weight(dropped)
            self._evictions += 1
        return True

    def clear(self) -> None:
        """Forget everything, as after a reload of the chain."""
        self._entries.clear()
        self._bytes = 0

    def stats(self) -> CacheStats:
        return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), self._bytes)


def _weight(converted: Converted) -> int:
    return len(converted.entry) + 8 * len(converted.holes) + _OVERHEAD_BYTES
