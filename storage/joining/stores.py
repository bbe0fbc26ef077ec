"""Joins two copies of a store, made at two moments, into the store as of a moment between them.

The metadata, with cursors, policies and deduplication, come from the copy before. They are older than the end of the
log, as after a power failure. Ledgers keep their ids and entries their positions. The result never reuses a ledger id
of the copy behind.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from magnetar.storage.embedded.engine import EmbeddedStorage, EngineSettings, open_embedded
from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.files import RealFiles
from magnetar.storage.embedded.layout import Layout
from magnetar.storage.embedded.ledger_catalog import IDS_PATH, ledger_path
from magnetar.storage.embedded.ledger_files import LedgerFiles
from magnetar.storage.embedded.ledger_head import proof_of
from magnetar.storage.embedded.ledger_reader import LedgerReader
from magnetar.storage.embedded.store_version import STORE_NODE, read_version, store_id_of
from magnetar.storage.errors import CorruptEntryError, StorageError, StoreMismatchError
from magnetar.storage.interfaces import SystemClock
from magnetar.storage.joining.logs import JoinedLog, Source, cursors_at_earliest, join_logs, source_of
from magnetar.storage.managed.ledger_list import ROOT, ledger_list_path
from magnetar.storage.managed.ledger_map import LedgerMap
from magnetar.storage.managed.position_search import PositionSearch
from magnetar.storage.managed.stored_layout import CursorRecord, ListRecord, OwnLayout
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.storage.interfaces import Clock, LedgerStore, MetadataStore

__all__ = ["TopicNodes", "join_stores", "store_of"]

_LAYOUT: Final = OwnLayout()
_MAX_RECORD_BYTES: Final = 1 << 30
_OPEN_FILES: Final = 16
_SETTINGS: Final = EngineSettings(max_record_bytes=_MAX_RECORD_BYTES)
"""With this limit no entry of the store is too large, whatever limit the broker had."""


class TopicNodes(NamedTuple):
    """The metadata nodes that the layers above have for a managed ledger, by the name of the managed ledger."""

    schemas: Callable[[str], Sequence[str]]
    """The nodes to take from the copy behind, because schemas only grow and entries refer to them."""
    leading: Callable[[str], Sequence[str]]
    """The nodes to take from the copy behind for a new managed ledger, if the copy before lacks them."""


@dataclass(slots=True)
class _Part:
    """The parts of a topic that come from the copy behind."""

    name: str
    source: Source
    log: JoinedLog
    cursors: dict[str, CursorRecord]
    nodes: dict[str, bytes] = field(default_factory=dict)
    """Other nodes of the metadata to add."""


@dataclass(slots=True)
class _Taken:
    """A ledger whose file comes from the copy behind."""

    entries: int
    whole: int
    """The number of entries that the ledger has in the copy behind."""
    length_bytes: int
    """The bytes of all records; after ``_Lengths.measure`` the bytes of the records to keep."""
    properties: dict[str, str]


async def join_stores(data: Path, behind: Path, until_ms: int, nodes: TopicNodes, clock: Clock | None = None) -> None:
    """Turn `data`, the copy before, into the store as of the moment. The call consumes `behind`: it moves files out of
    it.

    After a failure neither directory is usable. Raises: StoreMismatchError when `behind` does not continue `data`,
    StorageError, OSError.
    """
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        result = await open_embedded(str(data), _SETTINGS)
        stack.push_async_callback(result.close)
        other = await open_embedded(str(behind), _SETTINGS)
        stack.push_async_callback(other.close)
        store_id = await _store_id(result.metadata)
        if store_id != await _store_id(other.metadata):
            raise StoreMismatchError("they are of different stores")
        join = _Join(result, other, until_ms, nodes, clock)
        await join.plan()
        await other.close()
        lengths = _Lengths(str(behind), store_id, clock)
        try:
            for ledger_id, taken in join.taken.items():
                if taken.entries < taken.whole:
                    lengths.measure(ledger_id, taken)
        finally:
            lengths.close()
        await join.store()
        await result.close()
        _move_files(Layout(str(data)), Layout(str(behind)), join.taken, store_id, clock)


async def _store_id(metadata: MetadataStore) -> bytes:
    found = store_id_of(await metadata.get(STORE_NODE))
    assert found is not None, "an open store has one"
    return found


class _Join:
    """The decisions of one restore: read from both stores, then written to the result."""

    def __init__(
        self, result: EmbeddedStorage, behind: EmbeddedStorage, until_ms: int, nodes: TopicNodes, clock: Clock
    ) -> None:
        self._result, self._behind, self._until_ms, self._clock = result, behind, until_ms, clock
        self._nodes = nodes
        self._parts: list[_Part] = []
        self._next_id = 0
        self.taken: dict[int, _Taken] = {}

    async def plan(self) -> None:
        self._next_id = await self._behind.metadata.next_sequence(IDS_PATH)
        before = set(await _names(self._result.metadata))
        for name in sorted(before | set(await _names(self._behind.metadata))):
            await self._plan_topic(name)

    async def _plan_topic(self, name: str) -> None:
        before = await _record(self._result.metadata, name)
        behind = await _record(self._behind.metadata, name)
        source = source_of(before, behind, self._until_ms)
        if source in (Source.BEFORE, Source.NEITHER):
            return
        assert behind is not None, "by its source"
        if source is Source.BEHIND:
            before = None
        await self._seal(behind, self._behind.ledgers)
        end_before = None
        if before is not None:
            await self._seal(before, self._result.ledgers)
            end_before = LedgerMap(before.ledgers).last_confirmed
            await self._check_continues(name, before, behind)
        log_behind = LedgerMap(behind.ledgers)
        search = PositionSearch(self._behind.ledgers, log_behind)
        end = await search.first_at_or_after(self._until_ms + 1, end_before)
        log = join_logs(before, behind, end, self._clock.now_ms())
        known = set(await self._cursors(self._result.metadata, name)) if before is not None else set()
        cursors = cursors_at_earliest(
            await self._cursors(self._behind.metadata, name), known, log.record.ledgers, self._until_ms
        )
        for ledger_id, entries in log.taken.items():
            info = await self._behind.ledgers.open_recover(ledger_id)
            self.taken[ledger_id] = _Taken(entries, info.entries, info.length_bytes, dict(info.properties))
        part = _Part(name, source, log, cursors, await self._other_nodes(name, source))
        if source is Source.BEHIND or log.taken or cursors or part.nodes:
            self._parts.append(part)

    async def _seal(self, record: ListRecord, ledgers: LedgerStore) -> None:
        """Close the open ledgers of the list, read their figures, and remove ledgers without entries from the list."""
        for slot in record.ledgers:
            if not slot.closed_at_ms:
                info = await ledgers.open_recover(slot.ledger_id)
                slot.entries, slot.size_bytes = info.entries, info.length_bytes
                slot.closed_at_ms = self._clock.now_ms()
        record.ledgers = [slot for slot in record.ledgers if slot.entries]

    async def _check_continues(self, name: str, before: ListRecord, behind: ListRecord) -> None:
        """Check that the newest ledger that both copies have is continued in the copy behind. Raises StoreMismatchError
        if it is not: an older state was restored between the two copies.
        """
        others = {slot.ledger_id: slot for slot in behind.ledgers}
        for slot in reversed(before.ledgers):
            other = others.get(slot.ledger_id)
            if other is None:
                continue
            last = Position(slot.ledger_id, slot.entries - 1)
            if other.entries < slot.entries or await self._differs(last):
                raise StoreMismatchError(
                    f"the later one does not continue the earlier one (entry {last} of {name}): an older state was "
                    "restored between them"
                )
            return

    async def _differs(self, position: Position) -> bool:
        """Whether the two stores have different entries at the position; False when either entry is damaged."""
        bodies = []
        for ledgers in (self._result.ledgers, self._behind.ledgers):
            try:
                slab = (await ledgers.read(position.ledger_id, position.entry_id, position.entry_id, 1))[0]
            except CorruptEntryError:
                return False
            bodies.append(bytes(slab.body(position.entry_id - slab.first_entry_id)))
        return bodies[0] != bodies[1]

    async def _cursors(self, metadata: MetadataStore, name: str) -> dict[str, CursorRecord]:
        found = {}
        for node in await metadata.children(ledger_list_path(name)):
            value = await metadata.get(f"{ledger_list_path(name)}/{node}")
            if value is not None:
                found[_LAYOUT.cursor_name(node)] = _LAYOUT.decode_cursor(value[0])
        return found

    async def _other_nodes(self, name: str, source: Source) -> dict[str, bytes]:
        """Return the nodes of the topic's schemas, which its messages need, and for a new topic also its ``leading``
        nodes.
        """
        found = {}
        schemas = self._nodes.schemas(name)
        for path in [*schemas, *(self._nodes.leading(name) if source is Source.BEHIND else ())]:
            value, known = await self._behind.metadata.get(path), await self._result.metadata.get(path)
            if value is not None and (known is None or (path in schemas and known[0] != value[0])):
                found[path] = value[0]
        return found

    async def store(self) -> None:
        """Write the metadata of the result. The caller moves the files of the ledgers taken once the result is
        closed.
        """
        metadata = self._result.metadata
        first = await metadata.next_sequence(IDS_PATH)
        if first < self._next_id:
            await metadata.next_sequence(IDS_PATH, self._next_id - first)
        for ledger_id, taken in self.taken.items():
            fields = {
                "state": "closed",
                "last": taken.entries - 1,
                "bytes": taken.length_bytes,
                "properties": taken.properties,
            }
            await metadata.put(ledger_path(ledger_id), json.dumps(fields).encode())
        for part in self._parts:
            await self._store_part(part)

    async def _store_part(self, part: _Part) -> None:
        metadata, path = self._result.metadata, ledger_list_path(part.name)
        if part.source is Source.BEHIND:
            for node in await metadata.children(path):
                await metadata.delete(f"{path}/{node}")
        for slot in part.log.record.ledgers:
            if slot.ledger_id in self.taken:
                slot.size_bytes = self.taken[slot.ledger_id].length_bytes
        await metadata.put(path, _LAYOUT.encode_list(part.log.record))
        for name, cursor in part.cursors.items():
            value = _LAYOUT.encode_cursor(cursor, self._clock.now_ms())
            await metadata.put(f"{path}/{_LAYOUT.cursor_node(name)}", value)
        for node, value in part.nodes.items():
            await metadata.put(node, value)


class _Lengths:
    """Measures the bytes of the entries to keep in their files."""

    def __init__(self, data_dir: str, store_id: bytes, clock: Clock) -> None:
        self._store_id = store_id
        self._files = LedgerFiles(RealFiles(), Layout(data_dir), store_id, clock, _OPEN_FILES)

    def measure(self, ledger_id: int, taken: _Taken) -> None:
        """Set ``taken.length_bytes``. Raises: CorruptEntryError when the last entry to keep is damaged."""
        proof = proof_of(self._store_id, ledger_id, taken.properties)
        reader = LedgerReader(self._files, ledger_id, _MAX_RECORD_BYTES, proof)
        last, end = taken.entries - 1, FILE_HEADER_BYTES + taken.length_bytes
        index, _ = reader.index(taken.whole, taken.length_bytes)
        piece = reader.piece(index.point_for(last), last, end, taken.whole - 1, 1)
        if piece.slab is None or piece.next_offset is None:
            raise CorruptEntryError(Position(ledger_id, last), f"{piece.reason}: choose another moment")
        offsets = piece.slab.offset_view
        behind = offsets[piece.slab.count] - offsets[last - piece.slab.first_entry_id + 1]
        taken.length_bytes = piece.next_offset - behind - FILE_HEADER_BYTES

    def close(self) -> None:
        self._files.close()


def _move_files(data: Layout, behind: Layout, ledgers: dict[int, _Taken], store_id: bytes, clock: Clock) -> None:
    """Move the files of the ledgers taken, cut them behind the last entry to keep and sync them. The first read makes
    index and footer again.
    """
    files = LedgerFiles(RealFiles(), data, store_id, clock, _OPEN_FILES)
    try:
        for ledger_id, taken in ledgers.items():
            Path(behind.ledger(ledger_id)).replace(data.ledger(ledger_id))
            if taken.entries < taken.whole:
                files.truncate(ledger_id, FILE_HEADER_BYTES + taken.length_bytes)
            files.sync(ledger_id)
    finally:
        files.close()


async def _names(metadata: MetadataStore) -> list[str]:
    """The names of all managed ledgers: `tenant/namespace/persistent/topic`."""
    found = []
    for tenant in await metadata.children(ROOT):
        for namespace in await metadata.children(f"{ROOT}/{tenant}"):
            for domain in await metadata.children(f"{ROOT}/{tenant}/{namespace}"):
                prefix = f"{tenant}/{namespace}/{domain}"
                found += [f"{prefix}/{topic}" for topic in await metadata.children(f"{ROOT}/{prefix}")]
    return found


async def _record(metadata: MetadataStore, name: str) -> ListRecord | None:
    value = await metadata.get(ledger_list_path(name))
    return _LAYOUT.decode_list(value[0]) if value is not None else None


def store_of(data_dir: Path) -> bytes | None:
    """Return the id of the store of a data directory, None if it is unknown. Changes nothing."""
    try:
        found, _ = read_version(RealFiles(), Layout(str(data_dir)))
    except (OSError, StorageError):
        return None
    return found[1] if found is not None else None
