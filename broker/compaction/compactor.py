"""One compaction run: reads all messages twice and writes the surviving messages.

Phase one reads the old compacted ledger and the log behind its horizon, and finds the newest message of each key. Phase
two reads the same again and writes the survivors to a new ledger. The compaction changes only the new ledger; the
caller replaces the old ledger by it.

A damaged entry of the old compacted ledger has no known key. If the log still has the original, the caller repeats the
run with a `log_start`: the log replaces the old ledger from there on, with all entries that the old ledger left out,
also the tombstones. Entries before that, which exist in the old ledger alone, are lost where they are damaged.

The run yields to the event loop every millisecond or two; it examines and rewrites large batches in a thread.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyroaring import BitMap

from magnetar.broker.compaction.examine import examine, examine_small
from magnetar.protocol.batches import keep_messages
from magnetar.protocol.metadata import parse_metadata
from magnetar.protocol.runs import EntryFlag
from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError, StorageError
from magnetar.storage.position import Position
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from magnetar.broker.compaction.compacted_ledger import CompactedLedger, CompactedLedgerWriter
    from magnetar.broker.compaction.survivors import Findings, SourceFindings
    from magnetar.protocol import pulsar_api_pb2 as pb
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.slab import Slab

__all__ = ["CompactionError", "Compactor", "CompactorStats", "DamagedCompactedEntryError", "FinishedRun", "aside"]

_READ_ENTRIES = 500
_OLD_ENTRIES = 1000
_WHOLE = 2**63 - 1
"""The entry behind all entries of a lost ledger."""
_READ_BYTES = 256 << 10
_TURN = 300
"""Messages examined, or KiB moved, before the run yields to the event loop."""
_LARGE_BYTES = 32 << 10
_MESSAGE_WEIGHT_BYTES = 64
_BATCHED = int(EntryFlag.BATCHED)
_ONE_PLACE = int(EntryFlag.MARKER | EntryFlag.UNREADABLE)


class CompactionError(StorageError):
    """The log changed during the compaction; the next compaction succeeds."""


class DamagedCompactedEntryError(StorageError):
    """An entry of the old compacted ledger is damaged; `error` has its position there."""

    def __init__(self, error: CorruptEntryError) -> None:
        super().__init__(f"compacted ledger: {error}")
        self.error = error


@dataclass(slots=True)
class CompactorStats:
    """The figures of one compaction."""

    read_bytes: int = 0
    entries_read: int = 0
    lost: list[Position] = field(default_factory=list)
    """The damaged entries of the old compacted ledger that the run passed over."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has written its ledger."""

    ledger: CompactedLedger
    findings: Findings
    stats: CompactorStats


class Compactor:
    """Serves a single run.

    `new_cursor()` returns a cursor on the log at the first entry behind the old horizon, or at `log_start`. With a
    `log_start` the run takes only earlier entries from the old ledger, and passes over damaged entries among them if
    `skip_damaged` is set.
    """

    def __init__(
        self,
        old: CompactedLedger | None,
        new_cursor: Callable[[], ManagedCursor],
        horizon: Position,
        findings: Findings,
        *,
        skip_damaged: bool = False,
        log_start: Position | None = None,
    ) -> None:
        self.stats = CompactorStats()
        self._log_start = log_start
        self._old = old
        self._new_cursor = new_cursor
        self._horizon = horizon
        self._findings = findings
        self._skip_damaged = skip_damaged
        self._damaged: set[Position] = set()
        self._turn = 0

    async def find_survivors(self) -> None:
        """Phase 1: find the newest message of each key. Raises DamagedCompactedEntryError, StorageError, OSError."""
        findings = self._findings
        async with aclosing(self._scan(first_time=True)) as scan:
            async for ledger_id, slab, start, end in scan:
                sizes = memoryview(slab.facts().batch_sizes).cast("q")
                for k in range(start, end):
                    body = slab.body(k)
                    weight = max(len(body), sizes[k] * _MESSAGE_WEIGHT_BYTES)
                    examined = examine_small(body, _LARGE_BYTES) if weight < _LARGE_BYTES else None
                    if examined is None:
                        examined = await asyncio.to_thread(examine, body)
                    findings.add(ledger_id, examined)
                    if findings.table.is_full:
                        await aside(findings.table.weight_bytes, findings.table.spill)
                    self._turn += 1 + weight // 1024
                    if self._turn >= _TURN:
                        await self._pause()
        await aside(findings.weight_bytes, findings.settle)

    async def write_survivors(self, writer: CompactedLedgerWriter) -> None:
        """Phase 2: write the surviving messages to `writer`.

        Raises CompactionError when a ledger is new or has another number of messages than in phase 1, StorageError.
        """
        numbers: dict[int, int] = {}
        async with aclosing(self._scan(first_time=False)) as scan:
            async for ledger_id, slab, start, end in scan:
                source = self._findings.by_ledger.get(ledger_id)
                if source is None:
                    raise CompactionError(f"ledger {ledger_id} was not there before")
                write = self._write_batches if slab.facts().any_flags & _BATCHED else self._write_singles
                number = numbers.get(ledger_id, 0)
                numbers[ledger_id] = await write(writer, source, slab, (start, end), number)
        for ledger_id, source in self._findings.by_ledger.items():
            number = numbers.get(ledger_id, 0)
            if number != source.messages:
                raise CompactionError(f"ledger {ledger_id} had {number} messages the second time")

    async def _write_singles(
        self, writer: CompactedLedgerWriter, source: SourceFindings, slab: Slab, stretch: tuple[int, int], number: int
    ) -> int:
        start, end = stretch
        following = number + end - start
        chosen = source.survivors & BitMap(range(number, following))
        for k in chosen:
            body = slab.body(start + k - number)
            await writer.add(slab.position(start + k - number), body)
            self._turn += 1 + len(body) // 1024
            if self._turn >= _TURN:
                await self._pause()
        self._turn += 1 + (end - start) // 16
        return following

    async def _write_batches(
        self, writer: CompactedLedgerWriter, source: SourceFindings, slab: Slab, stretch: tuple[int, int], number: int
    ) -> int:
        facts = slab.facts()
        flags, sizes = memoryview(facts.flags).cast("I"), memoryview(facts.batch_sizes).cast("q")
        for k in range(*stretch):
            is_batch = flags[k] & _BATCHED and not flags[k] & _ONE_PLACE and number not in source.opaque
            count = sizes[k] if is_batch else 1
            left = source.survivors.range_cardinality(number, number + count)
            body: bytes | memoryview = slab.body(k)
            if left:
                if is_batch:
                    keep = [n - number for n in source.survivors & BitMap(range(number, number + count))]
                    body = await self._rewritten(body, keep)
                await writer.add(slab.position(k), body)
                self._turn += len(body) // 1024
            number += count
            self._turn += 1
            if self._turn >= _TURN:
                await self._pause()
        return number

    async def _rewritten(self, body: bytes | memoryview, keep: list[int]) -> bytes | memoryview:
        metadata = await aside(len(body), parse_metadata, body)
        if metadata is not None and _indexes(metadata, len(keep)) == keep:
            return body  # an earlier compaction has left exactly these messages
        size = len(body) if metadata is None else max(len(body), metadata.uncompressed_size)
        rewritten: bytes | None = await aside(size, keep_messages, body, frozenset(keep))
        if rewritten is None:
            raise CompactionError("a batch has lost its messages")
        return rewritten

    async def _scan(self, *, first_time: bool) -> AsyncGenerator[tuple[int, Slab, int, int], None]:
        """Yield (id of the ledger read, slab with original positions, start, end) for all entries, in order."""
        if self._old is not None:
            async with aclosing(self._scan_old(self._old, first_time=first_time)) as scan:
                async for spans in scan:
                    for slab, start, end in self._counted(spans, first_time=first_time):
                        yield self._old.ledger_id, slab, start, end
        cursor = self._new_cursor()
        try:
            while spans := await self._read(cursor, first_time=first_time):
                for slab, start, end in self._counted(spans, first_time=first_time):
                    yield slab.ledger_id, slab, start, end
        finally:
            cursor.close()

    async def _scan_old(self, old: CompactedLedger, *, first_time: bool) -> AsyncGenerator[list[Span], None]:
        """Yield the entries of the old ledger that the run takes, in order."""
        at = 0
        while at < old.entries:
            try:
                spans, at = await old.read(at, _OLD_ENTRIES, _READ_BYTES)
            except CorruptEntryError as error:  # of the entry `at`: a read ends before damage further on
                self._pass_over(error, first_time=first_time)
                at = error.position.entry_id + 1
                continue
            if (limit := self._log_start) is None:
                yield spans
                continue
            yield [part for span in spans if (part := _before(span, limit)) is not None]
            if spans[-1].last_position >= limit:
                return  # the log has all further entries

    def _pass_over(self, error: CorruptEntryError, *, first_time: bool) -> None:
        """Count the damaged entry as lost. Raises DamagedCompactedEntryError where the run is not to pass over it."""
        known = error.position in self.stats.lost
        if self._log_start is None or not self._skip_damaged or (not known and not first_time):
            raise DamagedCompactedEntryError(error) from error
        if not known:
            self.stats.lost.append(error.position)

    async def _read(self, cursor: ManagedCursor, *, first_time: bool) -> list[Span]:
        while True:
            try:
                spans = cursor.read(_READ_ENTRIES, _READ_BYTES, self._horizon)
                return spans if isinstance(spans, list) else await spans
            except (CorruptEntryError, NoSuchLedgerError) as error:
                damaged = error.position if isinstance(error, CorruptEntryError) else Position(error.ledger_id, _WHOLE)
                if not self._skip_damaged or (damaged not in self._damaged and not first_time):
                    raise
                if first_time:
                    self._damaged.add(damaged)
                cursor.move_to(damaged.next())

    def _counted(self, spans: list[Span], *, first_time: bool) -> list[Span]:
        if first_time:
            for span in spans:
                self.stats.read_bytes += span.size_bytes
                self.stats.entries_read += span.entries
        return spans

    async def _pause(self) -> None:
        """Yield to the event loop."""
        self._turn = 0
        await asyncio.sleep(0)


def _before(span: Span, limit: Position) -> Span | None:
    """The part of the span before the position; None for an empty part."""
    slab, start, end = span
    while end > start and slab.position(end - 1) >= limit:
        end -= 1
    return Span(slab, start, end) if end > start else None


def _indexes(metadata: pb.MessageMetadata, most: int) -> list[int]:
    """Return the first compacted indexes of a batch: a hostile entry has millions."""
    return list(metadata.compacted_batch_indexes[: most + 1])


async def aside(size_bytes: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function, in a thread when `size_bytes`, the bytes it works on, is 32 KiB or more; return its result."""
    if size_bytes < _LARGE_BYTES:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
