"""Managed ledgers on the in-memory stores, time moved by hand."""

from __future__ import annotations

import asyncio
import inspect
from array import array
from typing import TYPE_CHECKING, Any

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.runs import EntryRun
from magnetar.protocol.speed import after_prefix
from magnetar.storage.managed.entry_index import broker_index
from magnetar.storage.managed.factory import ManagedLedgerFactory
from magnetar.storage.managed.managed_ledger import ManagedLedger, ManagedLedgerConfig
from magnetar.storage.position import EARLIEST, Position
from tests.storage.engine_for_tests import ManualClock, ManualScheduler, settle
from tests.twins.memory_ledgers import MemoryLedgerStore
from tests.twins.memory_metadata import MemoryMetadataStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.managed.managed_ledger import AppendResult
    from magnetar.storage.managed.stored_layout import StoredLayout
    from magnetar.storage.slab import Span

NAME = "public/default/persistent/t"

KEEP = ManagedLedgerConfig(
    max_entries_per_ledger=10,
    min_rollover_ms=0,
    max_rollover_ms=0,
    retention_time_ms=-1,
    retention_size_bytes=-1,
    entry_timestamp=False,
)
"""Ledgers of ten entries that are never dropped."""


def run_of(bodies: Sequence[bytes], counts: Sequence[int] | None = None) -> EntryRun:
    """A run of the given entries."""
    counts = counts or [1] * len(bodies)
    offsets = array("q", [0])
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    zeros = array("q", [0] * len(bodies)).tobytes()
    return EntryRun(
        1,
        len(bodies),
        b"".join(bodies),
        offsets.tobytes(),
        array("q", range(len(bodies))).tobytes(),
        zeros,
        array("q", counts).tobytes(),
        None,
        array("I", [0] * len(bodies)).tobytes(),
        0,
        0,
        sum(counts),
        True,
        offsets[-1],
    )


def message(payload: bytes = b"x", publish_time: int = 1000) -> bytes:
    """Headers and payload as a client sends them (without checksum)."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_time).SerializeToString()
    return len(metadata).to_bytes(4, "big") + metadata + payload


class Ground:
    """The stores and a factory on them."""

    def __init__(
        self,
        ledgers: MemoryLedgerStore | None = None,
        metadata: MemoryMetadataStore | None = None,
        layout: StoredLayout | None = None,
        created_ms: Mapping[str, int] | None = None,
    ) -> None:
        """created_ms: the times when nodes of the metadata were created, where the store knows such times."""

        async def created_of(path: str) -> int:
            return (created_ms or {}).get(path, 0)

        self.layout, self.created_ms = layout, created_ms
        self.ledgers = ledgers or MemoryLedgerStore()
        self.metadata = metadata or MemoryMetadataStore()
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.may_roll = True
        self.given_up = asyncio.Event()
        """Set once a managed ledger gave up the creation of its next ledger."""
        self.factory = ManagedLedgerFactory(
            *(self.ledgers, self.metadata, self.clock, self.scheduler, layout, lambda: self.may_roll),
            None if created_ms is None else created_of,
            lambda _name: self.given_up.set(),
        )

    async def open(self, config: ManagedLedgerConfig = KEEP, name: str = NAME) -> ManagedLedger:
        return await self.factory.open(name, config)

    def after_crash(self) -> Ground:
        """The state that the next process finds: confirmed entries and metadata, without pending entries."""
        ledgers = MemoryLedgerStore(cached=self.ledgers.cached)
        ledgers._next_id = self.ledgers._next_id
        for ledger_id, writer in self.ledgers._ledgers.items():
            copy = type(writer)(ledgers, ledger_id, writer.properties)
            copy.slabs, copy.firsts = list(writer.slabs), list(writer.firsts)
            copy.last_add_confirmed = copy.last_add_pushed = writer.last_add_confirmed
            copy.length_bytes, copy.closed = writer.length_bytes, writer.closed
            ledgers._ledgers[ledger_id] = copy
        ground = Ground(ledgers, self.metadata.snapshot(), self.layout, self.created_ms)
        ground.clock.time_s = self.clock.time_s
        return ground

    async def restart(self) -> Ground:
        await self.factory.close()
        ground = Ground(self.ledgers, self.metadata, self.layout, self.created_ms)
        ground.clock.time_s = self.clock.time_s
        return ground


async def append(ledger: ManagedLedger, bodies: Sequence[bytes], counts: Sequence[int] | None = None) -> list[Position]:
    """Append one run and wait; return the positions of its entries. Raises the error of the append."""
    from magnetar.storage.position import Position

    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    ledger.append(run_of(bodies, counts), future.set_result)
    result = await future
    if result.error is not None:
        raise result.error
    return [
        Position(piece.ledger_id, piece.first_entry_id + k)
        for piece in result.pieces
        for k in range(piece.end - piece.start)
    ]


async def given(answer: Any) -> Any:
    """The value itself, or the result of awaiting it."""
    return await answer if inspect.isawaitable(answer) else answer


def payload(span: Span, index: int) -> bytes:
    """The entry as it was appended."""
    body = span.body(index)
    return bytes(body[after_prefix(body) :])


def entries_of(spans: Sequence[Span]) -> list[tuple[Position, bytes, int]]:
    """(position, bytes, broker index) of every entry."""
    return [
        (span.slab.position(span.start + k), payload(span, k), broker_index(span.body(k)))
        for span in spans
        for k in range(span.entries)
    ]


async def read_all(
    cursor: ManagedCursor, max_entries: int = 100, max_bytes: int = 1 << 20
) -> list[tuple[Position, bytes, int]]:
    """(position, bytes, broker index) of every entry from the read position on."""
    found: list[tuple[Position, bytes, int]] = []
    while True:
        spans = await given(cursor.read(max_entries, max_bytes))
        if not spans:
            return found
        found += entries_of(spans)


__all__ = [
    "KEEP",
    "NAME",
    "Ground",
    "append",
    "entries_of",
    "given",
    "message",
    "payload",
    "read_all",
    "run_of",
    "settle",
]


async def opened(config: ManagedLedgerConfig = KEEP, **store: Any) -> tuple[Ground, ManagedLedger]:
    """The stores in memory, and an empty managed ledger on them."""
    ground = Ground(MemoryLedgerStore(**store))
    return ground, await ground.open(config)


def indexes(entries: list[Any]) -> list[int]:
    return [index for _, _, index in entries]


async def everything(ledger: ManagedLedger) -> list[Any]:
    """Every entry of the log, as `read_all` gives them."""
    return await read_all(ledger.new_read_cursor(EARLIEST))
