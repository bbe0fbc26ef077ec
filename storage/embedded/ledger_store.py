"""LedgerStore of the embedded engine. Loop only."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_head import proof_of, with_proof
from magnetar.storage.embedded.ledger_index import LedgerIndex
from magnetar.storage.embedded.ledger_reader import LedgerReader
from magnetar.storage.embedded.ledger_state import LedgerState
from magnetar.storage.embedded.read_path import check_range
from magnetar.storage.errors import (
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLedgerError,
    StorageClosedError,
    StorageError,
)
from magnetar.storage.records import PROOF_OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.storage.embedded.append_path import AppendPath
    from magnetar.storage.embedded.checkpoints import Checkpointer
    from magnetar.storage.embedded.ledger_catalog import LedgerCatalog, LedgerNode
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.read_path import ReadPath
    from magnetar.storage.embedded.recovery.engine_recovery import Recovered
    from magnetar.storage.entry_cache import EntryCache
    from magnetar.storage.interfaces import AppendDone, LedgerInfo
    from magnetar.storage.slab import Slab

__all__ = ["EmbeddedLedgerStore", "EmbeddedLedgerWriter"]

_MAX_CLOSED_STATES = 10_000
_FORGOTTEN_AT_ONCE = 4


class EmbeddedLedgerWriter:
    """LedgerWriter of one ledger."""

    __slots__ = ("_appends", "_proof_bytes", "_state", "_store", "ledger_id", "record_proof")

    def __init__(self, store: EmbeddedLedgerStore, state: LedgerState, appends: AppendPath) -> None:
        self.ledger_id, self.record_proof = state.ledger_id, state.proof
        self._proof_bytes = state.proof.to_bytes(8, "little", signed=True)
        self._store, self._state, self._appends = store, state, appends

    @property
    def last_add_pushed(self) -> int:
        return self._state.pushed

    @property
    def last_add_confirmed(self) -> int:
        return self._state.last_confirmed

    @property
    def length_bytes(self) -> int:
        return self._state.length_bytes

    @property
    def failure(self) -> StorageError | None:
        return self._state.refusal

    def append(self, slab: Slab, done: AppendDone) -> None:
        state = self._state
        if slab.ledger_id != self.ledger_id or slab.first_entry_id != state.pushed + 1 or not slab.count:
            raise AssertionError(f"{slab!r} does not follow {self.ledger_id}:{state.pushed}")
        proof_at = slab.offset_view[0] + PROOF_OFFSET
        if slab.data[proof_at : proof_at + 8] != self._proof_bytes:
            raise AssertionError(f"{slab!r} has no proof of its ledger: no reader would find its entries")
        error: StorageError | None = None
        if state.refusal is not None:
            error = state.refusal
        elif self._store.closed:
            error = StorageClosedError("the store is closed")
        elif slab.size_bytes > self._store.max_record_bytes:
            error = self._too_large(slab)
        self._appends.submit(state, slab, done, error)

    async def close(self) -> LedgerInfo:
        return await self._store.seal(self._state, LedgerClosedError)

    def _too_large(self, slab: Slab) -> EntryTooLargeError | None:
        offsets, limit = slab.offset_view, self._store.max_record_bytes
        for index in range(slab.count):
            size = offsets[index + 1] - offsets[index]
            if size > limit:
                return EntryTooLargeError(self.ledger_id, slab.first_entry_id + index, size, limit)
        return None


class EmbeddedLedgerStore:
    """``LedgerStore`` states the guarantees of each method."""

    def __init__(
        self,
        catalog: LedgerCatalog,
        appends: AppendPath,
        reads: ReadPath,
        checkpointer: Checkpointer,
        cache: EntryCache,
        files: LedgerFiles,
        recovered: Recovered,
        *,
        store_id: bytes,
        max_record_bytes: int,
    ) -> None:
        self.max_record_bytes = max_record_bytes
        self._store_id = store_id
        self._catalog, self._appends, self._reads = catalog, appends, reads
        self._checkpointer, self._cache, self._files = checkpointer, cache, files
        self._recovered = recovered
        self._states: dict[int, LedgerState] = {}
        self._loading: dict[int, asyncio.Future[None]] = {}
        self._closed_ids: deque[int] = deque()
        """Closed ledgers with a state in memory, those that closed or were loaded first in front; some are deleted."""
        self.closed = False

    @property
    def loaded_ledgers(self) -> int:
        """Ledgers with a state in memory."""
        return len(self._states)

    async def create(self, properties: Mapping[str, str] | None = None) -> EmbeddedLedgerWriter:
        self._check_open()
        ledger_id = await self._catalog.new_id()
        state = self._new_state(ledger_id, with_proof(properties or {}))
        state.index = LedgerIndex()
        state.metadata_version = await self._catalog.add(ledger_id, state.properties)
        self._files.identify(ledger_id, state.properties)
        self._states[ledger_id] = state
        return EmbeddedLedgerWriter(self, state, self._appends)

    async def open_recover(self, ledger_id: int) -> LedgerInfo:
        self._check_open()
        return await self.seal(await self._state(ledger_id), LedgerFencedError)

    def read_cached(self, ledger_id: int, first: int, last: int, max_bytes: int) -> Slab | None:  # noqa: ARG002 - hints for stores that copy
        state = self._states.get(ledger_id)
        return self._reads.cached(state, first) if state is not None and first <= state.last_confirmed else None

    async def read(self, ledger_id: int, first: int, last: int, max_bytes: int) -> list[Slab]:
        self._check_open()
        state = self._states.get(ledger_id) or await self._state(ledger_id)
        check_range(state, first)
        return await self._reads.read(state, first, last, max_bytes)

    async def delete(self, ledger_id: int) -> None:
        self._check_open()
        if not await self._catalog.begin_delete(ledger_id):
            return
        state = self._states.pop(ledger_id, None) or LedgerState(ledger_id, {})
        state.deleted = True
        state.refusal = NoSuchLedgerError(ledger_id)
        self._cache.drop_ledger(ledger_id)
        await self._appends.wait_idle(state)
        removed: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        self._checkpointer.remove(state, lambda error: None if removed.done() else removed.set_result(error))
        if await removed is None:
            await self._catalog.end_delete(ledger_id)

    async def list_ledgers(self) -> list[int]:
        self._check_open()
        return await self._catalog.ids()

    async def properties(self, ledger_id: int) -> Mapping[str, str]:
        self._check_open()
        state = self._states.get(ledger_id)
        return state.properties if state is not None else (await self._catalog.get(ledger_id)).properties

    async def close(self) -> None:
        self.closed = True

    async def seal(self, state: LedgerState, refusal: type[LedgerClosedError | LedgerFencedError]) -> LedgerInfo:
        """Refuse further appends with ``refusal``, wait for the pending appends, record the end in the metadata.

        Returns at once for a closed ledger. Raises NoSuchLedgerError for a deleted ledger.
        """
        if state.deleted:
            raise NoSuchLedgerError(state.ledger_id)
        if not state.closed:
            state.refusal = state.refusal or refusal(state.ledger_id)
            await self._appends.wait_idle(state)
            while state.sealing is not None:
                await asyncio.shield(state.sealing)
            if not state.closed:
                await self._record_end(state)
        return state.info()

    async def _record_end(self, state: LedgerState) -> None:
        state.sealing = asyncio.get_running_loop().create_future()
        try:
            state.metadata_version = await self._catalog.close(state)
            state.closed = True
            self._closed_ids.append(state.ledger_id)
            self._forget_some()
        finally:
            sealing, state.sealing = state.sealing, None
            sealing.set_result(None)
        self._checkpointer.touch(state)

    async def _state(self, ledger_id: int) -> LedgerState:
        """The ledger's state, loaded from the metadata when it is not in memory. Raises NoSuchLedgerError."""
        while (state := self._states.get(ledger_id)) is None:
            loading = self._loading.get(ledger_id)
            if loading is None:
                return await self._load(ledger_id)
            await asyncio.shield(loading)  # if its caller is cancelled, the next caller loads
        return state

    async def _load(self, ledger_id: int) -> LedgerState:
        loading = self._loading[ledger_id] = asyncio.get_running_loop().create_future()
        try:
            state = self._states[ledger_id] = self._from_node(ledger_id, await self._catalog.get(ledger_id))
        except StorageError as error:
            loading.set_exception(error)
            loading.exception()  # mark the exception as retrieved: there may be no other caller
            raise
        finally:
            del self._loading[ledger_id]
            if not loading.done():
                loading.set_result(None)
        if state.closed:
            self._closed_ids.append(ledger_id)
            self._forget_some()
        return state

    def _from_node(self, ledger_id: int, node: LedgerNode) -> LedgerState:
        if node.closed:
            state = self._new_state(ledger_id, node.properties, node.last_entry_id, node.length_bytes)
            state.closed = True
        else:
            entries, length = self._end_of_open(ledger_id, node.properties)
            state = self._new_state(ledger_id, node.properties, entries - 1, length)
        state.refusal = LedgerFencedError(ledger_id)
        state.metadata_version = node.version
        return state

    def _new_state(
        self, ledger_id: int, properties: Mapping[str, str], last_entry_id: int = -1, length: int = 0
    ) -> LedgerState:
        proof = proof_of(self._store_id, ledger_id, properties)
        return LedgerState(ledger_id, properties, last_entry_id, length, proof)

    def _end_of_open(self, ledger_id: int, properties: Mapping[str, str]) -> tuple[int, int]:
        """(entries, length) of a ledger that an earlier process left open: from the checkpoint, else from the file."""
        synced = self._recovered.checkpoint.synced.get(ledger_id)
        if synced is not None:
            return synced
        size = self._files.size(ledger_id)
        if size <= FILE_HEADER_BYTES:
            return 0, 0
        proof = proof_of(self._store_id, ledger_id, properties)
        scan = LedgerReader(self._files, ledger_id, self.max_record_bytes, proof).scan(0, FILE_HEADER_BYTES, size)
        return scan.entries, scan.end_offset - FILE_HEADER_BYTES

    def _forget_some(self) -> None:
        """Drop a few states of closed ledgers above a bound, whatever the number of open ledgers; the store can load
        them again.
        """
        for _ in range(min(_FORGOTTEN_AT_ONCE, len(self._closed_ids) - _MAX_CLOSED_STATES)):
            ledger_id = self._closed_ids.popleft()
            state = self._states.get(ledger_id)
            if state is None:
                continue
            if state.unwritten or state.fetching_index is not None or self._checkpointer.holds(ledger_id):
                self._closed_ids.append(ledger_id)
            else:
                del self._states[ledger_id]

    def _check_open(self) -> None:
        if self.closed:
            raise StorageClosedError("the store is closed")
