"""A ledger opened for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from magnetar.bookkeeper.errors import DamagedEntryError, NoSuchEntryError, ReadFailedError
from magnetar.bookkeeper.ledgers.entry_reads import EntryReads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.wire.digests import Digester
    from magnetar.bookkeeper.wire.entries import Entry
    from magnetar.bookkeeper.wire.packed_batches import Records

__all__ = ["LedgerReader"]

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20


class LedgerReader:
    """Made by ``BookKeeper.open`` and ``BookKeeper.reader_of``. Reads the entries up to ``last_add_confirmed``; of a
    ledger that is not closed, that is the last add confirmed when the reader was made.
    """

    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        digester: Digester,
        last_add_confirmed: int,
    ) -> None:
        self.ledger_id, self.metadata = ledger_id, metadata
        self.last_add_confirmed = last_add_confirmed
        """The last entry that the reader can read; -1 when there is none."""
        self._context = context
        self._reads = EntryReads(context, ledger_id, digester)

    @property
    def is_closed(self) -> bool:
        return self.metadata.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of a closed ledger; 0 for a ledger that was not closed when the reader was made."""
        return self.metadata.length

    @property
    def custom_metadata(self) -> Mapping[str, bytes]:
        return self.metadata.custom

    async def read(self, first: int, last: int, max_bytes: int = _CHUNK_BYTES) -> list[Entry]:
        """Return verified entries from `first` on: at least one entry, but possibly not all up to `last`.

        Raises NoSuchEntryError (beyond the end, or lost), DamagedEntryError, ReadFailedError (try again); each error
        concerns entry `first`.
        """
        return await self._read(self._reads.read, first, last, max_bytes)

    async def read_records(self, first: int, last: int, max_bytes: int = _CHUNK_BYTES) -> Records:
        """Like ``read``, but as log records in one buffer (see ``packed_batches``). Raises as ``read``."""
        return await self._read(self._reads.read_records, first, last, max_bytes)

    async def entries(self, first: int = 0, last: int | None = None) -> AsyncIterator[Entry]:
        """Yield the entries ``first .. last`` (by default to the end), in order. Raises the errors of ``read``."""
        end = self.last_add_confirmed if last is None else last
        while first <= end:
            for entry in await self.read(first, end):
                yield entry
                first = entry.entry_id + 1

    async def _read(
        self,
        read: Callable[[LedgerMetadata, int, int, int], Coroutine[object, object, T]],
        first: int,
        last: int,
        max_bytes: int,
    ) -> T:
        if not 0 <= first <= self.last_add_confirmed:
            raise NoSuchEntryError(self.ledger_id, first, f"the ledger ends with {self.last_add_confirmed}")
        last = min(last, self.last_add_confirmed)
        try:
            return await read(self.metadata, first, last, max_bytes)
        except (ReadFailedError, NoSuchEntryError, DamagedEntryError):
            if not await self._was_moved():
                raise
        return await read(self.metadata, first, last, max_bytes)

    async def _was_moved(self) -> bool:
        """Whether BookKeeper's auto-recovery has moved replicas of the ledger, which is closed; if so, take over the
        new metadata. A reader made while the ledger was open may outlive that time.
        """
        found = (await self._context.store.read(self.ledger_id)).metadata
        if found.segments == self.metadata.segments or not found.is_closed:
            return False
        self.metadata = found
        return True
