"""The compacted ledger: the entries that survived, in the order of the log, each with its original position.

Entry, big-endian::

    u32 size of the id | MessageIdData | u32 size of the entry | entry as it was stored

A readable batch is rewritten (`protocol.batches.keep_messages`), also where all of its messages survive.

Positions ascend, so a bisection finds a position: each step reads one entry, or none when its position is cached.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections import OrderedDict
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol.metadata import metadata_bytes, parse_metadata
from magnetar.storage.errors import CorruptEntryError, StorageError
from magnetar.storage.position import Position
from magnetar.storage.slab import Slab, Span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from magnetar.storage.interfaces import LedgerInfo, LedgerStore, LedgerWriter

__all__ = ["CompactedLedger", "CompactedLedgerWriter", "last_batch_index", "unwrap", "wrap"]

_U32 = Struct(">I")
_WRITE_BYTES = 256 << 10
_IN_FLIGHT_BYTES = 8 << 20
_SCAN_BYTES = 256 << 10
_REMEMBERED_PLACES = 1024
_MOST_METADATA_BYTES = 2 << 20
"""A compaction keeps entries with more metadata than half of this whole; their parser takes a tenth of a second."""
_NO_TIMESTAMP, _NO_INDEX = -1, -2


def wrap(position: Position, entry: bytes | memoryview, partition: int) -> bytes:
    """The entry of the compacted ledger for an entry of the log."""
    ident = pb.MessageIdData(ledgerId=position.ledger_id, entryId=position.entry_id, partition=partition)
    encoded = ident.SerializeToString()
    return b"".join((_U32.pack(len(encoded)), encoded, _U32.pack(len(entry)), entry))


def unwrap(body: memoryview) -> tuple[Position, memoryview]:
    """Original position and entry. Raises StorageError for bytes that are no such entry."""
    try:
        (size,) = _U32.unpack_from(body)
        ident = pb.MessageIdData.FromString(bytes(body[4 : 4 + size]))
        (length,) = _U32.unpack_from(body, 4 + size)
    except (StructError, DecodeError) as error:
        raise StorageError("not an entry of a compacted ledger") from error
    entry = body[8 + size :]
    if len(entry) != length:
        raise StorageError("an entry of a compacted ledger has the wrong size")
    return Position(ident.ledgerId, ident.entryId), entry


def last_batch_index(span: Span) -> int:
    """Index of the last message left in the span's first entry; -1 when the entry is not a batch of several messages.

    In Apache Pulsar a batch of a single message has index -1 here, and index 0 in the topic's own log.
    """
    body = span.body(0)
    if metadata_bytes(body) > _MOST_METADATA_BYTES:
        facts = span.slab.facts()
        return max(memoryview(facts.batch_sizes).cast("q")[span.start] - 1, 0) or -1
    metadata = parse_metadata(body)
    if metadata is None or metadata.num_messages_in_batch <= 1:
        return -1
    left = metadata.compacted_batch_indexes
    return left[-1] if left else metadata.num_messages_in_batch - 1


class CompactedLedgerWriter:
    """Writes one compacted ledger, with a bound on pending bytes.

    written: is called with a number of entries, and the milliseconds that their write took, when they are durable.
    """

    def __init__(
        self,
        writer: LedgerWriter,
        partition: int,
        monotonic: Callable[[], float],
        written: Callable[[int, float], None],
    ) -> None:
        self.ledger_id = writer.ledger_id
        self.entries = 0
        self.size_bytes = 0
        self._writer = writer
        self._partition = partition
        self._monotonic, self._written = monotonic, written
        self._bodies: list[bytes] = []
        self._pending_bytes = 0
        self._in_flight = 0
        self._error: StorageError | None = None
        self._room = asyncio.Event()

    async def add(self, position: Position, entry: bytes | memoryview) -> None:
        """Append one entry, positions ascending. Raises StorageError when this or an earlier append failed."""
        body = wrap(position, entry, self._partition)
        self._bodies.append(body)
        self._pending_bytes += len(body)
        self.entries += 1
        self.size_bytes += len(body)
        if self._pending_bytes >= _WRITE_BYTES:
            await self._push(_IN_FLIGHT_BYTES)

    async def close(self) -> LedgerInfo:
        """Write the remaining entries and seal the ledger. All entries are durable on return. Raises StorageError."""
        await self._push(0)
        return await self._writer.close()

    async def discard(self, ledgers: LedgerStore) -> None:
        """Stop without writing the remaining entries, and delete the ledger. Raises StorageError."""
        await self._writer.close()
        await ledgers.delete(self.ledger_id)

    async def _push(self, allowed_bytes: int) -> None:
        if self._bodies and self._error is None:
            self._append()
        while self._in_flight > allowed_bytes and self._error is None:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error

    def _append(self) -> None:
        offsets = array("q", [0])
        for body in self._bodies:
            offsets.append(offsets[-1] + len(body))
        writer, count = self._writer, len(self._bodies)
        ones = array("q", [1]) * count
        first = writer.last_add_pushed + 1
        data, record_offsets = speed.stamp(
            b"".join(self._bodies),
            offsets.tobytes(),
            ones.tobytes(),
            0,
            count,
            writer.ledger_id,
            first,
            writer.record_proof,
            _NO_TIMESTAMP,
            _NO_INDEX,
        )
        size, began = len(data), self._monotonic()
        self._in_flight += size
        self._bodies, self._pending_bytes = [], 0

        def done(error: StorageError | None) -> None:
            self._in_flight -= size
            self._error = self._error or error
            if error is None:
                self._written(count, 1000 * (self._monotonic() - began))
            self._room.set()

        writer.append(Slab(writer.ledger_id, first, data, record_offsets), done)


class CompactedLedger:
    """A finished compacted ledger."""

    def __init__(self, ledgers: LedgerStore, info: LedgerInfo) -> None:
        self.ledger_id = info.ledger_id
        self.entries = info.entries
        self.size_bytes = info.length_bytes
        self._ledgers = ledgers
        self._places: OrderedDict[int, Position] = OrderedDict()

    async def find(self, position: Position) -> int:
        """Entry id of the first entry whose original position is `position` or later; `entries` when no entry is.

        The positions of damaged entries are not known: the result is the first of them when the entry behind them is
        later than `position`.
        """
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            readable = await self._readable(middle, high)
            if readable is None or readable[1] > position:
                high = middle
            elif readable[1] < position:
                low = readable[0] + 1
            else:
                return readable[0]
        return low

    async def _readable(self, first: int, end: int) -> tuple[int, Position] | None:
        """Id and original position of the first intact entry from `first` to `end` - 1; None without such an entry."""
        for entry_id in range(first, end):
            with contextlib.suppress(CorruptEntryError):
                return entry_id, await self._position_of(entry_id)
        return None

    async def read(self, first: int, max_entries: int, max_bytes: int) -> tuple[list[Span], int]:
        """Return entries from entry id `first` on with their original positions, and the id of the entry behind them.

        Returns at least one entry, even if the entry exceeds `max_bytes`. Precondition: `first` < `entries`.
        Raises NoSuchLedgerError once a later compaction has deleted the ledger, CorruptEntryError, StorageError.
        """
        last = min(first + max_entries, self.entries) - 1
        found: list[tuple[Position, memoryview]] = []
        at, room = first, max_bytes
        for slab in await self._slabs(first, last, max_bytes):
            for k in range(at - slab.first_entry_id, min(slab.last_entry_id, last) - slab.first_entry_id + 1):
                position, entry = unwrap(slab.body(k))
                room -= len(entry)
                if found and room < 0:
                    return _as_spans(found), at
                found.append((position, entry))
                at += 1
        return _as_spans(found), at

    async def scan(self) -> AsyncIterator[list[Span]]:
        """Yield all entries in order, in lists of spans."""
        at = 0
        while at < self.entries:
            spans, at = await self.read(at, 1000, _SCAN_BYTES)
            yield spans

    async def last(self) -> Span | None:
        """The newest entry; None for an empty ledger."""
        if not self.entries:
            return None
        spans, _ = await self.read(self.entries - 1, 1, 1)
        return spans[0]

    async def _slabs(self, first: int, last: int, max_bytes: int) -> list[Slab]:
        slab = self._ledgers.read_cached(self.ledger_id, first, last, max_bytes)
        return [slab] if slab is not None else await self._ledgers.read(self.ledger_id, first, last, max_bytes)

    async def _position_of(self, entry_id: int) -> Position:
        place = self._places.get(entry_id)
        if place is None:
            slab = (await self._slabs(entry_id, entry_id, 1))[0]
            place, _ = unwrap(slab.body(entry_id - slab.first_entry_id))
            self._places[entry_id] = place
            if len(self._places) > _REMEMBERED_PLACES:
                self._places.popitem(last=False)
        return place


def _as_spans(entries: list[tuple[Position, memoryview]]) -> list[Span]:
    """Put the entries into slabs as the log has them: consecutive entries share a slab. The checksum fields stay 0."""
    spans: list[Span] = []
    start = 0
    for k in range(1, len(entries) + 1):
        if k == len(entries) or entries[k][0] != entries[k - 1][0].next():
            spans.append(_slab(entries[start:k]))
            start = k
    return spans


def _slab(entries: list[tuple[Position, memoryview]]) -> Span:
    ledger_id, first = entries[0][0]
    parts: list[bytes | memoryview] = []
    offsets, at = array("q", [0]), 0
    for k, (_, entry) in enumerate(entries):
        parts += [speed.RECORD_HEADER.pack(len(entry), 0, ledger_id, first + k, -1), entry]
        at += speed.RECORD_HEADER.size + len(entry)
        offsets.append(at)
    return Span(Slab(ledger_id, first, b"".join(parts), offsets.tobytes()), 0, len(entries))
