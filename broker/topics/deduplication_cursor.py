"""The durable half of deduplication: snapshots in the cursor `pulsar.dedup`, recovery by replay.

A snapshot is the map of persisted sequence ids and the cursor's mark-delete position in one write. Recovery loads the
snapshot and reads the metadata of every entry behind its position. The topic takes no publish before recovery is done,
so `last_sequence_id` is right in the first PRODUCER_SUCCESS after a restart.
"""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from magnetar.broker.errors import ProducerBusyError
from magnetar.broker.slices import give_way
from magnetar.broker.topics.deduplication import CURSOR_NAME, SequenceTable
from magnetar.protocol.metadata import metadata_bytes, sequence_of
from magnetar.protocol.topic_name import MAX_NAME_CHARS
from magnetar.storage.errors import (
    CorruptEntryError,
    NoSuchCursorError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from magnetar.broker.tasks import TaskSet
    from magnetar.broker.topics.deduplication import Verdict
    from magnetar.broker.topics.names_room import NamesRoom
    from magnetar.protocol.metadata import Sequence
    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.slab import Span

log = structlog.get_logger(__name__)
_REPLAY_ENTRIES = 1000
_REPLAY_BYTES = 8 << 20
_PARSED_IN_ONE_TURN = 256 << 10
"""Bytes of metadata that the replay parses in a turn of the event loop, some milliseconds of short fields."""
_SNAPSHOT_PAUSE_S = 0.1
"""Least time from a snapshot to the next by entries: at 100,000 entries a second, a snapshot per thousand entries would
cost more than all other work.
"""

_REMEDY = "use their names again, or lower brokerDeduplicationProducerInactivityTimeoutMinutes"


@dataclass(frozen=True, slots=True)
class DeduplicationSettings:
    """The broker's keys of deduplication; a topic's policies may override the interval in seconds."""

    entries_interval: int  # brokerDeduplicationEntriesInterval
    max_producers: int  # brokerDeduplicationMaxNumberOfProducers
    inactivity_timeout_s: int  # brokerDeduplicationProducerInactivityTimeoutMinutes


class LogWithCursors(Protocol):
    """A log with the cursor that stores the producers' sequence ids."""

    @property
    def name(self) -> str: ...
    @property
    def cursors(self) -> Mapping[str, ManagedCursor]: ...
    @property
    def last_confirmed(self) -> Position: ...
    async def open_cursor(self, name: str, initial: Literal["latest"]) -> ManagedCursor: ...
    async def delete_cursor(self, name: str) -> None: ...


class TopicDeduplication:
    """Deduplication of one topic: off, or on with its table and cursor."""

    def __init__(
        self,
        ledger: LogWithCursors,
        settings: DeduplicationSettings,
        tasks: TaskSet,
        monotonic: Callable[[], float],
        room: NamesRoom,
    ) -> None:
        self.enabled = False
        self.counts = False
        """Whether ``stored`` must be called: while deduplication is on, and from before the creation of its cursor."""
        self.table = SequenceTable(room)
        self._room = room
        self._ledger = ledger
        self._settings = settings
        self._tasks = tasks
        self._monotonic = monotonic
        self._cursor: ManagedCursor | None = None
        self.is_wanted: bool | None = False
        """Whether the last call of ``switch`` turned deduplication on, or is about to; None after a failure, which may
        leave deduplication off and its cursor in the log.
        """
        self.opened_at: Position | None = None
        """The cursor's mark-delete position when deduplication was turned on."""
        self.loaded_at: Position | None = None
        """The same of a cursor that was in the log; None for a new cursor, and while deduplication is off."""
        self._since_snapshot = 0
        self._snapshot_running = False
        self._last_position: Position | None = None
        self.last_snapshot_s = 0.0
        self._pause_until_s = -inf

    @property
    def status(self) -> str:
        """The status in the words of the stats page (MessageDeduplication.Status)."""
        return "Enabled" if self.enabled else "Disabled"

    async def switch(self, *, on: bool) -> None:
        """Turn on (recover the state of the cursor; a new cursor starts at the end of the topic) or off (forget all
        state). The last of several calls counts.
        """
        self.is_wanted = on
        try:
            if on and not self.enabled:
                await self._turn_on()
            if self.is_wanted is False:  # also where a later call turned deduplication off during the recovery
                await self._turn_off()
        except BaseException:
            self.is_wanted = None
            if not self.enabled:
                self._forget()
            raise

    async def _turn_on(self) -> None:
        known = CURSOR_NAME in self._ledger.cursors
        self.counts = not known  # the replay finds the entries that come behind the position of a known cursor
        self._cursor = cursor = await self._ledger.open_cursor(CURSOR_NAME, "latest")
        self.opened_at = cursor.mark_delete
        self.loaded_at = self.opened_at if known else None
        replayed = await self._recover(cursor) if known else 0
        if self._cursor is not cursor:
            return  # a later call turned deduplication off during the recovery
        self.last_snapshot_s = self._monotonic()
        self.enabled = self.counts = True  # no entry may come between the last replayed entry and this line
        if replayed >= self._settings.entries_interval:
            with contextlib.suppress(StorageFullError, StorageUnavailableError):  # the cursor tries again later
                await self.snapshot()

    def _forget(self) -> None:
        self.enabled = self.counts = False
        self.table.close()
        self.table = SequenceTable(self._room)

    async def _turn_off(self) -> None:
        self._forget()
        self._cursor = self.loaded_at = None
        if CURSOR_NAME in self._ledger.cursors:
            with contextlib.suppress(NoSuchCursorError):  # another call deletes the cursor
                await self._ledger.delete_cursor(CURSOR_NAME)

    async def _recover(self, cursor: ManagedCursor) -> int:
        """Record the stored snapshot and replay the entries behind it; return their number."""
        now_s, table = self._monotonic(), self.table
        if cursor.state_lost:  # the damage lost the map: the topic's remaining entries still name its producers
            await cursor.reset(EARLIEST)
        for name, high in cursor.position_properties.items():
            table.found(name, high, now_s)
        cursor.rewind()
        replayed = parsed_bytes = 0
        unreadable = False
        while cursor.has_more:
            spans = await self._replayable(cursor)
            unreadable = unreadable or not spans
            for span in spans:
                for i in range(span.start, span.end):
                    body = span.slab.body(i)
                    parsed_bytes += metadata_bytes(body)
                    if parsed_bytes > _PARSED_IN_ONE_TURN:
                        parsed_bytes = 0
                        await give_way()
                    found = sequence_of(body)
                    if found is not None and _is_judged(found):
                        table.found(found.producer_name, max(found.sequence_id, found.highest_sequence_id), now_s)
                replayed += span.entries
                self._last_position = span.last_position
            await give_way()  # entries of the cache are there at once
        if unreadable:  # a quota counts the entry until a snapshot is behind, and perhaps admits no later entry
            self._last_position = self._ledger.last_confirmed
        self._note_forgotten(0)
        if replayed:
            log.info("deduplication.recovered", ledger=self._ledger.name, entries=replayed)
        return replayed

    async def _replayable(self, cursor: ManagedCursor) -> list[Span]:
        """Read the next entries; [] at the end, and when the cursor has just skipped an unreadable entry or ledger.

        The sequence id of an unreadable entry is lost unless a later entry of its producer has a higher id. When the
        producer then sends the message again, the broker stores it anew, and readers get the lost message.
        """
        try:
            result = cursor.read(_REPLAY_ENTRIES, _REPLAY_BYTES)
            return await result if inspect.isawaitable(result) else result
        except CorruptEntryError as error:
            position, following = error.position, error.position.next()
        except (NoSuchLedgerError, NoSuchEntryError):
            position = cursor.read_position
            following = Position(position.ledger_id + 1, 0)
        log.error("deduplication.entry_unreadable", ledger=self._ledger.name, position=str(position))
        cursor.move_to(following)
        return []

    def mark_delete_for_client(self) -> Position:
        """The mark-delete position of the cursor. Precondition: deduplication is on."""
        assert self._cursor is not None
        return self._cursor.mark_delete

    def judge(self, name: str, run: EntryRun) -> Iterable[tuple[int, int, Verdict]]:
        return self.table.judge(name, run)

    def stored(self, name: str, run: EntryRun, count: int, last: Position) -> None:
        """Record that the first `count` entries of a run are on the disk, the last of them at position `last`."""
        self.table.stored(name, run, count)
        self._last_position = last
        self._since_snapshot += count
        if self._since_snapshot >= self._settings.entries_interval and self._monotonic() >= self._pause_until_s:
            self._since_snapshot = 0
            self._tasks.spawn(self._try_snapshot(), "deduplication.snapshot")

    async def _try_snapshot(self) -> None:
        """Take a snapshot. If the store fails or the log closes, the cursor saves the table later."""
        with contextlib.suppress(StorageError):
            await self.snapshot()

    async def snapshot(self) -> None:
        """Save the table with the position of its last entry; no-op while a snapshot is under way."""
        cursor, position = self._cursor, self._last_position
        if cursor is None or position is None or self._snapshot_running or position <= cursor.mark_delete:
            return
        self._snapshot_running = True
        try:
            await cursor.mark_delete_with(position, self.table.snapshot(self._settings.max_producers))
            self.last_snapshot_s = self._monotonic()
            self._pause_until_s = self.last_snapshot_s + _SNAPSHOT_PAUSE_S
        finally:
            self._snapshot_running = False

    def note(self) -> None:
        """Have the next save of the cursor store the present table, wherever the caller moves the cursor before."""
        if self.enabled and self._cursor is not None:
            position = self._last_position or self._cursor.mark_delete
            self._cursor.note_mark_delete(position, self.table.snapshot(self._settings.max_producers))

    async def snapshot_if_older(self, interval_s: int) -> None:
        """Take the timed snapshot when the last is `interval_s` old (brokerDeduplicationSnapshotIntervalSeconds)."""
        if self.enabled and interval_s > 0 and self._monotonic() - self.last_snapshot_s >= interval_s:
            await self.snapshot()

    async def purge_inactive(self) -> None:
        """Forget producers that have been away for longer than the timeout, by the monotonic clock."""
        if self.enabled and self.table.purge_inactive(self._monotonic() - self._settings.inactivity_timeout_s):
            await self.snapshot()

    def check_name(self, name: str) -> None:
        """Raise ProducerBusyError for a new name when the names of producers that have left take all the room."""
        if self.counts and not self.table.admits(name):
            raise ProducerBusyError(f"deduplication remembers too many producers that have left: {_REMEDY}")

    def producer_joined(self, name: str) -> None:
        self.table.joined(name)

    def producer_left(self, name: str) -> None:
        if self.counts:
            before = self.table.forgotten
            self.table.left(name, self._monotonic())
            self._note_forgotten(before)

    def _note_forgotten(self, before: int) -> None:
        """Log producers that were forgotten before their time: the first, the second, the fourth and so on."""
        forgotten = self.table.forgotten
        if forgotten.bit_length() > before.bit_length():
            log.warning("deduplication.producers_forgotten", ledger=self._ledger.name, producers=forgotten)

    def close(self) -> None:
        """Give up the memory of names: the topic is closed."""
        self.table.close()


def _is_judged(entry: Sequence) -> bool:
    """Whether deduplication counts the entry: the rules of the publish path leave out markers and, of a chunked
    message, all chunks but the last. An entry may claim a longer name than any producer has.

    If an earlier chunk counted, deduplication would drop the last chunk when the client sends it again after a crash.
    """
    if entry.is_marker or len(entry.producer_name) > MAX_NAME_CHARS:
        return False
    return entry.chunks <= 1 or entry.chunk_id >= entry.chunks - 1
