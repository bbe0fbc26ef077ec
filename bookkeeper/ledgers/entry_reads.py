"""Reads entries of a ledger from its replicas: many entries by one request where every bookie of the ensemble holds
every entry, and from the next replica when a replica fails, is slow or holds damaged bytes. Every returned entry is
verified.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.errors import (
    BookieRefusedError,
    BookKeeperError,
    DamagedEntryError,
    NoSuchEntryError,
    ReadFailedError,
    WireError,
)
from magnetar.bookkeeper.ledgers.hedging import AllFailedError, first_good
from magnetar.bookkeeper.wire.entries import decode_entry
from magnetar.bookkeeper.wire.frames import ABSENT, Code, code_name
from magnetar.bookkeeper.wire.packed_batches import records_of_batch, records_of_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.wire.digests import Digester
    from magnetar.bookkeeper.wire.entries import Entry
    from magnetar.bookkeeper.wire.packed_batches import Records

__all__ = ["EntryReads"]

T = TypeVar("T")
log = structlog.get_logger(__name__)
_SINGLE_READS = 16
"""The most entries requested at the same time where a batch is not possible."""


class EntryReads:
    """Reads of one ledger. Each call takes `metadata`, because the metadata may change while the ledger is open."""

    def __init__(self, context: LedgerContext, ledger_id: int, digester: Digester) -> None:
        self._context, self._ledger_id, self._digester = context, ledger_id, digester

    async def read(self, metadata: LedgerMetadata, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Return the entries from `first` on, at least one entry. The list ends early at the end of a segment, at
        `max_bytes`, and before an entry that no replica returns.

        Raises NoSuchEntryError, DamagedEntryError, ReadFailedError, each about entry `first`.
        """
        last = min(last, self._end_of_segment(metadata, first))
        options = self._context.options
        if options.batch_reads and metadata.ensemble_size == metadata.write_quorum and last > first:
            most_bytes = min(max_bytes, options.batch_read_bytes)
            return await self._one_of(metadata, first, partial(self._batch, first, last, most_bytes))
        return await self._singles(metadata, first, last, max_bytes)

    async def read_records(self, metadata: LedgerMetadata, first: int, last: int, max_bytes: int) -> Records:
        """Like ``read``, but as log records; a batch makes no Python object per entry. Raises as ``read``."""
        last = min(last, self._end_of_segment(metadata, first))
        options = self._context.options
        if options.batch_reads and metadata.ensemble_size == metadata.write_quorum and last > first:
            most_bytes = min(max_bytes, options.batch_read_bytes)
            return await self._one_of(metadata, first, partial(self._batch_records, first, last, most_bytes))
        return records_of_entries(await self._singles(metadata, first, last, max_bytes))

    async def read_one(self, metadata: LedgerMetadata, entry_id: int) -> Entry:
        """Return one entry. Raises as ``read``."""
        return (await self._one_of(metadata, entry_id, partial(self._single, entry_id)))[0]

    async def _singles(self, metadata: LedgerMetadata, first: int, last: int, max_bytes: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        while first <= last and (not found or size < max_bytes):
            end = min(last, first + self._wanted(len(found), size, max_bytes) - 1)
            work = (self.read_one(metadata, entry_id) for entry_id in range(first, end + 1))
            for answer in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(answer, BookKeeperError) and found:
                    return found
                if isinstance(answer, BaseException):
                    raise answer
                found.append(answer)
                size += len(answer.payload)
            first = end + 1
        return found

    @staticmethod
    def _wanted(count: int, size: int, max_bytes: int) -> int:
        """Return how many entries to request next, after `count` entries of `size` bytes: as many as fit if they are as
        large as those.
        """
        return max(1, min(_SINGLE_READS, (max_bytes - size) * count // max(size, 1))) if count else 1

    async def _one_of(
        self, metadata: LedgerMetadata, entry_id: int, ask: Callable[[str], Coroutine[object, object, T]]
    ) -> T:
        attempts = [partial(ask, bookie) for bookie in self._order(metadata, entry_id)]
        try:
            return await first_good(attempts, self._context.options.speculative_read_s, self._context.background)
        except AllFailedError as failed:
            raise self._verdict(entry_id, failed) from failed

    def _order(self, metadata: LedgerMetadata, entry_id: int) -> list[str]:
        """Return the entry's replicas in the order of the attempts. Where every bookie holds every entry, the first is
        always the same bookie of the ledger, so that the bookie's read-ahead helps. Bookies in quarantine come last,
        near bookies before others (with ``local_host``), and bookies with a connection before others.
        """
        replicas = list(metadata.write_set(entry_id))
        if metadata.ensemble_size == metadata.write_quorum:
            replicas = list(metadata.segment_of(entry_id).bookies)
            start = self._ledger_id % len(replicas)
            replicas = replicas[start:] + replicas[:start]
        pool, distance = self._context.pool, self._context.distances()
        return sorted(replicas, key=lambda b: (pool.is_quarantined(b), distance(b), pool.connected(b) is None))

    async def _single(self, entry_id: int, bookie: str) -> list[Entry]:
        connection = await self._context.pool.get(bookie)
        answer = await connection.read(self._ledger_id, entry_id)
        self._check(bookie, answer.code)
        return [self._verified(bookie, answer.entry, entry_id)]

    async def _batch(self, first: int, last: int, max_bytes: int, bookie: str) -> list[Entry]:
        connection = await self._context.pool.get(bookie)
        answer = await connection.read_batch(self._ledger_id, first, last - first + 1, max_bytes)
        self._check(bookie, answer.code)
        found: list[Entry] = []
        for data in answer.entries[: last - first + 1]:
            try:
                found.append(self._verified(bookie, data, first + len(found)))
            except WireError:
                if not found:
                    raise
                break
        if not found:
            raise BookieRefusedError(bookie, Code.NO_ENTRY, "an empty batch")
        return found

    async def _batch_records(self, first: int, last: int, max_bytes: int, bookie: str) -> Records:
        connection = await self._context.pool.get(bookie)
        answer = await connection.read_batch(self._ledger_id, first, last - first + 1, max_bytes)
        self._check(bookie, answer.code)
        if not answer.packed:
            raise BookieRefusedError(bookie, Code.NO_ENTRY, "an empty batch")
        try:
            return records_of_batch(answer.packed, self._ledger_id, first, last - first + 1, self._digester)
        except WireError as error:
            log.warning(events.ENTRY_DAMAGED, ledger_id=self._ledger_id, entry_id=first, bookie=bookie)
            raise WireError(f"bookie {bookie}: {error}") from error

    def _verified(self, bookie: str, data: bytes, entry_id: int) -> Entry:
        try:
            return decode_entry(data, self._ledger_id, entry_id, self._digester)
        except WireError as error:
            log.warning(events.ENTRY_DAMAGED, ledger_id=self._ledger_id, entry_id=entry_id, bookie=bookie)
            raise WireError(f"bookie {bookie}: {error}") from error

    @staticmethod
    def _check(bookie: str, code: int) -> None:
        if code != Code.OK:
            raise BookieRefusedError(bookie, code, code_name(code))

    def _verdict(self, entry_id: int, failed: AllFailedError) -> BookKeeperError:
        absent = [e for e in failed.errors if isinstance(e, BookieRefusedError) and e.code in ABSENT]
        damaged = [e for e in failed.errors if isinstance(e, WireError)]
        if len(absent) == len(failed.errors):
            return NoSuchEntryError(self._ledger_id, entry_id, str(failed))
        if damaged and len(absent) + len(damaged) == len(failed.errors):
            return DamagedEntryError(self._ledger_id, entry_id, str(failed))
        return ReadFailedError(self._ledger_id, entry_id, str(failed))

    @staticmethod
    def _end_of_segment(metadata: LedgerMetadata, entry_id: int) -> int:
        for segment in metadata.segments:
            if segment.first > entry_id:
                return segment.first - 1
        return 1 << 62
