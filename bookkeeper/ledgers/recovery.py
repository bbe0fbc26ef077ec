"""Recovery: fences the writer of a ledger, finds the last entry and closes the ledger. Several clients may recover the
same ledger at once; the first successful compare-and-set decides the end, and the others return that end.

1. The metadata become IN_RECOVERY (compare-and-set). From here on no writer changes them.
2. The bookies of the last segment are fenced: no writer reaches an ack quorum any more.
3. The recovery reads the entries after the last confirmed entry, in order, and fences with each read, but for the
   bookies' last entries, which step 2 has read. It writes an entry found on any replica to the entry's whole write set.
   The ledger ends before the first entry that so many replicas lack that the entry cannot have been acknowledged.
4. The metadata become CLOSED with that end. After a lost compare-and-set the recovery reads the metadata again, and
   restarts unless the ledger is CLOSED.

An error, a missing answer or a damaged entry never counts as "no such entry".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.deadlines import deadline
from magnetar.bookkeeper.errors import (
    BookieRefusedError,
    BookKeeperError,
    ClientClosedError,
    MetadataUnavailableError,
    NodeVersionError,
    NoSuchLedgerError,
    ReadFailedError,
    RecoveryFailedError,
    WireError,
)
from magnetar.bookkeeper.ledgers.entry_reads import EntryReads
from magnetar.bookkeeper.ledgers.fencing import read_last_confirmed
from magnetar.bookkeeper.ledgers.recovery_adds import RecoveryAdds
from magnetar.bookkeeper.metadata.ledger_metadata import LedgerState, Versioned
from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key
from magnetar.bookkeeper.wire.entries import decode_entry
from magnetar.bookkeeper.wire.frames import ABSENT, DO_FENCING, HIGH_PRIORITY, Code, code_name

if TYPE_CHECKING:
    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.wire.entries import Entry

__all__ = ["recover"]

log = structlog.get_logger(__name__)
_RETRY_S = 0.1
_LONGEST_RETRY_S = 2.0
_FIRST_READ_AHEAD = 2
"""The first reads ask for few entries: most ledgers end at the last add confirmed, and a read of an entry that does not
exist costs as much as any other read.
"""


async def recover(context: LedgerContext, ledger_id: int, digest_type: DigestType | None, password: bytes) -> Versioned:
    """Recover the ledger and return its metadata, closed. On return no writer can add entries, and the ledger has every
    acknowledged entry.

    Raises NoSuchLedgerError, WrongPasswordError, RecoveryFailedError (after ``recovery_timeout_s``; try again).
    """
    delay_s = _RETRY_S
    failure: BookKeeperError | None = None
    try:
        async with deadline(context.options.recovery_timeout_s):
            while True:
                try:
                    closed = await _try_once(context, ledger_id, digest_type, password)
                except (RecoveryFailedError, ReadFailedError, MetadataUnavailableError) as error:
                    if context.background.is_closed:
                        raise ClientClosedError("the client is closed") from error
                    failure = error
                    await asyncio.sleep(delay_s)
                    delay_s = min(delay_s * 2, _LONGEST_RETRY_S)
                else:
                    if closed is not None:
                        return closed
    except TimeoutError as error:
        detail = f"not within {context.options.recovery_timeout_s:g} s{f': {failure}' if failure else ''}"
        raise RecoveryFailedError(ledger_id, detail) from error


async def _try_once(
    context: LedgerContext, ledger_id: int, digest_type: DigestType | None, password: bytes
) -> Versioned | None:
    """Return None when another client changed the metadata meanwhile: the caller has to try again."""
    metadata, version = await context.store.read(ledger_id, latest=True)
    if metadata.is_closed:
        return Versioned(metadata, version)
    try:
        if metadata.state is LedgerState.OPEN:
            metadata = metadata.in_recovery()
            version = await context.store.write(ledger_id, metadata, version)
        attempt = _Recovery(context, ledger_id, metadata, metadata.digest_type or digest_type, password)
        closed = await attempt.run()
        version = await context.store.write(ledger_id, closed, version)
    except NodeVersionError:
        return None
    log.info(events.LEDGER_RECOVERED, ledger_id=ledger_id, last_entry_id=closed.last_entry_id, written=attempt.written)
    return Versioned(closed, version)


class _Recovery:
    def __init__(
        self,
        context: LedgerContext,
        ledger_id: int,
        metadata: LedgerMetadata,
        digest_type: DigestType | None,
        password: bytes,
    ) -> None:
        self.written = 0
        self._context, self._ledger_id, self._metadata = context, ledger_id, metadata
        self._digester = Digester(digest_type or DigestType.CRC32, password)
        self._key = master_key(password)
        self._seen: dict[int, Entry] = {}
        """The bookies' last entries, read with the fence."""
        self._adds = RecoveryAdds(context, ledger_id, metadata, self._digester, self._key)

    async def run(self) -> LedgerMetadata:
        """Find the end of the ledger and return the metadata that close the ledger."""
        last = await read_last_confirmed(
            self._context, self._ledger_id, self._metadata, self._digester, self._key, fence=True, seen=self._seen
        )
        length: int | None = None
        count = _FIRST_READ_AHEAD
        while True:
            found, ended = await self._read_ahead(last + 1, count)
            count = min(count * 2, self._context.options.recovery_read_ahead)
            if found:
                await self._adds.add(found, last)
                last, length = found[-1].entry_id, found[-1].length
                self.written += len(found)
            if ended:
                break
        if length is None:
            length = await self._length_at(last)
        return self._adds.metadata.closed(last, length)

    async def _read_ahead(self, first: int, count: int) -> tuple[list[Entry], bool]:
        """Return (consecutive entries from `first` on, at most `count`; whether the ledger ends after them)."""
        found: list[Entry] = []
        while (entry := self._seen.get(first + len(found))) is not None and len(found) < count:
            found.append(entry)
        tasks = [
            self._context.background.awaited(self._find(entry_id), f"recover ledger {self._ledger_id}")
            for entry_id in range(first + len(found), first + count)
        ]
        try:
            for task in tasks:
                entry = await task
                if entry is None:
                    return found, True
                found.append(entry)
        finally:
            for task in tasks:
                task.cancel()
        return found, False

    async def _find(self, entry_id: int) -> Entry | None:
        """Return the entry from any of its replicas; None when the entry cannot have been acknowledged.

        Raises RecoveryFailedError when too few replicas answered to decide that.
        """
        metadata = self._metadata
        enough = metadata.write_quorum - metadata.ack_quorum + 1
        absent = 0
        errors: list[str] = []
        tasks = [
            self._context.background.awaited(self._ask(bookie, entry_id), f"recover ledger {self._ledger_id}")
            for bookie in metadata.write_set(entry_id)
        ]
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    entry = await answer
                except BookKeeperError as error:
                    errors.append(str(error))
                    continue
                if entry is not None:
                    return entry
                absent += 1
                if absent >= enough:
                    return None
        finally:
            for task in tasks:
                task.cancel()
        detail = f"entry {entry_id}: {absent} replicas lack it, {'; '.join(errors)}"
        raise RecoveryFailedError(self._ledger_id, detail)

    async def _ask(self, bookie: str, entry_id: int) -> Entry | None:
        connection = await self._context.pool.get(bookie, at_once=True)
        answer = await connection.read(self._ledger_id, entry_id, DO_FENCING | HIGH_PRIORITY, self._key)
        if answer.code in ABSENT:
            return None
        if answer.code != Code.OK:
            raise BookieRefusedError(bookie, answer.code, code_name(answer.code))
        try:
            return decode_entry(answer.entry, self._ledger_id, entry_id, self._digester)
        except WireError as error:
            raise WireError(f"bookie {bookie}: {error}") from error

    async def _length_at(self, last: int) -> int:
        if last < 0:
            return 0
        reads = EntryReads(self._context, self._ledger_id, self._digester)
        try:
            return (await reads.read_one(self._metadata, last)).length
        except NoSuchLedgerError:
            raise
        except BookKeeperError as error:
            raise RecoveryFailedError(self._ledger_id, f"its last entry cannot be read: {error}") from error
