"""The broker path: the entries of a range, pushed by the broker that serves the topic.

The task goes on by itself where the broker went away: it connects again and reads on behind the last entry it has,
until `pollTimeoutMs` have passed without a single entry. What is not stored any more is reported as lost, never left
out in silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from magnetar.client.errors import InputError, RefusedError, RetryError
from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.read_errors import CatalogError, CatalogUnavailableError, NoSuchTopicError, ReadTimeoutError
from magnetar.pipeline.reading.index_tracker import Indexed, IndexTracker, messages_of
from magnetar.pipeline.reading.pushed import PushedEntries, PushedEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.offsets import Place
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.reading.settings import ReadSettings

_IDLE_S = 2.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_LAST_PERMITS = 1 << 30

OnLoss = Callable[["Place", "Place", str], None]
"""Called with a half-open range that is lost, and why."""


def read_through_broker(piece: ReadRange, settings: ReadSettings, on_loss: OnLoss) -> Iterator[EntryChunk]:
    """The entries that hold ``piece.start .. piece.end``. The first and the last may hold more messages than that.

    `on_loss(first, end, why)` is called for what is not stored any more; when it returns, reading goes on behind it.
    Raises: CatalogError and its kin, ReadTimeoutError; not inside a running event loop.
    """
    loop = asyncio.new_event_loop()
    reader = _RangeReader(piece, settings, on_loss)
    try:
        while True:
            found = loop.run_until_complete(reader.more())
            if found is None:
                return
            yield from found
    finally:
        reader.close()
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class _RangeReader:
    """State of one range while it is read."""

    def __init__(self, piece: ReadRange, settings: ReadSettings, on_loss: OnLoss) -> None:
        self._piece, self._settings, self._on_loss = piece, settings, on_loss
        self._catalog = Catalog(settings.connect.admin())
        self._tracker = IndexTracker(lambda e: self._catalog.index_of(piece.topic, Position(e.ledger_id, e.entry_id)))
        self._next: Place = piece.start
        """What comes next, in the form of the range's places."""
        self._last: Position | None = None
        """The last entry that was given, or the place before the first one to give."""
        self._last_wanted: Position | None = None
        """Ranges of positions: the last entry there is to read."""
        self._pushed: PushedEntries | None = None
        self._progress_s = time.monotonic()
        self._failures = 0

    def close(self) -> None:
        if self._pushed is not None:
            self._pushed.close()
            self._pushed = None

    async def more(self) -> list[EntryChunk] | None:
        """The next chunks; None at the end of the range."""
        while not self._done():
            try:
                if self._pushed is None:
                    await self._open()
                    continue
                entries = await self._pushed.take(min(_IDLE_S, self._settings.poll_timeout_s))
                if not entries:
                    self._check_idle()
                    continue
                if found := self._taken(entries):
                    return found
            except (RetryError, CatalogUnavailableError) as error:
                await self._pause(error)
            except RefusedError as error:
                self._refused(error)
            except InputError as error:
                raise CatalogError(str(error)) from error
        return None

    # --- where to read ----------------------------------------------------------------------------------------------

    def _done(self) -> bool:
        if isinstance(self._next, int):
            return self._next >= self._end_index
        return self._next >= self._end_position or (self._last_wanted is not None and self._next > self._last_wanted)

    @property
    def _end_index(self) -> int:
        assert isinstance(self._piece.end, int)
        return self._piece.end

    @property
    def _end_position(self) -> Position:
        assert isinstance(self._piece.end, Position)
        return self._piece.end

    async def _open(self) -> None:
        self._last = self._last or self._before_first()
        if self._last is None:
            return  # all that is left is lost, and said so
        # Brokers differ in whether they begin with this entry or behind it: it is left out when it comes.
        topic, compacted = self._piece.topic, self._settings.read_compacted
        self._pushed = await PushedEntries.open(self._settings.connect, topic, self._last, read_compacted=compacted)
        self._tracker.restart()
        self._pushed.ask_for(self._permits())

    def _permits(self) -> int:
        left = self._end_index - self._next if isinstance(self._next, int) else _LAST_PERMITS
        return max(1, min(left, self._settings.receiver_queue))

    def _before_first(self) -> Position | None:
        """The position before the first entry of the range; None when nothing of it is stored any more."""
        if isinstance(self._next, Position):
            log = self._checked(self._log(ledgers=True))
            if log is None or self._done():
                return None
            until = log.ordinal(self._end_position)
            self._last_wanted = log.position_at(until - 1) if until else Position(-1, -1)
            return Position(self._next.ledger_id, self._next.entry_id - 1)
        found = self._catalog.position_of_index(self._piece.topic, self._next)
        if found is None:
            if self._checked(self._log()) is None or self._done():
                return None
            found = self._catalog.position_of_index(self._piece.topic, self._next)
        if found is None:
            raise CatalogUnavailableError(f"{self._piece.topic}: the broker does not find index {self._next}")
        return Position(found.ledger_id, found.entry_id - 1)

    def _log(self, *, ledgers: bool = False) -> LogRange | None:
        return self._catalog.range(self._piece.topic, ledgers=ledgers)

    def _checked(self, log: LogRange | None) -> LogRange | None:
        """The log, with what of the range is not stored any more reported and passed over; None without a log."""
        gone = "they are not stored any more (retention, or the topic was truncated)"
        if log is None:
            self._lose(self._piece.end, "the topic does not exist any more")
        elif isinstance(self._next, Position):
            first = log.position_at(0)
            if first > self._next:
                self._lose(min(first, self._end_position), gone)
        elif log.first_index is None or log.end_index is None:
            self._lose(self._end_index, "the entries have no broker index any more")
        elif log.first_index > self._next:
            self._lose(min(log.first_index, self._end_index), gone)
        elif log.end_index < self._end_index:
            self._lose(self._end_index, f"the log ends at index {log.end_index} (was the topic deleted and made anew?)")
        return log

    def _lose(self, until: Place, why: str) -> None:
        if until != self._next:
            self._on_loss(self._next, until, why)
            self._next = until

    # --- what comes -------------------------------------------------------------------------------------------------

    def _taken(self, entries: list[PushedEntry]) -> list[EntryChunk]:
        """The entries as chunks, without what the range does not want."""
        kept: list[tuple[PushedEntry, Indexed]] = []
        messages = 0
        for entry in entries:
            position = Position(entry.ledger_id, entry.entry_id)
            if self._last is not None and position <= self._last:
                messages += messages_of(entry.body)
                continue
            if self._done():
                break
            if isinstance(self._next, Position) and position >= self._end_position:
                self._next = self._piece.end
                break
            try:
                indexed = self._tracker.track(entry)
            except CatalogUnavailableError:
                if not kept:
                    raise
                self.close()  # what is at hand is given; the rest comes again behind it
                break
            messages += indexed.messages
            if self._follows(position, indexed):
                kept.append((entry, indexed))
            self._last = position
            self._progress_s, self._failures = time.monotonic(), 0
        if self._pushed is not None and messages and not self._done():
            with contextlib.suppress(RetryError):  # a connection that is gone says so when the next entries are taken
                self._pushed.ask_for(messages)
        return self._chunks(kept)

    def _follows(self, position: Position, indexed: Indexed) -> bool:
        """Go on behind the entry; whether it belongs to the range. Reports what is missing before it."""
        if isinstance(self._next, Position):
            self._next = Position(position.ledger_id, position.entry_id + 1)
            return True
        if indexed.last_index is None:
            return True
        first = indexed.last_index - indexed.messages + 1
        if first > self._next and not self._settings.read_compacted:
            self._lose(min(first, self._end_index), "the broker gave what comes behind them")
        belongs = indexed.last_index >= self._next and first < self._end_index
        self._next = max(self._next, indexed.last_index + 1)
        return belongs

    def _chunks(self, kept: list[tuple[PushedEntry, Indexed]]) -> list[EntryChunk]:
        """One chunk for each ledger."""
        chunks: list[EntryChunk] = []
        start = 0
        for at in range(1, len(kept) + 1):
            if at == len(kept) or kept[at][0].ledger_id != kept[start][0].ledger_id:
                part = kept[start:at]
                bodies = [indexed.body for _, indexed in part]
                ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
                offsets = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
                ids = np.array([entry.entry_id for entry, _ in part], np.int64)
                ledger_id = part[0][0].ledger_id
                piece = self._piece
                chunks.append(EntryChunk(piece.topic, piece.partition, ledger_id, b"".join(bodies), offsets, ends, ids))
                start = at
        return chunks

    # --- when nothing comes -----------------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        """Nothing came for a while: is there still what we wait for? Raises ReadTimeoutError after too long."""
        self._checked(self._log(ledgers=isinstance(self._next, Position)))
        self._check_patience(None)

    def _check_patience(self, cause: Exception | None) -> None:
        waited = time.monotonic() - self._progress_s
        if waited > self._settings.poll_timeout_s:
            raise ReadTimeoutError(
                f"{self._piece.topic}: nothing from {self._settings.connect.service} for {waited:.0f} s "
                f"(option pollTimeoutMs), at {self._next} of {self._piece.end}{f': {cause}' if cause else ''}"
            ) from cause

    async def _pause(self, error: Exception) -> None:
        self.close()
        self._check_patience(error)
        await asyncio.sleep(_PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)])
        self._failures += 1

    def _refused(self, error: RefusedError) -> None:
        """A topic that is gone is data loss; anything else ends the task."""
        self.close()
        if self._log() is not None:
            raise CatalogError(f"{self._piece.topic}: {error}") from error
        if not self._settings.fail_on_data_loss:
            self._lose(self._piece.end, "the topic does not exist any more")
            return
        raise NoSuchTopicError(self._piece.topic) from error
