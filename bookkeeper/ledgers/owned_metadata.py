"""The metadata of a ledger as its writer keeps them: the writer's changes, and the proof that no other client has
taken over the ledger.

A *confirmation* is a read of the newest metadata, or a successful compare-and-set, that shows the ledger still open
with the segment that this writer wrote. Without a confirmation an acknowledgement proves nothing: a bookie that holds
no entry of a ledger may lose the ledger's fence in a crash, and then acknowledge entries of a fenced writer. But a
recovery changes the metadata before it fences. So if the metadata are unchanged after the acknowledgements arrived, the
entries were on their bookies before any recovery sent a fence, and every later recovery finds them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from magnetar.bookkeeper.deadlines import deadline
from magnetar.bookkeeper.errors import (
    LedgerFencedError,
    MetadataUnavailableError,
    NodeVersionError,
    NoSuchLedgerError,
)
from magnetar.bookkeeper.metadata.ledger_metadata import LedgerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata, Versioned
    from magnetar.bookkeeper.metadata.ports import LedgerMetadataStore

__all__ = ["OwnedMetadata", "deadline_of_close"]

_RETRY_S = 0.05
_LONGEST_RETRY_S = 1.0


class OwnedMetadata:
    """Executes one operation at a time. A call waits while the metadata service is unreachable; cancel the call to end
    the wait.
    """

    def __init__(self, store: LedgerMetadataStore, ledger_id: int, metadata: LedgerMetadata, version: int) -> None:
        self.current = metadata
        self._store, self._ledger_id, self._version = store, ledger_id, version
        self._turn = asyncio.Lock()

    @property
    def version(self) -> int:
        """The version of ``current``."""
        return self._version

    async def confirm(self) -> None:
        """Read the newest metadata. Raises LedgerFencedError unless this writer still owns the ledger."""
        async with self._turn:
            self._check_owned()
            await self._reread()

    async def change(self, make: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
        """Write ``make(current)`` by compare-and-set. On return ``current`` is the written value; a successful write is
        a confirmation too.

        Raises LedgerFencedError.
        """
        async with self._turn:
            while True:
                self._check_owned()
                wanted = make(self.current)
                if await self._try_write(wanted):
                    return

    async def close(self, last_entry_id: int, length: int) -> None:
        """Close the ledger with this last entry and length. Raises LedgerFencedError when another client recovers the
        ledger or closed it with another end.
        """
        async with self._turn:
            written = self._ends_at(last_entry_id, length)
            while not written:
                self._check_owned()
                wanted = self.current.closed(last_entry_id, length)
                try:
                    written = await self._try_write(wanted)
                except LedgerFencedError:
                    written = self._ends_at(last_entry_id, length)  # a recovery may have found the same end
                    if not written:
                        raise

    async def _try_write(self, wanted: LedgerMetadata) -> bool:
        """Write the metadata. Return False when nothing was written, although this writer owns the ledger: try again
        with the newest metadata.
        """
        try:
            self._version = await self._store.write(self._ledger_id, wanted, self._version)
        except NodeVersionError:
            await self._reread()
            return False
        except NoSuchLedgerError as error:
            raise LedgerFencedError(self._ledger_id, "it was deleted") from error
        except MetadataUnavailableError:
            found = await self._read()
            if found.version == self._version + 1 and found.metadata == wanted:
                self._version, self.current = found.version, found.metadata
                return True  # the write succeeded, only its answer was lost
            await self._reread()
            return False
        self.current = wanted
        return True

    def _check_owned(self) -> None:
        """Refuse an operation that waited while an operation before it found the ledger in recovery or closed. Raises
        LedgerFencedError.
        """
        if self.current.state is not LedgerState.OPEN:
            raise LedgerFencedError(self._ledger_id, f"its metadata say {self.current.state.name}")

    def _ends_at(self, last_entry_id: int, length: int) -> bool:
        found = self.current
        return found.is_closed and (found.last_entry_id, found.length) == (last_entry_id, length)

    async def _reread(self) -> None:
        found = await self._read()
        if found.version == self._version:
            return
        if found.metadata.state is not LedgerState.OPEN:
            self.current = found.metadata
            raise LedgerFencedError(self._ledger_id, f"its metadata say {found.metadata.state.name}")
        if found.metadata.last_segment != self.current.last_segment:
            raise LedgerFencedError(self._ledger_id, "another client changed its ensemble")
        self._version, self.current = found.version, found.metadata  # earlier segments changed: auto-recovery

    async def _read(self) -> Versioned:
        delay_s = _RETRY_S
        while True:
            try:
                return await self._store.read(self._ledger_id, latest=True)
            except NoSuchLedgerError as error:
                raise LedgerFencedError(self._ledger_id, "it was deleted") from error
            except MetadataUnavailableError:
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LONGEST_RETRY_S)


@contextlib.asynccontextmanager
async def deadline_of_close(ledger_id: int, limit_s: float) -> AsyncIterator[None]:
    """Raise MetadataUnavailableError when the block takes longer."""
    try:
        async with deadline(limit_s):
            yield
    except TimeoutError as error:
        raise MetadataUnavailableError(f"ledger {ledger_id} is not closed within {limit_s:g} s") from error
