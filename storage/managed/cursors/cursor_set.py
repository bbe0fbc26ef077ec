"""The cursors of one managed ledger: made, loaded, found by name, deleted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import NoSuchCursorError
from magnetar.storage.managed.cursors.ack_state import AckState
from magnetar.storage.managed.cursors.cursor import ManagedCursor
from magnetar.storage.managed.cursors.saver import CursorSaver
from magnetar.storage.managed.cursors.store import CursorStore
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.storage.managed.background import Background
    from magnetar.storage.managed.config import ManagedLedgerConfig
    from magnetar.storage.managed.entry_reader import EntryReader
    from magnetar.storage.managed.ledger_list import LedgerList
    from magnetar.storage.managed.ledger_switch import StorageEnv

__all__ = ["CursorSet"]

log = structlog.get_logger(__name__)


class CursorSet:
    """``by_name`` has the durable cursors, all of which are loaded, and the non-durable ones."""

    def __init__(
        self,
        env: StorageEnv,
        ledger_list: LedgerList,
        reader: EntryReader,
        config: Callable[[], ManagedLedgerConfig],
        background: Background,
    ) -> None:
        self.by_name: dict[str, ManagedCursor] = {}
        self.on_advanced: Callable[[], None] = lambda: None
        """A mark-delete position has left a ledger behind."""
        self._env = env
        self._name = ledger_list.name
        self._ledgers = ledger_list.ledgers
        self._reader = reader
        self._config = config
        self._background = background
        self._lock = asyncio.Lock()

    async def open(self, name: str, start: Position, cursor_properties: Mapping[str, str]) -> ManagedCursor:
        """The durable cursor of this name, created (durable on return) when there is none."""
        async with self._lock:
            known = self.by_name.get(name)
            if known is not None and known.durable:
                return known
            cursor, acks = self._new(name, start)
            store = CursorStore(self._env, self._name, name, self._config)
            await store.create(acks, {}, dict(cursor_properties))
            self._attach(cursor, acks, store, {})
            return cursor

    async def load(self, name: str) -> None:
        """Bring up a stored cursor."""
        store = CursorStore(self._env, self._name, name, self._config)
        state = await store.load()
        acks = AckState(self._ledgers, EARLIEST)
        if acks.load(state):
            log.warning(
                events.CURSOR_CLAMPED,
                managed_ledger=self._name,
                cursor=name,
                stored=str(state.mark_delete),
                to=str(acks.mark_delete),
            )
        self._attach(self._cursor(name, acks), acks, store, state.properties)

    def new_non_durable(self, name: str, start: Position) -> ManagedCursor:
        cursor, _ = self._new(name, start)
        cursor.on_close = lambda: self._forget(cursor)
        self.by_name[name] = cursor
        return cursor

    async def delete(self, name: str) -> None:
        """Durable on return. Raises NoSuchCursorError."""
        async with self._lock:
            cursor = self.by_name.get(name)
            if cursor is None:
                raise NoSuchCursorError(self._name, name)
            await cursor.delete()
            self.by_name.pop(name, None)
        self.on_advanced()

    def _new(self, name: str, start: Position) -> tuple[ManagedCursor, AckState]:
        target = self._ledgers.at_or_after(start)
        at_end = target > self._ledgers.last_confirmed
        acks = AckState(self._ledgers, self._ledgers.last_confirmed if at_end else self._ledgers.previous(target))
        return self._cursor(name, acks), acks

    def _cursor(self, name: str, acks: AckState) -> ManagedCursor:
        return ManagedCursor(name, self._ledgers, self._reader, acks, self._advanced)

    def _advanced(self) -> None:
        self.on_advanced()

    def _attach(self, cursor: ManagedCursor, acks: AckState, store: CursorStore, properties: dict[str, int]) -> None:
        saver = CursorSaver(store, acks, lambda: cursor.position_properties, self._env.scheduler, self._background)
        cursor.make_durable(saver, store.cursor_properties, properties)
        self.by_name[cursor.name] = cursor

    def _forget(self, cursor: ManagedCursor) -> None:
        if self.by_name.get(cursor.name) is cursor:
            del self.by_name[cursor.name]
