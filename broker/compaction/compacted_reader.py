"""The reader of a read_compacted subscription: the compacted ledger up to the horizon, the log behind it.

The reader replaces the cursor in a dispatcher (`dispatchers.ports.Reader`). The cursor still records the
acknowledgements: entries have their original positions, so acknowledgements, mark-delete and seek need no translation.
For entries that exist in the compacted ledger only, `EarlierPart` records the acknowledgements.

A compaction may end at any time: the next read uses the new horizon and ledger. When the old ledger is deleted during a
read, the reader repeats the read in the new ledger. A read that meets a damaged entry of the compacted ledger fails:
the key of the entry is not known. The reader asks for a compaction, which replaces the damaged ledger; then it goes on.
Readers behind the entry go on at once.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compaction.earlier_part import EarlierPart
from magnetar.storage.errors import CorruptEntryError, NoSuchLedgerError, StorageError
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import Span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyroaring import BitMap

    from magnetar.broker.compaction.compacted_ledger import CompactedLedger
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.managed.ledger_map import LedgerSlot

__all__ = ["CompactedReader"]


class LedgersOfLog(Protocol):
    """The ledgers of a log, and the positions of its first and last entry."""

    @property
    def first_position(self) -> Position | None: ...
    @property
    def last_confirmed(self) -> Position: ...
    @property
    def ledgers(self) -> Sequence[LedgerSlot]: ...


class Compacted(Protocol):
    """A compacted topic: `ledger` replaces every entry of the log up to and including `horizon`."""

    @property
    def ledger(self) -> CompactedLedger: ...
    @property
    def horizon(self) -> Position: ...


class CompactedReader:
    """The reader of one subscription.

    `current()` is the present compacted topic, None before the first compaction; `damaged(ledger_id)` is called for a
    compacted ledger with a damaged entry.
    """

    def __init__(
        self,
        cursor: ManagedCursor,
        log: LedgersOfLog,
        current: Callable[[], Compacted | None],
        damaged: Callable[[int], None],
    ) -> None:
        self._damaged = damaged
        self._cursor = cursor
        self._log = log
        self._current = current
        self._generation = 0
        self._at = self._at_cursor()
        """The position to read next; None: the read position of the cursor."""
        self._begins_at_start = False
        self.earlier = EarlierPart(cursor)
        cursor.earlier = self
        self._resume()

    def begin(self, start: Position) -> None:
        """Read from `start` on (a new subscription, a seek). Includes entries that the log has dropped and only the
        compacted ledger still has.
        """
        current = self._current()
        end = self._first_ledger_id()
        self.earlier.end()
        self._generation += 1
        self._at = self._at_cursor()
        if current is not None and start.ledger_id < end and start <= current.horizon:
            self.earlier.begin(max(start, EARLIEST), end)
            self._resume()

    def begin_at_start(self) -> None:
        """Make the next read start at the first compacted entry, wherever the cursor is. No effect while the earlier
        part is active. Apache Pulsar does so for a reader that names the earliest message or no start, also after a
        seek.
        """
        self._begins_at_start = not self.earlier.is_active

    # --- Reader --------------------------------------------------------------------------------------------------

    def read(
        self,
        max_entries: int,
        max_bytes: int,
        upto: Position | None = None,
        skip: Callable[[int], BitMap | None] | None = None,
    ) -> list[Span] | Awaitable[list[Span]]:
        """See `Reader.read`. `skip` does not apply to compacted entries: their consumers need them in order."""
        current = self._current()
        if self._begins_at_start:
            self._begins_at_start = False
            self._at = self._at_cursor() if current is None else EARLIEST
        if current is not None and self._place() <= current.horizon:
            return self._read_compacted(max_entries, max_bytes, upto, skip)
        return self._read_log(max_entries, max_bytes, upto, skip)

    def read_positions(self, positions: Sequence[Position]) -> list[Span] | Awaitable[list[Span]]:
        """Read from the log alone. Only subscription types that redeliver single entries call this method, and those
        types do not read compacted topics.
        """
        return self._cursor.read_positions(positions)

    def rewind(self) -> None:
        self._generation += 1
        self._cursor.rewind()
        self.earlier.rewind()
        self._at = self._at_cursor()
        self._resume()

    # --- acknowledgements that the cursor passes on ---------------------------------------------------------------

    def ack(self, position: Position) -> bool:
        return self.earlier.ack(position)

    def ack_up_to(self, position: Position) -> bool:
        return self.earlier.ack_up_to(position)

    def reset(self, position: Position) -> None:
        self.begin(position)

    # --- inside --------------------------------------------------------------------------------------------------

    def _at_cursor(self) -> Position | None:
        """Where the reader goes on with the cursor. The log may drop ledgers before the first read, and moves a
        non-durable cursor behind them, so the reader keeps the present position of such a cursor.
        """
        return None if self._cursor.durable else self._cursor.read_position

    def _resume(self) -> None:
        if self.earlier.is_active:
            self._at = self.earlier.done.next()

    def _first_ledger_id(self) -> int:
        """Id of the first ledger that has entries or may still get entries."""
        log, current = self._log, self._current()
        if log.first_position is not None:
            return log.first_position.ledger_id
        if log.ledgers:
            return log.ledgers[0].ledger_id
        horizon = EARLIEST if current is None else current.horizon
        return max(log.last_confirmed, horizon).ledger_id + 1

    def _place(self) -> Position:
        """The position to read next. Skip and expiry may move a durable cursor's mark-delete beyond the read position;
        the reader then skips those entries. A non-durable cursor also moves when the log drops ledgers; the compacted
        ledger still has their entries, so the reader ignores that move.
        """
        cursor = self._cursor
        acknowledged = cursor.mark_delete.next()
        if self._at is None:
            return max(cursor.read_position, acknowledged)
        if not cursor.durable or self.earlier.covers(self._at):
            return self._at
        return max(self._at, acknowledged)

    def _read_log(
        self,
        max_entries: int,
        max_bytes: int,
        upto: Position | None,
        skip: Callable[[int], BitMap | None] | None,
    ) -> list[Span] | Awaitable[list[Span]]:
        if self.earlier.is_active:
            self.earlier.all_read()
        place = self._place()
        if self._cursor.read_position < place:
            self._cursor.move_to(place)
        spans = self._cursor.read(max_entries, max_bytes, upto, skip)
        if not isinstance(spans, list):
            return self._note(spans, self._generation)
        if spans:
            self._at = spans[-1].last_position.next()
        return spans

    async def _note(self, reading: Awaitable[list[Span]], generation: int) -> list[Span]:
        spans = await reading
        if spans and generation == self._generation:
            self._at = spans[-1].last_position.next()
        return spans

    async def _read_compacted(
        self,
        max_entries: int,
        max_bytes: int,
        upto: Position | None,
        skip: Callable[[int], BitMap | None] | None,
    ) -> list[Span]:
        generation = self._generation
        while (current := self._current()) is not None and (place := self._place()) <= current.horizon:
            ledger = current.ledger
            try:
                first = await ledger.find(place)
                if first < ledger.entries:
                    spans, _ = await ledger.read(first, max_entries, max_bytes)
                else:
                    spans = []
            except NoSuchLedgerError:
                if self._current() is current:
                    raise
                continue  # a compaction replaced the ledger meanwhile
            except CorruptEntryError as error:  # dispatch could skip positions of the log only
                self._damaged(ledger.ledger_id)
                raise StorageError(f"compacted ledger: {error}") from error
            if generation != self._generation:
                return []
            if not spans:
                self._at = current.horizon.next()
                break
            self._went_on_to(spans[-1].last_position.next())
            wanted = [part for span in spans for part in self._unacknowledged(span)]
            if wanted:
                return wanted
        rest = self._read_log(max_entries, max_bytes, upto, skip)
        return await rest if inspect.isawaitable(rest) else rest

    def _went_on_to(self, position: Position) -> None:
        """The next position to read, where the figures of the cursor also show the reader; a cursor has no place in
        entries that the log has dropped.
        """
        self._at = position
        if not self.earlier.covers(position):
            self._cursor.move_to(position)

    def _unacknowledged(self, span: Span) -> list[Span]:
        slab, start, end = span
        earlier = self.earlier.covers(span.first_position)
        if earlier:
            gone = [k for k in range(start, end) if self.earlier.is_acknowledged(slab.position(k))]
        else:
            deleted = self._cursor.deleted_in(slab.ledger_id)
            gone = [] if deleted is None else [k for k in range(start, end) if slab.position(k).entry_id in deleted]
        parts = [Span(slab, a + 1, b) for a, b in zip([start - 1, *gone], [*gone, end], strict=True) if a + 1 < b]
        if earlier:
            self.earlier.delivered(part.slab.position(k) for part in parts for k in range(part.start, part.end))
        return parts
