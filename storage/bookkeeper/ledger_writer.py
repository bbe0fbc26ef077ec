"""LedgerWriter on BookKeeper: writes a slab as one run of adds."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.storage.bookkeeper.store_errors import as_storage_error, storage_errors
from magnetar.storage.errors import EntryTooLargeError, LedgerClosedError, StorageError
from magnetar.storage.interfaces import LedgerInfo
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.bookkeeper.ledgers.writer import LedgerWriter as Adds
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.storage.interfaces import AppendDone
    from magnetar.storage.slab import Slab

__all__ = ["BookKeeperLedgerWriter", "info_of"]


class _Append:
    """A pending slab. ``outcome`` is empty until the result of its adds is known."""

    __slots__ = ("done", "outcome", "slab")

    def __init__(self, slab: Slab, done: AppendDone) -> None:
        self.slab, self.done = slab, done
        self.outcome: tuple[StorageError | None, ...] = ()


class BookKeeperLedgerWriter:
    """Writes one ledger. Calls `on_confirmed` with each confirmed slab before the ``done`` of that slab."""

    def __init__(
        self,
        adds: Adds,
        properties: Mapping[str, str],
        max_record_bytes: int,
        on_confirmed: Callable[[Slab], None],
        on_closed: Callable[[BookKeeperLedgerWriter], None],
    ) -> None:
        self.ledger_id = adds.ledger_id
        self.record_proof = -1  # bookies have a proof of their own
        self.properties = properties
        self.adds = adds
        self.refusal: StorageError | None = None
        """The error with which the writer refuses further slabs; None while it takes slabs."""
        self._max_record_bytes = max_record_bytes
        self._on_confirmed, self._on_closed = on_confirmed, on_closed
        self._loop = asyncio.get_running_loop()
        self._pushed = self._confirmed = -1
        self._length_bytes = 0
        self._pending: deque[_Append] = deque()
        self._failing: StorageError | None = None
        """The error of a failed append: all appends behind it fail with it, until no append is pending."""
        self._idle: list[asyncio.Future[None]] = []
        self._reporting = False

    @property
    def last_add_pushed(self) -> int:
        return self._pushed

    @property
    def last_add_confirmed(self) -> int:
        return self._confirmed

    @property
    def length_bytes(self) -> int:
        return self._length_bytes

    @property
    def failure(self) -> StorageError | None:
        return self.refusal or (None if self.adds.failure is None else as_storage_error(self.adds.failure))

    def append(self, slab: Slab, done: AppendDone) -> None:
        if slab.ledger_id != self.ledger_id or slab.first_entry_id != self._pushed + 1 or not slab.count:
            raise AssertionError(f"{slab!r} does not follow {self.ledger_id}:{self._pushed}")
        self._pushed = slab.last_entry_id
        append = _Append(slab, done)
        self._pending.append(append)
        error = self._failing or self.refusal or self._too_large(slab)
        if error is None:
            error = self._add(append)
        if error is not None:
            self._failing = error
            append.outcome = (error,)
            self._report_soon()

    async def close(self) -> LedgerInfo:
        self.refusal = self.refusal or LedgerClosedError(self.ledger_id)
        await self.wait_idle()
        with storage_errors():
            metadata = await self.adds.close()
        self._on_closed(self)
        return info_of(self.ledger_id, metadata, self.properties)

    async def wait_idle(self) -> None:
        """Wait until no append is pending."""
        if self._pending:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    def _add(self, append: _Append) -> StorageError | None:
        def done(error: BookKeeperError | None) -> None:
            append.outcome = (None if error is None else as_storage_error(error),)
            self._report()

        try:
            slab = append.slab
            self.adds.append_packed_nowait(slab.data, slab.offsets, RECORD_HEADER_BYTES, done)
        except BookKeeperError as error:
            return as_storage_error(error)
        return None

    def _too_large(self, slab: Slab) -> EntryTooLargeError | None:
        limit = min(self._max_record_bytes, self.adds.max_payload_bytes + RECORD_HEADER_BYTES)
        if slab.size_bytes <= limit:
            return None
        offsets = slab.offset_view
        for index in range(slab.count):
            size = offsets[index + 1] - offsets[index]
            if size > limit:
                return EntryTooLargeError(self.ledger_id, slab.first_entry_id + index, size, limit)
        return None

    def _report_soon(self) -> None:
        if not self._reporting:
            self._reporting = True
            self._loop.call_soon(self._report_refused)

    def _report_refused(self) -> None:
        self._reporting = False
        self._report()

    def _report(self) -> None:
        """Call ``done`` of the appends whose outcome is known, in the order of the appends."""
        while self._pending and self._pending[0].outcome:
            append = self._pending.popleft()
            (error,) = append.outcome
            if error is None:
                self._confirmed = append.slab.last_entry_id
                self._length_bytes += append.slab.size_bytes
                self._on_confirmed(append.slab)
            else:
                self._failing = error
            if not self._pending and self._failing is not None:
                self._failing, self._pushed = None, self._confirmed
            try:
                append.done(error)
            except Exception as failure:  # noqa: BLE001 - the callback's bug must not cost others their answer
                message = f"callback of an append to ledger {self.ledger_id} failed"
                self._loop.call_exception_handler({"message": message, "exception": failure})
        if not self._pending:
            waiting, self._idle = self._idle, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)


def info_of(ledger_id: int, metadata: LedgerMetadata, properties: Mapping[str, str]) -> LedgerInfo:
    """Return the figures of a closed ledger. BookKeeper counts entries alone; ``LedgerInfo`` adds the record
    headers.
    """
    entries = metadata.last_entry_id + 1
    return LedgerInfo(
        ledger_id, metadata.last_entry_id, metadata.length + RECORD_HEADER_BYTES * entries, dict(properties)
    )
