"""Reads: from memory when the cache holds the entry, else in large pieces from the ledger file, with one piece of
read-ahead.

A read that continues where a piece ended is sequential: the engine fetches the next piece while the caller consumes
this piece, so the next ``read_cached`` finds the next piece. A piece is one slab over one buffer; nothing is copied.
The direct reader reads such pieces without a thread; the pool reads all others, and those that the direct reader does
not take, that fail or that have damage: a search behind damage may take long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from magnetar.storage.embedded.ledger_files import ReadOnce
from magnetar.storage.embedded.ledger_reader import LedgerBytes, LedgerReader, Piece
from magnetar.storage.embedded.parked_bytes import ParkedBytes
from magnetar.storage.errors import (
    CorruptEntryError,
    DamagedFileError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
)
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.embedded.cold_reads import ColdReads
    from magnetar.storage.embedded.direct_reader import DirectReader, ReadRecords
    from magnetar.storage.embedded.lanes import Pool
    from magnetar.storage.embedded.ledger_files import LedgerFiles
    from magnetar.storage.embedded.ledger_index import LedgerIndex
    from magnetar.storage.embedded.ledger_state import LedgerState
    from magnetar.storage.entry_cache import EntryCache
    from magnetar.storage.interfaces import Clock
    from magnetar.storage.slab import Slab

__all__ = ["ReadPath", "check_range"]

_MIN_PIECE_BYTES = 128 << 10
_REMEMBERED_PIECES = 4096


class _Next(NamedTuple):
    """The start of the piece behind a piece."""

    entry_id: int
    offset: int
    sequential: bool


class _Job(NamedTuple):
    """A call of ``LedgerReader.piece``."""

    reader: LedgerReader
    point: tuple[int, int]
    entry_id: int
    end: int
    last_entry_id: int
    size: int


class ReadPath:
    """The reads of all ledgers. Loop only; the jobs run in the pool."""

    def __init__(
        self,
        files: LedgerFiles,
        cache: EntryCache,
        pool: Pool,
        on_indexed: Callable[[LedgerState], None],
        cold: ColdReads,
        clock: Clock,
        direct: DirectReader | None,
        *,
        piece_bytes: int,
        max_record_bytes: int,
    ) -> None:
        self._files, self._once = files, ReadOnce(files)
        self._cache, self._pool, self._on_indexed = cache, pool, on_indexed
        self._cold, self._now_s = cold, clock.now_s
        self._direct = direct
        self._piece_bytes, self._max_record_bytes = piece_bytes, max_record_bytes
        self._loading: dict[tuple[int, int], asyncio.Future[Piece]] = {}
        self._behind: OrderedDict[tuple[int, int], _Next] = OrderedDict()
        """The next pieces by (ledger, first entry of the piece before)."""
        self._begins: OrderedDict[tuple[int, int], _Next] = OrderedDict()
        """The next pieces by (ledger, first entry of the next piece)."""
        self.file_reads = self.file_read_bytes = self.read_aheads = self.corrupt_entries = 0

    def cached(self, ledger: LedgerState, entry_id: int) -> Slab | None:
        """The slab with this entry, if it is in memory."""
        slab = self._cache.get(ledger.ledger_id, entry_id) or ledger.unwritten_slab(entry_id)
        if slab is not None and self._behind:
            self._go_ahead(ledger, slab)
        return slab

    async def read(self, ledger: LedgerState, first: int, last: int, max_bytes: int) -> list[Slab]:
        """See ``LedgerStore.read``. Precondition: entry ``first`` is confirmed."""
        found: list[Slab] = []
        entry, size = first, 0
        last = min(last, ledger.last_confirmed)
        while entry <= last and (not found or size < max_bytes):
            slab = self.cached(ledger, entry)
            if slab is None:
                if found:
                    break  # available entries go out at once
                slab = await self._load(ledger, entry, max_bytes if last > entry else 0)
            if found and slab.first_entry_id < entry:
                slab = slab.part(entry - slab.first_entry_id, slab.count)  # pieces may overlap, the result does not
            found.append(slab)
            entry = slab.last_entry_id + 1
            size += slab.size_bytes
        return found

    async def close(self) -> None:
        """Wait for the reads of the direct reader, and close it. The pool may still have to read their pieces."""
        if self._direct is not None:
            await self._direct.close()

    async def _load(self, ledger: LedgerState, entry_id: int, want_bytes: int) -> Slab:
        try:
            if ledger.index is None:
                await self._fetch_index(ledger)
            before = self._begins.get((ledger.ledger_id, entry_id))
            piece = await asyncio.shield(self._start(ledger, entry_id, before, want_bytes))
        except StorageError:
            if ledger.deleted:
                raise NoSuchLedgerError(ledger.ledger_id) from None
            raise
        if ledger.deleted:  # the file may lack confirmed entries: write-behind passes over deleted ledgers
            raise NoSuchLedgerError(ledger.ledger_id)
        slab = piece.slab
        if slab is None or not slab.first_entry_id <= entry_id <= slab.last_entry_id:
            self.corrupt_entries += 1
            raise CorruptEntryError(
                Position(ledger.ledger_id, entry_id), piece.reason or "not found in its ledger file"
            )
        self._go_ahead(ledger, slab)
        return slab

    def _start(
        self, ledger: LedgerState, entry_id: int, before: _Next | None, want_bytes: int
    ) -> asyncio.Future[Piece]:
        """Begin (or join) the load of the piece with this entry."""
        key = (ledger.ledger_id, entry_id)
        if (loading := self._loading.get(key)) is not None:
            return loading
        future: asyncio.Future[Piece] = asyncio.get_running_loop().create_future()
        self._loading[key] = future
        sequential = before is not None
        if before is not None:
            point = (entry_id, before.offset)
        else:
            assert ledger.index is not None
            point = ledger.index.point_for(entry_id)
        size = self._piece_bytes if sequential else min(max(want_bytes, _MIN_PIECE_BYTES), self._piece_bytes)
        # A piece that was read before is read again: then the system's cache shall keep its bytes.
        is_first = sequential and key not in self._behind
        source: LedgerBytes = self._once if is_first else self._files
        once: ReadOnce | ParkedBytes | None = self._once if is_first else None
        parked = ledger.parked(entry_id, point[1] + size)
        if parked:
            source = once = ParkedBytes(parked)
            if point[0] < parked[0].first_entry_id:
                point = (parked[0].first_entry_id, parked[0].offset)
            last = parked[-1]
            end, last_entry_id = last.offset + last.size_bytes, last.last_entry_id
        else:
            # The present end of the file; later entries are in memory or parked.
            end, last_entry_id = ledger.written_offset, ledger.written_entry
        reader = LedgerReader(source, ledger.ledger_id, self._max_record_bytes, ledger.proof)

        def loaded(piece: Piece | None, error: BaseException | None) -> None:
            del self._loading[key]
            self._cold.end(self._now_s())
            if parked and (piece is None or piece.slab is None) and entry_id <= ledger.written_entry:
                # Write-behind was faster, and the journal has used the segment again.
                again = self._start(ledger, entry_id, before, want_bytes)
                again.add_done_callback(lambda done: _pass_on(done, future))
            elif piece is not None:
                self._keep(ledger, piece, sequential=sequential)
                future.set_result(piece)
            else:
                future.set_exception(_as_storage_error(error))
                future.exception()  # mark as retrieved: a read-ahead has no caller

        self._cold.begin(self._now_s())
        self._run(_Job(reader, point, entry_id, end, last_entry_id, size), once if sequential else None, loaded)
        return future

    def _run(
        self,
        job: _Job,
        source: ReadOnce | ParkedBytes | None,
        done: Callable[[Piece | None, BaseException | None], None],
    ) -> None:
        """Read the piece from `source` without a thread if the direct reader takes the read and the bytes suffice, else
        in the pool.
        """
        reader, point, entry_id, end, last_entry_id, size = job

        def in_pool() -> None:
            self._pool.run(lambda: reader.piece(point, entry_id, end, last_entry_id, size), done)

        def arrived(found: ReadRecords | None) -> bool:
            try:
                piece = None if found is None else reader.intact_piece(found, point, entry_id)
            except MemoryError:
                piece = None
            if piece is None:
                in_pool()
            else:
                done(piece, None)
            return piece is not None

        window = reader.window(point, entry_id, end, size)
        if self._direct is None or source is None or not source.begin(self._direct, reader.wanted(), *window, arrived):
            in_pool()

    def _keep(self, ledger: LedgerState, piece: Piece, *, sequential: bool) -> None:
        self.file_reads += 1
        self.file_read_bytes += piece.bytes_read
        slab = piece.slab
        if slab is None or ledger.deleted:
            return
        self._cache.put_piece(slab)
        following = slab.last_entry_id + 1
        if piece.next_offset is not None and following <= ledger.last_confirmed:
            item = _Next(following, piece.next_offset, sequential)
            for remembered, entry in ((self._behind, slab.first_entry_id), (self._begins, following)):
                remembered[ledger.ledger_id, entry] = item
                if len(remembered) > _REMEMBERED_PIECES:
                    remembered.popitem(last=False)

    def _go_ahead(self, ledger: LedgerState, slab: Slab) -> None:
        """Fetch the next piece while the caller consumes this piece, if the caller reads the ledger in order."""
        following = self._behind.get((ledger.ledger_id, slab.first_entry_id))
        if following is None or not following.sequential:
            return
        if following.entry_id > ledger.written_entry and not ledger.parked(following.entry_id, 0):
            return
        key = (ledger.ledger_id, following.entry_id)
        if key not in self._loading and self._cache.peek(*key) is None:
            self.read_aheads += 1
            self._start(ledger, following.entry_id, following, self._piece_bytes)

    async def _fetch_index(self, ledger: LedgerState) -> None:
        """Load the index of a ledger that was closed before this process began, or make it again."""
        if ledger.fetching_index is None:
            ledger.fetching_index = asyncio.get_running_loop().create_future()
            reader = LedgerReader(self._files, ledger.ledger_id, self._max_record_bytes, ledger.proof)
            entries, length = ledger.last_confirmed + 1, ledger.length_bytes

            def loaded(result: tuple[LedgerIndex, bool] | None, error: BaseException | None) -> None:
                future, ledger.fetching_index = ledger.fetching_index, None
                assert future is not None
                if result is None:
                    future.set_exception(_as_storage_error(error))
                    future.exception()
                    return
                ledger.index, rebuilt = result
                if rebuilt and ledger.closed and not ledger.deleted:
                    self._on_indexed(ledger)
                future.set_result(None)

            self._pool.run(lambda: reader.index(entries, length), loaded)
        await asyncio.shield(ledger.fetching_index)


def _pass_on(done: asyncio.Future[Piece], future: asyncio.Future[Piece]) -> None:
    error = done.exception()
    if error is None:
        future.set_result(done.result())
    else:
        future.set_exception(error)
        future.exception()


def _as_storage_error(error: BaseException | None) -> StorageError:
    """The error of a failed job; readers try again after any StorageError, also after a lack of memory or threads."""
    if isinstance(error, StorageError):
        return error
    wrapped = (
        DamagedFileError(str(error.filename or "ledger file"), 0, str(error))
        if isinstance(error, OSError)
        else StorageError(f"read of a ledger file: {error!r}")
    )
    wrapped.__cause__ = error
    return wrapped


def check_range(ledger: LedgerState, entry_id: int) -> None:
    """Raises NoSuchEntryError unless the entry is confirmed."""
    if not 0 <= entry_id <= ledger.last_confirmed:
        raise NoSuchEntryError(ledger.ledger_id, entry_id)
