"""The broker path: the entries of a range, pushed by the broker that serves the topic.

When the broker goes away the task reconnects and continues behind the last entry it has, until `pollTimeoutMs` have
passed without a single entry. Messages that are no longer stored are reported as lost, never
silently omitted. A topic may be deleted and made anew meanwhile: ledger ids grow, so the ledgers of the new topic are
later than all ledgers of the range, and its messages are not taken for those of the range.

A truncation, and a request to clear or skip a backlog, move every reader to the end of the log, though the messages of
its newest ledger stay stored. A reader that gets nothing, or gets entries behind messages that are stored, opens again
at its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.client.errors import InputError, RefusedError, RetryError
from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.errors import CatalogError, CatalogUnavailableError, ReadTimeoutError
from magnetar.pipeline.log_range import MADE_ANEW
from magnetar.pipeline.offsets import Position, is_before
from magnetar.pipeline.reading.index_tracker import IndexTracker, messages_in
from magnetar.pipeline.reading.pushed import PushedEntries
from magnetar.pipeline.reading.range_cut import Cut, behind, cut_by_index, cut_by_position
from magnetar.pipeline.reading.withheld import WithheldEntries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.pipeline.entry_chunk import EntryChunk
    from magnetar.pipeline.log_range import LogRange
    from magnetar.pipeline.offsets import Place
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.reading.settings import ReadSettings

_IDLE_S = 2.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_LAST_PERMITS = 1 << 30
_DELETED = "the topic does not exist any more"
_GONE = "they are not stored any more (retention, or the topic was truncated or made anew)"

OnLoss = Callable[["Place", "Place", str], None]
"""Called with a half-open range that is lost, and why."""


def read_through_broker(piece: ReadRange, settings: ReadSettings, on_loss: OnLoss) -> Iterator[EntryChunk]:
    """The entries that hold the messages from ``piece.start`` to before ``piece.end``. The first and the last entry may
    hold further messages.

    `on_loss(first, end, why)` is called for messages that are no longer stored; when it returns, reading continues
    behind them. Raises: CatalogError and its kin, ReadTimeoutError; not inside a running event loop.
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
        with contextlib.suppress(Exception):
            loop.run_until_complete(reader.wait_closed())
        loop.close()


class _MovedError(RetryError):
    """The broker sends entries behind messages that it stores: it has moved the reader."""


class _RangeReader:
    """State of one range while it is read."""

    def __init__(self, piece: ReadRange, settings: ReadSettings, on_loss: OnLoss) -> None:
        self._piece, self._settings, self._on_loss = piece, settings, on_loss
        self._last_ledger = piece.end.ledger_id if isinstance(piece.end, Position) else piece.newest_ledger
        """No message of the range is in a ledger after this; None: not known."""
        self._catalog = Catalog(settings.connect.admin())
        self._tracker = IndexTracker(lambda position: self._catalog.index_of(piece.topic, position))
        self._withheld = WithheldEntries(self._catalog, piece.topic)
        self._next: Place = piece.start
        """The next place, in the form of the range's places."""
        self._last: Position | None = None
        """The last delivered entry, or the place before the first entry to deliver."""
        self._last_wanted: Position | None = None
        """Ranges of positions: the last existing entry of the range."""
        self._pushed: PushedEntries | None = None
        self._progress_s = time.monotonic()
        self._failures = 0
        self._reopen_after_s = _IDLE_S
        self._moved_at: Place | None = None
        """The place of the last _MovedError: when the broker passes over this place again, it cannot read the entry."""

    def close(self) -> None:
        if self._pushed is not None:
            self._pushed.close()
            self._pushed = None

    async def wait_closed(self) -> None:
        """End the connection, if one is open, and return when its socket is closed."""
        if self._pushed is not None:
            await self._pushed.wait_closed()

    async def more(self) -> list[EntryChunk] | None:
        """The next chunks; None at the end of the range."""
        while not self._done():
            try:
                if self._pushed is None:
                    await self._open()
                    continue
                chunks = await self._pushed.take(min(_IDLE_S, self._settings.poll_timeout_s))
                if not chunks:
                    await self._check_idle()
                    continue
                if found := self._taken(chunks):
                    return found
            except (RetryError, CatalogUnavailableError) as error:
                await self._pause(error)
            except RefusedError as error:
                try:
                    self._refused(error)
                except CatalogUnavailableError as unavailable:
                    await self._pause(unavailable)
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
            return  # all remaining entries are lost, and the loss is reported
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
        if found is None or self._is_later(found.ledger_id):
            if self._checked(self._log()) is None or self._done():
                return None
            found = self._catalog.position_of_index(self._piece.topic, self._next)
        if found is None:
            raise CatalogUnavailableError(f"{self._piece.topic}: the broker does not find index {self._next}")
        return Position(found.ledger_id, found.entry_id - 1)

    def _log(self, *, ledgers: bool = False) -> LogRange | None:
        return self._catalog.range(self._piece.topic, ledgers=ledgers)

    def _checked(self, log: LogRange | None) -> LogRange | None:
        """The log; None without a log. Reports and skips the part of the range that is no longer stored."""
        if log is None:
            self._lose(self._piece.end, _DELETED)
        elif log.is_another_than(self._piece.end, self._piece.newest_ledger):
            self._lose(self._piece.end, MADE_ANEW)
        elif isinstance(self._next, Position):
            first = log.position_at(0)
            if first > self._next:
                self._lose(min(first, self._end_position), _GONE)
        elif log.first_index is None or log.end_index is None:
            self._lose(self._end_index, "the entries have no broker index any more")
        elif log.first_index > self._next:
            self._lose(min(log.first_index, self._end_index), _GONE)
        return log

    def _lose(self, until: Place, why: str) -> None:
        if until != self._next:
            self._on_loss(self._next, until, why)
            self._next = until

    # --- received entries -------------------------------------------------------------------------------------------

    def _taken(self, chunks: list[EntryChunk]) -> list[EntryChunk]:
        """The received entries in the range."""
        kept: list[EntryChunk] = []
        messages = 0
        for came in chunks:
            chunk = came if self._last is None else behind(came, self._last)
            if len(chunk) < len(came):
                messages += messages_in(came) - messages_in(chunk)
            if not len(chunk):
                continue
            if self._done() or self._pushed is None:
                break
            try:
                if self._is_later(chunk.ledger_id):
                    self._lose_rest()
                    break
                cut, counted = self._cut(chunk)
            except (CatalogUnavailableError, _MovedError):
                if not kept:
                    raise
                self.close()  # received messages are returned; the rest comes again behind them
                break
            messages += counted
            if len(cut.kept):
                kept.append(cut.kept)
        if self._pushed is not None and messages and not self._done():
            with contextlib.suppress(RetryError):  # a lost connection raises when the next entries are taken
                self._pushed.ask_for(messages)
        return kept

    def _is_later(self, ledger_id: int) -> bool:
        return self._last_ledger is not None and ledger_id > self._last_ledger

    def _lose_rest(self) -> None:
        """End the range, because the broker gives entries behind it: missing messages are lost, or were compacted away,
        or have no row (control entries at the end of a range of positions).
        """
        self._checked(self._log(ledgers=isinstance(self._next, Position)))
        if not self._done():
            self._require_in_place(self._next)
        if isinstance(self._next, int) and not self._settings.read_compacted:
            self._lose(self._piece.end, _GONE)
        self._next = self._piece.end

    def _require_in_place(self, place: Place) -> None:
        """Raise _MovedError, once for each place, when the broker stores the message of this place and sends it to
        consumers. Raises: CatalogUnavailableError.
        """
        if place == self._moved_at or self._settings.read_compacted:
            return
        if isinstance(place, int):
            found = self._catalog.position_of_index(self._piece.topic, place)
            facts = self._withheld.facts(found) if found is not None and not self._is_later(found.ledger_id) else None
            stored = facts is not None and facts.bounds is not None and facts.bounds[0] <= place <= facts.bounds[1]
        else:
            log = self._log(ledgers=True)
            found = log.position_at(log.ordinal(place)) if log is not None else self._end_position
            facts = self._withheld.facts(found) if found < self._end_position else None
            stored = facts is not None
        if stored and facts is not None and not facts.withheld:
            self._moved_at = place
            raise _MovedError(f"{self._piece.topic}: the broker has moved the reader beyond {place}")

    def _cut(self, chunk: EntryChunk) -> tuple[Cut, int]:
        """The part of the chunk in the range, and the number of examined messages. Continues behind it, and reports
        missing messages before it.
        """
        if isinstance(self._next, Position):
            cut, given = cut_by_position(chunk, self._next, self._end_position), chunk
            if not cut.seen:
                self._require_in_place(self._next)
            counted = messages_in(chunk.slice(0, cut.seen))
        else:
            found = self._tracker.track(chunk)
            cut, given = cut_by_index(found, self._next, self._end_index), found.chunk
            counted = int(found.messages[: cut.seen].sum())
            if not self._settings.read_compacted:
                for first, end in cut.lost:
                    self._report_missing(first, end)
        self._next = cut.reached
        if cut.seen:
            self._last = Position(chunk.ledger_id, int(given.entry_ids[cut.seen - 1]))
            self._progress_s, self._failures, self._reopen_after_s = time.monotonic(), 0, _IDLE_S
        if len(given) < len(chunk):
            self.close()  # the broker did not answer about the rest, which comes again
        return cut, counted

    def _report_missing(self, first: int, end: int) -> None:
        """Report missing messages in front of a received entry as lost, unless the broker stores and withholds them."""
        while first < end:
            reached = self._withheld.behind(first, end)
            if reached is None:
                self._require_in_place(first)
                self._on_loss(first, end, "the broker gave what comes behind them")
                return
            first = reached

    # --- when nothing comes -----------------------------------------------------------------------------------------

    async def _check_idle(self) -> None:
        """No entry came for a while: check that the awaited entries exist. Raises ReadTimeoutError after too long."""
        log = self._checked(self._log(ledgers=isinstance(self._next, Position)))
        if log is not None and not self._done():
            self._pass_withheld(log)
        if log is not None and self._settings.read_compacted and not self._done():
            await self._pass_compacted(log)
        self._check_patience(None)
        if log is not None and not self._done() and (log.open_from is None or is_before(self._next, log.open_from)):
            self._reopen_when_due()

    def _reopen_when_due(self) -> None:
        """Open the reader again, after pauses that double, because the broker may have moved it away from its place."""
        if time.monotonic() - self._progress_s >= self._reopen_after_s:
            self._reopen_after_s *= 2
            self.close()

    def _pass_withheld(self, log: LogRange) -> None:
        """Continue behind the entries that the broker withholds, which may be the last entries of the range."""
        while not self._done():
            if isinstance(self._next, int):
                reached: Place | None = self._withheld.behind(self._next, self._end_index)
            else:
                stored = log.position_at(log.ordinal(self._next))
                passed = self._withheld.facts(stored).withheld
                reached = Position(stored.ledger_id, stored.entry_id + 1) if passed else None
            if reached is None:
                return
            self._next, self._progress_s = reached, time.monotonic()

    async def _pass_compacted(self, log: LogRange) -> None:
        """Continue behind the messages that compaction removed, when the last message that it kept has been delivered:
        at the end of the range, or at the first message of an open transaction, which the broker withholds.

        log: from before the request for the last message, so that no transaction ends between both unseen.
        """
        assert self._pushed is not None
        assert self._last is not None
        if await self._pushed.last_message() > self._last:
            return
        reached = self._piece.end
        if log.open_from is not None and is_before(log.open_from, reached):
            reached = log.open_from
        if is_before(self._next, reached):
            self._next, self._progress_s = reached, time.monotonic()

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
        """Report the rest as lost when the topic is gone or was made anew; any other error ends the task."""
        self.close()
        self._checked(self._log(ledgers=isinstance(self._next, Position)))
        if not self._done():
            raise CatalogError(f"{self._piece.topic}: {error}") from error
