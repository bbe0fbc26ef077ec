"""The cursors of one managed ledger: creates, loads, finds and deletes them.

Two kinds, kept apart. A *durable* cursor has a name: its place in the table and its record in the metadata store.
A *read cursor* has no name: each scan, reader and check opens a read cursor of its own and closes it. So a read cursor
never stands in for a durable cursor, never replaces it in the table, and is never found by its name.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import (
    ManagedLedgerClosedError,
    ManagedLedgerFencedError,
    NoNodeError,
    NoSuchCursorError,
    StorageError,
)
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.saver import CursorSaver
from magnetar.storage.managed.cursors.store import CursorStore
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from magnetar.storage.managed.background import Background
    from magnetar.storage.managed.config import ConfigInForce
    from magnetar.storage.managed.cursors.early_look import EarlyLook
    from magnetar.storage.managed.cursors.state import CursorState
    from magnetar.storage.managed.entry_reader import EntryReader
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList
    from magnetar.storage.managed.log_counters import LogCounters

__all__ = ["CursorSet"]

log = structlog.get_logger(__name__)
_LOAD_TOGETHER = 16
_END_TOGETHER = 64


class CursorSet:
    """``by_name``: the durable cursors, all of which are loaded. ``readers``: read cursors that are not closed."""

    def __init__(
        self,
        env: StorageEnv,
        ledger_list: LedgerList,
        reader: EntryReader,
        config: ConfigInForce,
        background: Background,
        counters: LogCounters,
    ) -> None:
        self.by_name: dict[str, ManagedCursor] = {}
        self.readers: set[ManagedCursor] = set()
        self.on_advanced: Callable[[], None] = lambda: None
        """Called when a mark-delete position has moved to another ledger, and after the reset or deletion of a
        cursor.
        """
        self._env = env
        self._list = ledger_list
        self._name = ledger_list.name
        self._ledgers = ledger_list.ledgers
        self._reader = reader
        self._config = config
        self._background = background
        self._counters = counters
        self._lock = asyncio.Lock()
        self._busy: dict[str, asyncio.Future[StorageError | None]] = {}
        """The cursors that are being made or deleted; the result comes at the end: the failure, if any."""
        self._closed = False

    async def open(self, name: str, start: Position, cursor_properties: Mapping[str, str]) -> ManagedCursor:
        """Return the durable cursor of this name; create it (durable on return) if it does not exist.

        Thousands of calls may wait for the same cursor: the end of its creation wakes all of them at once, and all of
        them fail with the creation.
        """
        while (busy := self._busy.get(name)) is not None:
            failure = await asyncio.shield(busy)
            if failure is not None and name not in self.by_name:
                raise failure.with_traceback(None)  # with its traceback every caller would make it longer
        known = self.by_name.get(name)
        if known is not None and not self._closed:
            return known
        with self._changing(name):
            async with self._lock:
                if self._closed:
                    raise ManagedLedgerClosedError(self._name)
                cursor, acks = self._new(name, start)
                store = self._new_store(name)
                await store.create(acks, {}, dict(cursor_properties))
                self._attach(cursor, acks, store, {})
                return cursor

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """Have other calls about the cursor of this name wait meanwhile."""
        self._busy[name] = ended = asyncio.get_running_loop().create_future()
        failure = None
        try:
            yield
        except NoSuchCursorError:
            raise  # no failure for a caller that waits to make the cursor
        except StorageError as error:
            failure = error
            raise
        finally:
            del self._busy[name]
            ended.set_result(failure)

    async def load(self, names: Sequence[str], look: EarlyLook | None = None) -> None:
        """Load the stored cursors, several at the same time, because each may have to recover its cursor ledger."""
        try:
            for start in range(0, len(names), _LOAD_TOGETHER):
                await self._load_together(names[start : start + _LOAD_TOGETHER], look)
        except BaseException:  # a cancellation too: the parts of batches leave the room of all cursors
            for cursor in self.by_name.values():
                cursor.close()
            raise

    async def _load_together(self, names: Sequence[str], look: EarlyLook | None) -> None:
        stores = [self._new_store(name) for name in names]
        states = await asyncio.gather(*(store.load(look) for store in stores), return_exceptions=True)
        for name, store, state in zip(names, stores, states, strict=True):
            if isinstance(state, BaseException):
                raise state
            self._loaded(name, store, state)

    def _loaded(self, name: str, store: CursorStore, state: CursorState) -> None:
        acks = AckState(self._ledgers, EARLIEST, self._env.parts_room)
        if acks.load(state):
            log.warning(
                events.CURSOR_CLAMPED,
                managed_ledger=self._name,
                cursor=name,
                stored=str(state.mark_delete),
                to=str(acks.mark_delete),
            )
        self._attach(self._cursor(name, acks), acks, store, state.properties)

    def new_reader(self, start: Position) -> ManagedCursor:
        """Return a new read cursor; ``readers`` has it until it is closed."""
        cursor, _ = self._new("", start)
        cursor.on_close = lambda: self.readers.discard(cursor)
        self.readers.add(cursor)
        return cursor

    def entries_gone(self, up_to: Position) -> None:
        """Move all cursors to this position that are before it: the entries up to it were dropped."""
        for cursor in (*self.by_name.values(), *self.readers):
            cursor.entries_gone(up_to)

    async def delete(self, name: str) -> None:
        """Delete the durable cursor, durable on return. Raises NoSuchCursorError."""
        while (busy := self._busy.get(name)) is not None:
            failure = await asyncio.shield(busy)
            if failure is not None and name in self.by_name:
                raise failure.with_traceback(None)
        with self._changing(name):
            async with self._lock:
                if self._closed:
                    raise ManagedLedgerClosedError(self._name)
                cursor = self.by_name.get(name)
                if cursor is None:
                    raise NoSuchCursorError(self._name, name)
                await cursor.delete()
                self.by_name.pop(name, None)
        self.on_advanced()

    def stop_saving(self) -> None:
        """Begin no save by a timer or a count: the managed ledger closes, and its end saves every cursor."""
        for cursor in self.by_name.values():
            cursor.stop_saving()

    async def close(self, *, save: bool) -> None:
        """Close every cursor; ``save`` them for the next opening. Log a failed save, so that the other cursors close
        too: consumers get the messages of lost acknowledgements again. A stop cancels a save that hangs.
        """

        async def close(cursor: ManagedCursor) -> None:
            is_lost = save
            try:
                await cursor.close_durable(save=save)
            except StorageError as error:
                is_lost = is_lost and not isinstance(error, ManagedLedgerFencedError)
                log.warning(
                    events.MANAGED_LEDGER_NOT_SAVED, managed_ledger=self._name, cursor=cursor.name, error=str(error)
                )
            finally:
                if is_lost and cursor.has_unsaved_acks:
                    self._env.on_unsaved()

        await self.end(close)

    async def end(self, finish: Callable[[ManagedCursor], Awaitable[None]]) -> None:
        """Close the read cursors and ``finish`` every durable cursor. The call waits for a cursor that is being made
        and finishes that cursor as well; requests behind that cursor fail. Raises the first failure of ``finish``.
        """
        self._closed = True
        async with self._lock:
            for reader in list(self.readers):
                reader.close()
            cursors = list(self.by_name.values())
            for start in range(0, len(cursors), _END_TOGETHER):  # together: the saves share syncs
                ends = [_finished(cursor, finish) for cursor in cursors[start : start + _END_TOGETHER]]
                for failure in await asyncio.gather(*ends, return_exceptions=True):
                    if failure is not None:
                        raise failure

    async def delete_strays(self) -> None:
        """Delete the records of cursors whose creation got no answer; call behind ``end``. Raises StorageError."""
        for child in await self._env.metadata.children(self._list.path):
            store = self._new_store(self._env.layout.cursor_name(child))
            with contextlib.suppress(NoNodeError):
                await store.load()
                await store.delete()

    def _new(self, name: str, start: Position) -> tuple[ManagedCursor, AckState]:
        target = self._ledgers.at_or_after(start)
        at_end = target > self._ledgers.last_confirmed
        mark_delete = self._ledgers.last_confirmed if at_end else self._ledgers.previous(target)
        acks = AckState(self._ledgers, mark_delete, self._env.parts_room)
        return self._cursor(name, acks), acks

    def _new_store(self, name: str) -> CursorStore:
        return CursorStore(self._env, self._list, name, self._config)

    def _cursor(self, name: str, acks: AckState) -> ManagedCursor:
        return ManagedCursor(name, self._ledgers, self._reader, acks, self._advanced)

    def _advanced(self) -> None:
        self.on_advanced()

    def _attach(self, cursor: ManagedCursor, acks: AckState, store: CursorStore, properties: dict[str, int]) -> None:
        saver = CursorSaver(store, acks, properties, self._env.scheduler, self._background, self._counters)
        cursor.make_durable(saver, store.cursor_properties)
        cursor.state_lost = store.state_lost
        self.by_name[cursor.name] = cursor


async def _finished(cursor: ManagedCursor, finish: Callable[[ManagedCursor], Awaitable[None]]) -> None:
    """Call ``finish`` in a task of its own: a task that is cancelled before its begin leaves no coroutine behind."""
    await finish(cursor)
