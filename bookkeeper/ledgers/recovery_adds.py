"""The small writer of a recovery: sends recovered entries to their whole write sets, and replaces bookies that fail."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from magnetar.bookkeeper.deadlines import deadline
from magnetar.bookkeeper.errors import BookieUnreachableError, RecoveryFailedError
from magnetar.bookkeeper.ledgers.quorum import holds, write_set
from magnetar.bookkeeper.wire.entries import encode_run
from magnetar.bookkeeper.wire.frames import HIGH_PRIORITY, RECOVERY_ADD, code_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.bookkeeper.bookies.connection import BookieConnection
    from magnetar.bookkeeper.ledgers.ledger_context import LedgerContext
    from magnetar.bookkeeper.metadata.ledger_metadata import LedgerMetadata
    from magnetar.bookkeeper.wire.digests import Digester
    from magnetar.bookkeeper.wire.entries import Entry

__all__ = ["RecoveryAdds"]


class RecoveryAdds:
    """Adds the recovered entries of one ledger. ``metadata`` has the ensembles after replacements; until the recovery
    closes the ledger with it, this copy exists in memory only.
    """

    def __init__(
        self, context: LedgerContext, ledger_id: int, metadata: LedgerMetadata, digester: Digester, key: bytes
    ) -> None:
        self.metadata = metadata
        self._context, self._ledger_id, self._digester, self._key = context, ledger_id, digester, key
        self._failed: dict[str, str] = {}

    async def add(self, entries: Sequence[Entry], confirmed: int) -> None:
        """Write these consecutive entries; on return each has its ack quorum. Raises RecoveryFailedError."""
        frames = {entry.entry_id: self._frame(entry, confirmed) for entry in entries}
        first = entries[0].entry_id
        while True:
            bookies = self.metadata.last_segment.bookies
            attempt = _Attempt(self._ledger_id, self.metadata, frames)
            failures = await self._run(attempt, bookies)
            if attempt.is_done():
                return
            self._failed |= failures
            if not self._replace(first):
                detail = f"entry {first} found no quorum: {'; '.join(f'{b}: {e}' for b, e in self._failed.items())}"
                raise RecoveryFailedError(self._ledger_id, detail)

    async def _run(self, attempt: _Attempt, bookies: Sequence[str]) -> dict[str, str]:
        """Send the frames and wait for the ack quorums; return the bookies that failed, with their reasons. A bookie
        whose connection opens later gets the frames then.
        """
        for place, bookie in enumerate(bookies):
            connection = self._context.pool.connected(bookie)
            if connection is not None:
                attempt.send(place, connection)
            else:
                what = f"recover ledger {self._ledger_id}"
                connecting = self._context.background.awaited(self._context.pool.get(bookie, at_once=True), what)
                connecting.add_done_callback(partial(attempt.on_connected, place))
        try:
            async with deadline(self._context.options.add_timeout_s):
                await attempt.settled()
        except TimeoutError:
            attempt.fail_silent("no answer to a recovery add")
        finally:
            attempt.end()
        return {bookies[place]: reason for place, reason in attempt.failures.items()}

    def _replace(self, first: int) -> bool:
        """Replace failed bookies from entry `first` on; return False when no bookie could be replaced."""
        metadata, context = self.metadata, self._context
        ensemble = list(metadata.last_segment.bookies)
        changed = False
        for place, bookie in enumerate(ensemble):
            if bookie not in self._failed:
                continue
            other = context.replacement(ensemble, place, self._failed, metadata.write_quorum, metadata.custom)
            if other is not None:
                ensemble[place] = other
                changed = True
        if changed:
            self.metadata = metadata.with_segment(first, tuple(ensemble))
        return changed

    def _frame(self, entry: Entry, confirmed: int) -> bytes:
        return encode_run(
            self._ledger_id,
            entry.entry_id,
            confirmed,
            entry.length - len(entry.payload),
            [entry.payload],
            self._digester,
            self._key,
            RECOVERY_ADD | HIGH_PRIORITY,
        ).frames


class _Attempt:
    """One round of adds to one ensemble (an AddSink)."""

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, frames: dict[int, bytes]) -> None:
        self.failures: dict[int, str] = {}
        self._ledger_id, self._metadata, self._frames = ledger_id, metadata, frames
        self._places: dict[BookieConnection, int] = {}
        self._acks: dict[int, set[int]] = {entry_id: set() for entry_id in frames}
        self._settled = asyncio.get_running_loop().create_future()
        self._ended = False

    def on_connected(self, place: int, connecting: asyncio.Task[BookieConnection]) -> None:
        if connecting.cancelled():
            self.fail(place, "the client is closed")
        elif (error := connecting.exception()) is not None:
            self.fail(place, error.detail if isinstance(error, BookieUnreachableError) else str(error))
        else:
            self.send(place, connecting.result())

    def send(self, place: int, connection: BookieConnection) -> None:
        """Send the place its frames, also behind the end of the attempt: every place is to hold its entries."""
        size, quorum = self._metadata.ensemble_size, self._metadata.write_quorum
        if not connection.is_open:
            self.fail(place, "the connection was lost")
            return
        if not self._ended:
            self._places[connection] = place
            connection.register(self._ledger_id, self)
        connection.add(b"".join(f for entry_id, f in self._frames.items() if holds(place, entry_id, size, quorum)))

    def is_done(self) -> bool:
        return all(len(acks) >= self._metadata.ack_quorum for acks in self._acks.values())

    async def settled(self) -> None:
        """Wait until every entry has its ack quorum, or until some entry can no longer reach its ack quorum."""
        self._look()
        await self._settled

    def fail(self, place: int, reason: str) -> None:
        self.failures.setdefault(place, reason)
        self._look()

    def fail_silent(self, reason: str) -> None:
        """Mark the places failed that have not acknowledged all of their entries."""
        for place in range(self._metadata.ensemble_size):
            if any(place in self._write_set(e) and place not in acks for e, acks in self._acks.items()):
                self.failures.setdefault(place, reason)

    def end(self) -> None:
        self._ended = True
        for connection in self._places:
            connection.unregister(self._ledger_id, self)

    def on_added(self, connection: BookieConnection, first: int, last: int) -> None:
        place = self._places[connection]
        for entry_id in range(max(first, min(self._acks)), min(last, max(self._acks)) + 1):
            if place in self._write_set(entry_id):
                self._acks[entry_id].add(place)
        self._look()

    def on_add_failed(self, connection: BookieConnection, entry_id: int, code: int) -> None:
        self.fail(self._places[connection], f"{code_name(code)} for entry {entry_id}")

    def on_connection_lost(self, connection: BookieConnection, error: BookieUnreachableError) -> None:
        self.fail(self._places[connection], error.detail)

    def on_writable(self, connection: BookieConnection) -> None:
        """Do nothing: the connection got all frames at once."""

    def _write_set(self, entry_id: int) -> tuple[int, ...]:
        return write_set(entry_id, self._metadata.ensemble_size, self._metadata.write_quorum)

    def _is_hopeless(self, entry_id: int, acks: set[int]) -> bool:
        may_answer = sum(place in acks or place not in self.failures for place in self._write_set(entry_id))
        return may_answer < self._metadata.ack_quorum

    def _look(self) -> None:
        if (
            self.is_done() or any(self._is_hopeless(*item) for item in self._acks.items())
        ) and not self._settled.done():
            self._settled.set_result(None)
