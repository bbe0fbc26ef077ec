"""Drops ledgers that no cursor and no policy needs: first from the stored list, then from the store.

A crash between the two steps leaves ledgers that no list names; no reader can reach their entries.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

import structlog

from magnetar.storage import events
from magnetar.storage.errors import ManagedLedgerClosedError, StorageError
from magnetar.storage.managed.retention import first_needed_ledger, ledgers_to_drop
from magnetar.storage.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.managed.background import Background
    from magnetar.storage.managed.config import ManagedLedgerConfig
    from magnetar.storage.managed.cursors.cursor import ManagedCursor
    from magnetar.storage.managed.cursors.cursor_set import CursorSet
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList
    from magnetar.storage.managed.ledger_map import LedgerSlot

__all__ = ["Trimmer"]

log = structlog.get_logger(__name__)
_SAVE_TOGETHER = 64
_RELEASED = attrgetter("released")


class Trimmer:
    """Trims one managed ledger."""

    def __init__(
        self,
        env: StorageEnv,
        ledger_list: LedgerList,
        cursors: CursorSet,
        config: Callable[[], ManagedLedgerConfig],
        background: Background,
    ) -> None:
        self._env = env
        self._list = ledger_list
        self._ledgers = ledger_list.ledgers
        self._cursors = cursors
        self._config = config
        self._background = background
        self._lock = asyncio.Lock()
        self._scheduled = False
        self._before: int | None = None
        """The first ledger that the scheduled trim keeps; None: it keeps no ledger."""
        self._slowest: ManagedCursor | None = None
        """The cursor that needed the oldest entry when all cursors were compared last."""
        self._stopped = False

    async def trim(self, now_ms: int, *, before: int | None = None) -> list[int]:
        """Drop the ledgers that neither a durable cursor nor retention needs, of those before the ledger `before` if
        given; return their ids. A drop that has begun goes on when the caller is cancelled; none begins when the log
        has closed meanwhile.
        """
        async with self._lock:
            drop = self._not_needed(now_ms, before)
            if drop and await self._save_cursors(drop[-1]):
                no_more = set(drop)  # a cursor may have been set back, or opened, while others were saved
                drop = [ledger_id for ledger_id in self._not_needed(now_ms, before) if ledger_id in no_more]
            await self._drop(drop)
            return drop

    def _not_needed(self, now_ms: int, before: int | None) -> list[int]:
        if self._stopped:
            return []
        config, slots = self._config(), self._ledgers.slots
        kept = config.retention_time_ms, config.retention_size_bytes, now_ms
        keep_last = self._list.terminated is not None
        if self._first_is_needed() or not ledgers_to_drop(slots, (), *kept, keep_last=keep_last):
            return []  # without a look at all cursors, each of which may have moved: there may be thousands
        cursors = self._cursors.by_name.values()
        self._slowest = slowest = min(cursors, key=_RELEASED, default=None)
        found = ledgers_to_drop(slots, () if slowest is None else (slowest.released,), *kept, keep_last=keep_last)
        return found if before is None else [ledger_id for ledger_id in found if ledger_id < before]

    def _first_is_needed(self) -> bool:
        """Whether the slowest cursor of the last comparison still needs the oldest ledger."""
        slowest, slots = self._slowest, self._ledgers.slots
        if slowest is None or not slots or self._cursors.by_name.get(slowest.name) is not slowest:
            self._slowest = None
            return False
        return first_needed_ledger(slots, (slowest.released,)) == slots[0].ledger_id

    async def _save_cursors(self, ledger_id: int) -> bool:
        """Save the cursors of which a crash would take acknowledgements in ledgers up to this; return whether there
        were such cursors. Else an acknowledgement of several entries would hold for the dropped entries alone, and of
        a message in chunks the last chunks would come again, which no client can join.
        """
        last = Position(ledger_id, self._ledgers.entries_of(ledger_id) - 1)
        unsaved = [cursor for cursor in self._cursors.by_name.values() if cursor.saved_mark_delete < last]
        for start in range(0, len(unsaved), _SAVE_TOGETHER):  # together: the saves share syncs
            await asyncio.gather(*map(_save, unsaved[start : start + _SAVE_TOGETHER]))
        return bool(unsaved)

    async def drop_up_to(self, position: Position) -> None:
        """Drop every closed ledger that ends at or before the position, needed or not; a terminated log keeps its last
        ledger. Raises ManagedLedgerClosedError when the log has closed meanwhile.
        """
        async with self._lock:
            if self._stopped:
                raise ManagedLedgerClosedError(self._list.name)
            slots = self._ledgers.slots[:-1] if self._list.terminated is not None else self._ledgers.slots
            await self._drop(
                [
                    slot.ledger_id
                    for slot in slots
                    if slot.closed_at_ms and Position(slot.ledger_id, slot.entries - 1) <= position
                ]
            )

    def schedule(self, before: int | None = None) -> None:
        """Trim soon, in the background, only ledgers before the ledger `before` if given; several calls before the trim
        cause a single trim.
        """
        if self._scheduled:
            self._before = None if before is None or self._before is None else max(before, self._before)
        elif not self._stopped:
            self._scheduled, self._before = True, before
            self._background.start(self._trim_soon(), "trim")

    def stop(self) -> None:
        self._stopped, self._slowest = True, None

    async def _trim_soon(self) -> None:
        self._scheduled = False
        if not self._stopped:
            await self.trim(self._env.clock.now_ms(), before=self._before)

    async def _drop(self, ledger_ids: list[int]) -> None:
        if ledger_ids and not self._list.fenced:
            await self._background.uninterrupted(self._drop_listed(ledger_ids), "drop ledgers")

    async def _drop_listed(self, ledger_ids: list[int]) -> None:
        dropped = self._ledgers.remove(ledger_ids)
        if not dropped:
            return  # a drop whose caller was cancelled has begun with the same ledgers
        try:
            await self._list.save()
        except StorageError:
            self._ledgers.put_back(dropped)
            raise
        last = Position(dropped[-1].ledger_id, dropped[-1].entries - 1)
        self._cursors.entries_gone(last)
        await self._delete(dropped)
        log.info(events.LEDGERS_TRIMMED, managed_ledger=self._list.name, ledgers=len(dropped), up_to=str(last))

    async def _delete(self, dropped: list[LedgerSlot]) -> None:
        for slot in dropped:
            try:
                await self._env.ledgers.delete(slot.ledger_id)
            except StorageError as error:
                log.warning(events.LEDGER_NOT_DELETED, ledger_id=slot.ledger_id, error=str(error))


async def _save(cursor: ManagedCursor) -> None:
    with suppress(StorageError):  # the saver logs the failure; a full disk needs the space of the ledgers
        await cursor.flush()
