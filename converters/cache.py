"""Converted entries, shared by all subscriptions of a topic (guarantee G11): fifty subscriptions need one conversion.

Keyed by position and `LoadedConverter.tag`, so a new version or other settings never get old results. Bounded in bytes;
the least recently used entry leaves first. Failures are not cached: their policy decides about the next attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.converters.outcome import Converted

_HOLE_BYTES = 40
"""A number and its place in the tuple."""
_OVERHEAD_BYTES = 300
"""Bytes of a key, a Converted and their place in the dict, so that entries without payload count, too."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since start, and the present number of entries and bytes."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int


class ConversionCache:
    """A byte-bounded LRU map. Not thread-safe: use it on the event loop of the dispatch only."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` 0 turns caching off."""
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[int, int, str], Converted] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def get(self, ledger_id: int, entry_id: int, tag: str) -> Converted | None:
        """Return the cached conversion of this entry by the converter with this tag, or None."""
        found = self._entries.get((ledger_id, entry_id, tag))
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end((ledger_id, entry_id, tag))
        return found

    def put(self, ledger_id: int, entry_id: int, tag: str, converted: Converted) -> bool:
        """Cache a result; return whether it is cached. Identities (the stored bytes) and results larger than the cache
        are not cached.
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
        """Drop all entries, as after a reload of the chain."""
        self._entries.clear()
        self._bytes = 0

    def stats(self) -> CacheStats:
        return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), self._bytes)


def _weight(converted: Converted) -> int:
    return len(converted.entry) + _HOLE_BYTES * len(converted.holes) + _OVERHEAD_BYTES
