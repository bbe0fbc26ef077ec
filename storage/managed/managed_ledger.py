"""ManagedLedger: the log of one topic, a sequence of ledgers with cursors on it.

::

    LedgerList   the list of ledgers, stored by compare-and-set     (ledger_list.py, ledger_map.py)
    Appender     the writing end: stamping, rollover, failures      (appender.py, ledger_switch.py)
    cursors      reading and acknowledging                          (cursor.py, ack_state.py, entry_reader.py)
    trimming     which ledgers may go                               (retention.py)

Invariants: an entry whose append was reported without error is on disk, at the position reported, behind all entries
reported before it; broker indexes are continuous over ledgers, restarts and failed appends. Made by
``ManagedLedgerFactory.open``.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import structlog

from magnetar.storage import events
from magnetar.storage.errors import (
    ManagedLedgerClosedError,
    ManagedLedgerFencedError,
    NoSuchEntryError,
    StorageClosedError,
    StorageError,
)
from magnetar.storage.managed.append_result import AppendPiece, AppendResult
from magnetar.storage.managed.appender import Appender, AppendState
from magnetar.storage.managed.background import Background
from magnetar.storage.managed.config import ConfigInForce, ManagedLedgerConfig
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.cursor_set import CursorSet
from magnetar.storage.managed.cut_cycles import cut_cycles, nothing
from magnetar.storage.managed.deletion import begin_deletion, complete_deletion
from magnetar.storage.managed.entry_reader import EntryReader
from magnetar.storage.managed.ledger_switch import LedgerSwitch
from magnetar.storage.managed.log_counters import LogCounters
from magnetar.storage.managed.owned_records import OwnedRecords
from magnetar.storage.managed.position_search import PositionSearch
from magnetar.storage.managed.trimmer import Trimmer
from magnetar.storage.position import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from magnetar.protocol.runs import EntryRun
    from magnetar.storage.interfaces import LedgerStore
    from magnetar.storage.managed.append_result import RunNotice
    from magnetar.storage.managed.cursors.early_look import EarlyLook
    from magnetar.storage.managed.early_reserve import Opened
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList, PropertyChange
    from magnetar.storage.managed.ledger_map import LedgerSlot
    from magnetar.storage.slab import Span

__all__ = ["AppendPiece", "AppendResult", "AppendState", "ManagedLedger", "ManagedLedgerConfig", "ManagedLedgerStats"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ManagedLedgerStats:
    """The figures of one managed ledger at one moment."""

    state: str
    ledgers: int
    entries: int
    size_bytes: int
    entries_added: int
    pending_appends: int
    last_confirmed: Position
    last_index: int
    """Broker index of the last confirmed entry; -1 when there is none."""
    entries_read_by_search: int
    cursors: int


class ManagedLedger:
    """The log of one topic. Plain methods use memory only; ``async`` methods wait for the store, raise StorageError."""

    def __init__(self, env: StorageEnv, ledger_list: LedgerList, config: ManagedLedgerConfig, opened: Opened) -> None:
        self.name = ledger_list.name
        self._config = ConfigInForce(config)
        self.on_closed: Callable[[ManagedLedger], None] = nothing
        self._env = env
        self._list = ledger_list
        self._ledgers = ledger_list.ledgers
        self._background = Background(self.name)
        self.counters = LogCounters()
        self._reader = EntryReader(env.ledgers, self._ledgers, self.counters)
        self._cursors = CursorSet(env, ledger_list, self._reader, self._config, self._background, self.counters)
        self.cursors = self._cursors.by_name
        """Durable cursors by name, all loaded when the managed ledger is opened. Read cursors have no name."""
        self._trimmer = Trimmer(env, ledger_list, self._cursors, self._config, self._background)
        self._cursors.on_advanced = trim = self._trimmer.schedule
        self._switch = LedgerSwitch(env, ledger_list, self._background, trim)
        self._appender = Appender(self.name, self._switch, config, opened.last_index, self.counters)
        self._switch.attach(self._appender, opened.reserve)
        if ledger_list.terminated is not None:
            self._appender.state = AppendState.TERMINATED
        appender = self._appender
        ledger_list.index_floor = lambda: appender.confirmed_index
        self._search = PositionSearch(env.ledgers, self._ledgers)
        self.ended_by_this_owner = self._is_closed = False
        self._ending = asyncio.Lock()

    # -- state ---

    @property
    def state(self) -> AppendState:
        return self._appender.state

    @property
    def terminated(self) -> bool:
        return self._appender.state is AppendState.TERMINATED

    @property
    def end(self) -> Position | None:
        """The stored end of a terminated log."""
        return self._list.terminated

    @property
    def properties(self) -> Mapping[str, str]:
        return self._list.properties

    @property
    def created_ms(self) -> int:
        return self._list.created_ms

    @property
    def records(self) -> OwnedRecords:
        """The store of further records that belong to this log."""
        return OwnedRecords(self._env.metadata, self._list)

    @property
    def store(self) -> LedgerStore:
        """The environment of the log's ledgers, for further ledgers of the owner of the log."""
        return self._env.ledgers

    @property
    def last_confirmed(self) -> Position:
        """The position of the newest entry on disk, even if trimming has removed it; EARLIEST when no entry is
        known.
        """
        return self._ledgers.last_confirmed

    @property
    def newest_position(self) -> Position:
        """The last entry of the newest ledger (entry id -1: the ledger is empty). For a terminated log without ledgers:
        (ledger of the end, -1).
        """
        if self._ledgers.slots:
            newest = self._ledgers.slots[-1]
            return Position(newest.ledger_id, newest.entries - 1)
        end = self._list.terminated
        return self.last_confirmed if end is None else Position(end.ledger_id, -1)

    @property
    def ledgers(self) -> list[LedgerSlot]:
        """The ledgers, oldest first; the last may be open (``closed_at_ms`` 0). Do not change the list."""
        return self._ledgers.slots

    @property
    def entries(self) -> int:
        return self._ledgers.total_entries

    @property
    def size_bytes(self) -> int:
        return self._ledgers.total_bytes

    @property
    def entries_added(self) -> int:
        """The number of entries confirmed since the managed ledger was opened."""
        return self._appender.entries_added

    @property
    def confirmed_index(self) -> int:
        """Broker index of the newest confirmed message; -1 before the first message."""
        return self._appender.confirmed_index

    @property
    def pending_appends(self) -> int:
        """Runs whose callback has not been called."""
        return len(self._appender.pending)

    def stats(self) -> ManagedLedgerStats:
        return ManagedLedgerStats(
            state=self.state.name,
            ledgers=len(self._ledgers.slots),
            entries=self.entries,
            size_bytes=self.size_bytes,
            entries_added=self.entries_added,
            pending_appends=self.pending_appends,
            last_confirmed=self.last_confirmed,
            last_index=self._appender.confirmed_index,
            entries_read_by_search=self._search.entries_read,
            cursors=len(self.cursors),
        )

    @property
    def config(self) -> ManagedLedgerConfig:
        return self._config.value

    def set_config(self, config: ManagedLedgerConfig) -> None:
        """Follow this configuration from now on; a closed log follows none."""
        if self._is_closed or config == self.config:
            return
        self._config.value = config
        self._appender.set_config(config)
        self._switch.arm_timer()

    async def set_property(self, key: str, value: str | None) -> None:
        """Set the property, durable on return; None removes the key."""
        await self.change_properties(lambda _properties: {key: value})

    async def change_properties(self, change: PropertyChange) -> None:
        """Make all changes or none, durable on return: each change gets the properties that the change before has left.
        For a cancelled caller the save goes on.
        """
        await self._background.uninterrupted(self._list.save(change), "save list")

    # -- appending ---

    def append(self, run: EntryRun, done: Callable[[AppendResult], None], notice: RunNotice | None = None) -> None:
        """Append the run's entries; ``done(result)`` is called on the loop, never from within this call.

        Calls of ``done`` come in the order of the appends. Without ``result.error`` all entries are on disk. With an
        error every pending append fails too, and the managed ledger refuses later appends until
        ``ready_to_create_new_ledger()``, after ManagedLedgerFencedError until its next opening; EntryTooLargeError
        fails its run only. The run is split only where a ledger is full. ``done`` must not raise. ``notice`` may get
        the run and its only piece just before ``done``, when the run is on the disk and not readable yet.

        Source: Pulsar ManagedLedger.asyncAddEntry; docs/adr/0002-managed-ledger.md.
        """
        self._appender.append(run, done, notice)

    def ready_to_create_new_ledger(self) -> None:
        """Take appends again, on a new ledger, after a failed append and the reports of all pending appends."""
        self._appender.resume()

    def give_up_creation(self) -> None:
        """The log is about to close: fail appends that wait for a ledger as long as the store can create none."""
        self._switch.give_up_creation()

    def add_listener(self, listener: Callable[[], None]) -> Callable[[], None]:
        """``listener()`` is called on the loop once per burst of entries that became readable. Returns the remover."""
        self._appender.listeners.append(listener)

        def remove() -> None:
            if listener in self._appender.listeners:
                self._appender.listeners.remove(listener)

        return remove

    # -- positions and single entries ---

    @property
    def first_position(self) -> Position | None:
        """The oldest existing entry."""
        return self._ledgers.first_position

    def next_valid(self, position: Position) -> Position | None:
        """The first existing entry after the position."""
        return self._ledgers.next_valid(position)

    def previous(self, position: Position) -> Position:
        """The last existing entry before the position; else (first ledger, -1), or EARLIEST without ledgers."""
        return self._ledgers.previous(position)

    async def ensure_ledger(self) -> Position:
        """Return ``newest_position``; first create a ledger if the log has none."""
        for _ in range(3):  # the creation of a reserve, the save of the list, the adoption
            if not self._ledgers.slots and self.state is AppendState.OPEN:
                self._switch.prepare()
                await self._background.wait_idle()
        return self.newest_position

    async def ensure_open_ledger(self) -> None:
        """Create the ledger of the next append if the log has no ledger or its newest ledger is sealed. No effect when
        the creation fails or the log refuses appends.
        """
        for _ in range(3):
            slots = self._ledgers.slots
            if (not slots or slots[-1].closed_at_ms) and self.state is AppendState.OPEN:
                self._switch.prepare()
                await self._background.wait_idle()

    def position_at(self, ordinal: int) -> Position:
        """Return the existing entry before which ``ordinal`` entries exist. Precondition: ``ordinal`` below
        ``entries``.
        """
        return self._ledgers.at(ordinal)

    def is_valid(self, position: Position) -> bool:
        """Whether the entry exists."""
        return self._ledgers.is_valid(position)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """How many entries exist in ``(after, up_to]``."""
        return self._ledgers.count_between(after, up_to)

    async def read_entry(self, position: Position) -> Span:
        """Raises NoSuchEntryError, CorruptEntryError, StorageError."""
        spans = []
        if self._ledgers.is_valid(position):
            spans = self._reader.cached_at((position,)) or await self._reader.stored_at((position,))
        if not spans:
            raise NoSuchEntryError(*position)
        return spans[0]

    async def read_last_entry(self) -> Span | None:
        """Return the newest entry; None when no entry exists (no entry was written, or all entries were trimmed)."""
        total = self._ledgers.total_entries
        return await self.read_entry(self._ledgers.at(total - 1)) if total else None

    async def position_for_time(self, timestamp_ms: int, after: Position | None = None) -> Position:
        """Return the first entry, behind ``after`` if given, whose entry timestamp is at or after this time; the end
        when all these entries are older.
        """
        return await self._search.first_at_or_after(timestamp_ms, after)

    async def expire(self, cursor: ManagedCursor, older_than_ms: int) -> int:
        """Acknowledge the cursor's entries from before this time (TTL); returns their number."""
        first_kept = await self._search.first_at_or_after(older_than_ms, after=cursor.mark_delete)
        before = cursor.backlog_entries
        cursor.ack_cumulative(self._ledgers.previous(first_kept))
        return before - cursor.backlog_entries

    # -- cursors ---

    async def open_cursor(
        self,
        name: str,
        initial: Literal["earliest", "latest"] | Position = "latest",
        cursor_properties: Mapping[str, str] | None = None,
    ) -> ManagedCursor:
        """The durable cursor of this name; created (durable on return) when it does not exist.

        ``initial`` (a Position: the entry to read first) and ``cursor_properties`` count only for a new cursor.
        """
        self._check_usable()
        start = {"earliest": EARLIEST, "latest": LATEST}[initial] if isinstance(initial, str) else initial
        return await self._cursors.open(name, start, cursor_properties or {})

    async def load_cursors(self, names: Sequence[str], look: EarlyLook) -> None:
        """Load the stored cursors; the factory calls it at the opening."""
        await self._cursors.load(names, look)

    def new_read_cursor(self, start: Position) -> ManagedCursor:
        """Return a cursor in memory, without a name, that first reads ``start`` (EARLIEST, LATEST or a position).

        The cursor does not prevent trimming: it moves forward when its entries are dropped. Close it after use.
        """
        self._check_usable()
        return self._cursors.new_reader(start)

    async def delete_cursor(self, name: str) -> None:
        """Delete the durable cursor, durable on return. Raises NoSuchCursorError."""
        await self._cursors.delete(name)

    # -- ledgers ---

    async def roll(self) -> None:
        """Close the current ledger; the next append goes to a new ledger. The old ledger is sealed on return."""
        self._appender.roll()
        await self._switch.wait_rolled()

    async def trim(self, now_ms: int) -> list[int]:
        """Drop the ledgers that neither a durable cursor nor retention needs; return their ids."""
        await self._switch.seal_rest()
        return await self._trimmer.trim(now_ms)

    async def truncate(self) -> None:
        """Acknowledge everything for every cursor and drop all closed ledgers, regardless of retention. As in Apache
        Pulsar the entries of the current ledger stay, for readers from an earlier position. Raises StorageError.
        """
        last = self.last_confirmed
        cursors = (*self.cursors.values(), *self._cursors.readers)
        for cursor in cursors:
            cursor.ack_cumulative(last)
        for cursor in cursors:
            with contextlib.suppress(StorageClosedError):  # the cursor was deleted meanwhile
                await cursor.flush()
        await self._switch.seal_rest()
        await self._trimmer.drop_up_to(last)

    # -- end ---

    async def is_taken_over(self) -> bool:
        """Whether another owner has opened the managed ledger. Raises StorageError."""
        return await self._list.is_taken_over()

    async def terminate(self) -> Position:
        """Refuse appends for ever and return the position of the last entry. Durable on return; may be repeated.

        A second call waits for the first call, because the save of the end may still fail.
        """
        self._check_usable()
        async with self._ending:
            if self._list.terminated is None:
                await self._terminate()
            assert self._list.terminated is not None
            return self._list.terminated

    async def _terminate(self) -> None:
        if self._appender.state is AppendState.FENCED:
            raise ManagedLedgerFencedError(self.name)
        self._check_usable()
        self._appender.state = AppendState.TERMINATED
        self._appender.fail_waiting(self._appender.state_error())
        last = self.last_confirmed
        if self._ledgers.slots and self._ledgers.slot(last.ledger_id) is None:
            last = self.newest_position  # the log has no entry: the end is in the empty ledger
        await self._switch.settle(recover=True)
        self._list.terminated = max(last, self.last_confirmed)
        try:
            await self._list.save()
        except BaseException:  # also for a cancelled caller the outcome is unknown
            self._list.terminated = None
            raise
        self.ended_by_this_owner = True

    async def close(self) -> None:
        """Finish pending appends, seal the current ledger, save every cursor. Idempotent. No cursor is saved when
        another owner has opened the managed ledger.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._stop()
        try:
            async with self._ending:  # no end is stored behind the close
                await self._settle_switch()
            await self._cursors.close(save=not self._list.fenced)
            await self._background.wait_idle()
            cut_cycles(self._list, self._cursors, self._appender, self._switch)
        finally:
            self.on_closed(self)

    async def _settle_switch(self) -> None:
        """Seal the current ledger. Log a StorageError, so that the cursors close too: the next opening recovers the
        ledger.
        """
        try:
            await self._switch.settle()
        except StorageError as error:
            log.warning(events.MANAGED_LEDGER_NOT_SAVED, managed_ledger=self.name, error=str(error))

    @property
    def is_doomed(self) -> bool:
        """Whether the deletion of the log has begun; its opener has to ``delete`` it."""
        return self._list.doomed

    async def begin_deletion(self, others: Iterable[int] = ()) -> None:
        """Make the deletion certain, also that of the ledgers ``others``, which belong to the same topic; the log goes
        with ``delete``. Raises ManagedLedgerFencedError, StorageError.
        """
        stored = (cursor.stored_at for cursor in self.cursors.values())
        of_cursors = {place.ledger_id for place in stored if place != EARLIEST}
        await begin_deletion(self._env, self._list, of_cursors.union(others))

    async def delete(self) -> None:
        """Delete cursors, list and ledgers. Behind a crash or a StorageError the deletion is certain once it has begun:
        ``deletion.py`` states the steps.
        """
        self._is_closed = True
        self._stop()
        try:
            await self._switch.settle()
            if not self.is_doomed:
                await self.begin_deletion()
            await self._list.check_same_log()
            await self._cursors.end(ManagedCursor.delete)
            await self._background.wait_idle()
            await complete_deletion(self._env, self._list, self._cursors)
        except StorageError:
            await self._cursors.end(lambda cursor: cursor.close_durable(save=False))
            raise
        finally:
            cut_cycles(self._list, self._cursors, self._appender, self._switch)
            self.on_closed(self)

    def _stop(self) -> None:
        self._trimmer.stop()
        self._cursors.stop_saving()
        self._switch.give_up_creation()
        if self._appender.state is not AppendState.FENCED:
            self._appender.state = AppendState.CLOSED
        self._appender.fail_waiting(ManagedLedgerClosedError(self.name))

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ManagedLedgerClosedError(self.name)
        if self._list.fenced:
            raise ManagedLedgerFencedError(self.name)
