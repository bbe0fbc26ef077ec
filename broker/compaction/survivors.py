"""The messages that stay. Phase one numbers the messages of each ledger and marks the survivors; phase two reads the
same entries and writes the marked messages. The marks are one bit for each message, in roaring bitmaps; the numbers of
a ledger begin with its first entry read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap

from magnetar.broker.compaction.examine import Examined, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.broker.compaction.key_table import KeyTable

__all__ = ["Findings", "SourceFindings"]

_NUMBER_BITS = 32
_MAX_NUMBER = (1 << _NUMBER_BITS) - 1
MOST_CHUNKS = 100_000
"""The chunks that are remembered until their message is complete, and as many of complete messages. Compaction keeps
chunks beyond this limit without a look at later messages.
"""
_CHUNK_WEIGHT_BYTES = 24


class SourceFindings:
    """The findings about one ledger."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.messages = 0
        """The number of messages numbered so far."""
        self.survivors = BitMap()
        self.opaque = BitMap()
        """Numbers of entries kept whole because they cannot be read: such a batch has a single number."""


class Findings:
    """The findings of phase one so far."""

    def __init__(self, table: KeyTable) -> None:
        self.table = table
        self.sources: list[SourceFindings] = []
        self.by_ledger: dict[int, SourceFindings] = {}
        self.messages = 0
        self.uncounted = 0
        """Values that a tombstone removed: Apache Pulsar counts the tombstone alone among the removed messages. Keys
        that the table has moved to its file do not count here.
        """
        self.keep_tombstones = False
        """True once an unreadable entry is kept: it may hold an older value of any key, which a tombstone must hide."""
        self._groups: dict[int, list[int]] = {}
        self._in_groups = 0
        self._open: dict[bytes, list[int]] = {}
        self._in_open = 0
        self._next: dict[bytes, int] = {}
        """For each open message the number of the chunk with which a client could go on."""
        self._whole: set[bytes] = set()
        """Messages whose chunks are in groups."""

    def source(self, ledger_id: int) -> SourceFindings:
        found = self.by_ledger.get(ledger_id)
        if found is None:
            found = self.by_ledger[ledger_id] = SourceFindings(len(self.sources))
            self.sources.append(found)
        return found

    @property
    def survivors(self) -> int:
        """The number of messages that stay."""
        return sum(len(source.survivors) for source in self.sources)

    @property
    def weight_bytes(self) -> int:
        """The bytes that `settle` has to process: an estimate of its work."""
        return self.table.weight_bytes + _CHUNK_WEIGHT_BYTES * (self._in_groups + self._in_open)

    def add(self, ledger_id: int, examined: Examined) -> None:
        """Add the next entry of the ledger. Raises OverflowError for a ledger with too many messages."""
        source = self.source(ledger_id)
        first = source.messages
        source.messages += examined.messages
        if source.messages > _MAX_NUMBER:
            raise OverflowError(f"ledger {ledger_id} has more messages than can be numbered")
        self.messages += examined.messages
        if examined.kind is Kind.DROP:
            return
        if examined.kind is Kind.KEEP:
            source.survivors.add(first)
            source.opaque.add(first)
            self.keep_tombstones = True
            return
        base = source.index << (_NUMBER_BITS + 1) | first << 1
        if examined.chunk is not None:
            self._add_chunk(base, examined, *examined.chunk)
            return
        put, place_of = self.table.put, self.table.place_in_memory
        for index, digest, is_tombstone in examined.keyed:
            if is_tombstone and not place_of(digest, 1) & 1:
                self.uncounted += 1
            put(digest, base + (index << 1) + is_tombstone)

    def _add_chunk(self, place: int, examined: Examined, message: bytes, number: int, is_last: bool) -> None:
        """Add a chunk. Chunks replace older values once their last chunk is added; without a last chunk they stay.

        A producer sends chunks without receipt again. Copies of the last chunks of a whole message are dropped: no
        client can join them, and the message counts from its first last chunk.
        """
        following = self._next.get(message, 0)
        if not is_last:
            self._open.setdefault(message, []).append(place)
            self._next[message] = number + 1 if number in (0, following) else following if number < following else 0
            self._in_open += 1
            if self._in_open > MOST_CHUNKS:
                self._keep(next(iter(self._open)))
            return
        earlier = self._open.pop(message, [])
        self._next.pop(message, None)
        self._in_open -= len(earlier)
        if number != following and message in self._whole:
            return
        self.table.put(examined.keyed[0].digest, place)
        if self._in_groups + len(earlier) > MOST_CHUNKS:
            self._mark(earlier)
        elif earlier:
            self._groups[place] = earlier
            self._in_groups += len(earlier)
            if number == following:
                self._whole.add(message)

    def _keep(self, message: bytes) -> None:
        """Keep the open chunks of a message, whose last chunk may still come and counts by itself then."""
        places = self._open.pop(message)
        del self._next[message]
        self._in_open -= len(places)
        self._mark(places)

    def settle(self) -> None:
        """Mark the newest message of every key. Call after the last entry; reads the file of the table. Raises
        OSError.
        """
        for places in self.table.newest():
            marked: list[list[int]] = [[] for _ in self.sources]
            for place in places:
                if not place & 1 or self.keep_tombstones:
                    marked[place >> (_NUMBER_BITS + 1)].append(place >> 1 & _MAX_NUMBER)
                    if place in self._groups:
                        self._mark(self._groups[place])
            for source, numbers in zip(self.sources, marked, strict=True):
                source.survivors.update(numbers)
        for places in self._open.values():
            self._mark(places)

    def _mark(self, places: Iterable[int]) -> None:
        for place in places:
            self.sources[place >> (_NUMBER_BITS + 1)].survivors.add(place >> 1 & _MAX_NUMBER)
