"""LedgerStore in memory: the reference the embedded engine is compared with, and a fast store for tests.

``hold()`` keeps appends pending until ``release()``; ``fail_appends`` makes them fail: with these a test drives every
order of completion by hand.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from magnetar.storage.errors import (
    CorruptEntryError,
    EntryTooLargeError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageClosedError,
    StorageError,
)
from magnetar.storage.interfaces import AppendDone, LedgerInfo, PromptDone
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.storage.slab import Slab

__all__ = ["MemoryLedgerStore", "MemoryLedgerWriter"]


class MemoryLedgerWriter:
    """One ledger: confirmed slabs and pending appends."""

    def __init__(self, store: MemoryLedgerStore, ledger_id: int, properties: Mapping[str, str]) -> None:
        self.ledger_id, self.record_proof = ledger_id, -1
        self.properties = dict(properties)
        self.slabs: list[Slab] = []
        self.firsts: list[int] = []
        self.last_add_pushed = -1
        self.last_add_confirmed = -1
        self.length_bytes = 0
        self.refuse: type[LedgerClosedError | LedgerFencedError | NoSuchLedgerError] | None = None
        self.closed = False
        self._store = store
        self._pending: deque[tuple[Slab, AppendDone, StorageError | None]] = deque()
        self._failure: StorageError | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def failure(self) -> StorageError | None:
        return None if self.refuse is None else self.refuse(self.ledger_id)

    def append(self, slab: Slab, done: AppendDone) -> None:
        if slab.ledger_id != self.ledger_id or slab.first_entry_id != self.last_add_pushed + 1:
            raise AssertionError(f"{slab!r} does not follow {self.ledger_id}:{self.last_add_pushed}")
        refused: StorageError | None = None
        if self.refuse is not None:
            refused = self.refuse(self.ledger_id)
        elif self._store.largest(slab) > self._store.max_record_bytes:
            refused = EntryTooLargeError(
                self.ledger_id, slab.first_entry_id, self._store.largest(slab), self._store.max_record_bytes
            )
        self.last_add_pushed = slab.last_entry_id
        self._pending.append((slab, done, refused))
        self._store.wake(self)

    def complete(self) -> None:
        """Confirm or fail everything pending, in order."""
        count = len(self._pending)
        for _ in range(count):
            slab, done, refused = self._pending.popleft()
            error = self._failure or self._store.closed_error() or refused or self._store.fail_appends
            if error is None:
                if isinstance(done, PromptDone) and (notice := done.notice()) is not None:
                    notice()
                self._confirm(slab)
            else:
                self._failure = error
            if self._failure is not None and not self._pending:
                self.last_add_pushed, self._failure = self.last_add_confirmed, None
            done(error)
        if not self._pending:
            waiting, self._idle = self._idle, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def wait_idle(self) -> None:
        """Wait until no append is pending."""
        if self._pending:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    async def close(self) -> LedgerInfo:
        if self.refuse is None:
            self.refuse = LedgerClosedError
        await self.wait_idle()
        if self._store.fail_closes is not None:
            raise self._store.fail_closes
        self.closed = True
        return self.info()

    def info(self) -> LedgerInfo:
        return LedgerInfo(self.ledger_id, self.last_add_confirmed, self.length_bytes, self.properties)

    def slab_with(self, entry_id: int) -> Slab:
        """The slab holding a confirmed entry."""
        return self.slabs[bisect_right(self.firsts, entry_id) - 1]

    def _confirm(self, slab: Slab) -> None:
        self.slabs.append(slab)
        self.firsts.append(slab.first_entry_id)
        self.last_add_confirmed = slab.last_entry_id
        self.length_bytes += slab.size_bytes


class MemoryLedgerStore:
    """LedgerStore whose entries live as long as the object. With ``cached=False`` every read has to be awaited."""

    def __init__(self, *, max_record_bytes: int = 16 << 20, cached: bool = True, first_ledger_id: int = 0) -> None:
        self.max_record_bytes = max_record_bytes
        self.cached = cached
        self.fail_appends: StorageError | None = None
        self.fail_closes: StorageError | None = None
        """Closes and recoveries raise this: the store cannot store the end of a ledger."""
        self.corrupt: set[Position] = set()
        """Entries whose reading raises CorruptEntryError."""
        self.reads = 0
        """Calls of ``read``."""
        self._ledgers: dict[int, MemoryLedgerWriter] = {}
        self._next_id = first_ledger_id
        self._held = False
        self._woken: dict[int, MemoryLedgerWriter] = {}
        self._scheduled = False
        self._closed = False

    def hold(self) -> None:
        """Let appends wait until ``release``."""
        self._held = True

    def release(self) -> None:
        """Complete the waiting appends, and from now on every append at once."""
        self._held = False
        self._schedule()

    def wake(self, writer: MemoryLedgerWriter) -> None:
        """Schedule the writer, which has pending appends."""
        self._woken[writer.ledger_id] = writer
        self._schedule()

    def closed_error(self) -> StorageError | None:
        return StorageClosedError("store is closed") if self._closed else None

    @staticmethod
    def largest(slab: Slab) -> int:
        """Size of the slab's largest record."""
        offsets = slab.offset_view
        return max(offsets[k + 1] - offsets[k] for k in range(slab.count))

    async def create(self, properties: Mapping[str, str] | None = None) -> MemoryLedgerWriter:
        self._check_open()
        writer = MemoryLedgerWriter(self, self._next_id, properties or {})
        self._next_id += 1
        self._ledgers[writer.ledger_id] = writer
        return writer

    async def open_recover(self, ledger_id: int) -> LedgerInfo:
        writer = self._ledger(ledger_id)
        if not writer.closed:
            writer.refuse = LedgerFencedError
            await writer.wait_idle()
            if self.fail_closes is not None:
                raise self.fail_closes
            writer.closed = True
        return writer.info()

    def read_cached(self, ledger_id: int, first: int, last: int, max_bytes: int) -> Slab | None:
        writer = self._ledgers.get(ledger_id)
        if not self.cached or writer is None or not 0 <= first <= writer.last_add_confirmed:
            return None
        slab = writer.slab_with(first)
        return None if self._damaged_in(slab) else slab

    async def read(self, ledger_id: int, first: int, last: int, max_bytes: int) -> list[Slab]:
        self.reads += 1
        writer = self._ledger(ledger_id)
        if not 0 <= first <= writer.last_add_confirmed:
            raise NoSuchEntryError(ledger_id, first)
        if Position(ledger_id, first) in self.corrupt:
            raise CorruptEntryError(Position(ledger_id, first), "set by the test")
        found: list[Slab] = []
        entry, size = first, 0
        while entry <= min(last, writer.last_add_confirmed) and (not found or size < max_bytes):
            slab = writer.slab_with(entry)
            good = self._good_part(slab, entry)
            if good is None:
                break
            found.append(good)
            size += good.size_bytes
            entry = good.last_entry_id + 1
        return found

    async def delete(self, ledger_id: int) -> None:
        self._check_open()
        writer = self._ledgers.pop(ledger_id, None)
        if writer is not None:
            writer.refuse = NoSuchLedgerError
            await writer.wait_idle()

    async def list_ledgers(self) -> list[int]:
        self._check_open()
        return sorted(self._ledgers)

    async def properties(self, ledger_id: int) -> Mapping[str, str]:
        return self._ledger(ledger_id).properties

    async def close(self) -> None:
        self._held = False
        self._complete()
        self._closed = True

    def _schedule(self) -> None:
        if not self._scheduled and not self._held and self._woken:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._complete)

    def _complete(self) -> None:
        self._scheduled = False
        if self._held:
            return
        woken, self._woken = self._woken, {}
        for writer in woken.values():
            writer.complete()

    def _ledger(self, ledger_id: int) -> MemoryLedgerWriter:
        self._check_open()
        writer = self._ledgers.get(ledger_id)
        if writer is None:
            raise NoSuchLedgerError(ledger_id)
        return writer

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosedError("store is closed")

    def _damaged_in(self, slab: Slab) -> bool:
        return bool(self.corrupt) and any(slab.position(k) in self.corrupt for k in range(slab.count))

    def _good_part(self, slab: Slab, entry_id: int) -> Slab | None:
        """The slab without its damaged entries, as far as it is whole around ``entry_id``."""
        if not self._damaged_in(slab):
            return slab
        index = entry_id - slab.first_entry_id
        end = index
        while end < slab.count and slab.position(end) not in self.corrupt:
            end += 1
        return slab.part(index, end) if end > index else None
