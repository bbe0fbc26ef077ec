"""ManagedLedgerFactory: opens managed ledgers by name, each at most once at a time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from magnetar.storage.errors import BadVersionError, LedgerListError, NoSuchManagedLedgerError, StorageClosedError
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed.background import Background
from magnetar.storage.managed.config import ManagedLedgerConfig
from magnetar.storage.managed.cursors.early_look import EarlyLook
from magnetar.storage.managed.deletion import delete_noted, noted_deletions
from magnetar.storage.managed.early_reserve import Opened, early_reserve
from magnetar.storage.managed.environment import StorageEnv
from magnetar.storage.managed.ledger_list import ROOT, LedgerList, ledger_list_path
from magnetar.storage.managed.ledger_recovery import recover_ledgers
from magnetar.storage.managed.managed_ledger import ManagedLedger
from magnetar.storage.managed.stored_layout import ListRecord, OwnLayout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from magnetar.storage.interfaces import Clock, LedgerStore, MetadataStore, Scheduler
    from magnetar.storage.managed.stored_layout import StoredLayout

__all__ = ["ManagedLedgerFactory"]

_CLOSE_TOGETHER = 256


class ManagedLedgerFactory:
    """Names are ``tenant/namespace/persistent/<url-encoded topic>`` (Pulsar's persistence naming)."""

    def __init__(
        self,
        ledgers: LedgerStore,
        metadata: MetadataStore,
        clock: Clock,
        scheduler: Scheduler,
        layout: StoredLayout | None = None,
        may_roll: Callable[[], bool] = lambda: True,
        created_ms: Callable[[str], Awaitable[int]] | None = None,
        give_up_creation: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self.unsaved_cursors = 0
        """The cursors that ended, or whose logs ended, while their last acknowledgements could not be saved."""
        self._env = StorageEnv(
            ledgers,
            metadata,
            clock,
            scheduler,
            layout or OwnLayout(),
            created_ms,
            may_roll,
            give_up_creation,
            self._count_unsaved,
        )
        self.on_taken_over: Callable[[str], None] = lambda _name: None
        """Called with the name of a managed ledger each time a request fails because another owner has the list."""
        self.on_log_closed: Callable[[str], None] = lambda _name: None
        """Called with the name of each managed ledger that has ended."""
        self._open: dict[str, ManagedLedger] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = False
        self._background = Background("managed ledgers")
        self._on_closed, self._on_fenced = self._forget, self._refused
        """The same objects for each managed ledger."""

    async def open(
        self, name: str, config: ManagedLedgerConfig | None = None, *, create_if_missing: bool = True
    ) -> ManagedLedger:
        """Return the managed ledger of this name; open it, with all its cursors, unless it is open already.

        Opening fences another owner's ledger, finds the last entry of the open ledger and the next broker index; it
        creates no ledger. Raises NoSuchManagedLedgerError, ManagedLedgerFencedError (another owner opens the managed
        ledger at the same time), StorageError.
        """
        async with self._lock(name):
            if self._closed:
                raise StorageClosedError("factory is closed")
            known = self._open.get(name)
            if known is not None:
                return known
            managed = await self._bring_up(name, config or ManagedLedgerConfig(), create_if_missing=create_if_missing)
            managed.on_closed = self._on_closed
            self._open[name] = managed
            return managed

    def _refused(self, name: str) -> None:
        self.on_taken_over(name)

    async def exists(self, name: str) -> bool:
        return await self._env.metadata.get(ledger_list_path(name)) is not None

    async def unused_since_ms(self, name: str) -> int | None:
        """When the managed ledger was recorded, if it is not open and has neither a ledger nor a cursor; else None.
        Raises StorageError.
        """
        path, metadata = ledger_list_path(name), self._env.metadata
        record = None if name in self._open else await metadata.get(path)
        if record is None or await metadata.children(path):
            return None
        stored, created = self._env.layout.decode_list(record[0]), self._env.created_ms
        if stored.ledgers:
            return None
        return await created(path) if not stored.created_ms and created is not None else stored.created_ms

    async def is_doomed(self, name: str) -> bool:
        """Whether the managed ledger's deletion has begun and did not end. Raises StorageError."""
        record = await self._env.metadata.get(ledger_list_path(name))
        with contextlib.suppress(LedgerListError):  # the next load of the topic reports the record
            return record is not None and self._env.layout.decode_list(record[0]).doomed
        return False

    async def cut_off_deletions(self) -> list[str]:
        """Names of managed ledgers whose deletions have begun and did not end: opening them finds them doomed. Deletes
        the ledgers that deletions left whose lists are gone, also where a managed ledger of the name was made anew; but
        for those of an open managed ledger without a list: its deletion is under way. Raises StorageError.
        """
        env, doomed = self._env, []
        for noted, ledger_ids in (await noted_deletions(env.metadata)).items():
            record = await env.metadata.get(ledger_list_path(noted.name))
            if record is None:
                if noted.name not in self._open:
                    await delete_noted(env.ledgers, env.metadata, noted, ledger_ids)
                continue
            with contextlib.suppress(LedgerListError):  # the next load of the topic reports the record
                stored = env.layout.decode_list(record[0])
                created_ms = stored.created_ms
                if not created_ms and noted.created_ms and env.created_ms is not None:
                    created_ms = await env.created_ms(ledger_list_path(noted.name))
                listed = {slot.ledger_id for slot in stored.ledgers}
                if not noted.may_have(created_ms) and not listed & ledger_ids:  # a repaired list has another time
                    await delete_noted(env.ledgers, env.metadata, noted, ledger_ids)
                elif stored.doomed:
                    doomed.append(noted.name)
        return doomed

    async def make_known(self, name: str) -> None:
        """Record that the managed ledger exists, without opening it; no error when it exists already. Durable on
        return.
        """
        with contextlib.suppress(BadVersionError):
            record = self._env.layout.encode_list(ListRecord(created_ms=self._env.clock.now_ms()))
            await self._env.metadata.put(ledger_list_path(name), record, MUST_NOT_EXIST)

    async def names(self, prefix: str) -> list[str]:
        """Names directly below ``prefix`` (``tenant/namespace/persistent``), sorted."""
        return [f"{prefix}/{child}" for child in await self._env.metadata.children(f"{ROOT}/{prefix}")]

    async def delete(self, name: str) -> None:
        """Delete the managed ledger, open or not; durable on return. Raises NoSuchManagedLedgerError."""
        async with self._lock(name):
            managed = self._open.get(name)
            if managed is None:
                managed = await self._bring_up(name, ManagedLedgerConfig(), create_if_missing=False)
            await managed.delete()

    async def close(self) -> None:
        """Close every open managed ledger. Idempotent."""
        self._closed = True
        closing = list(self._open.values())
        for start in range(0, len(closing), _CLOSE_TOGETHER):  # together: the closings share syncs
            await asyncio.gather(*(managed.close() for managed in closing[start : start + _CLOSE_TOGETHER]))

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def _count_unsaved(self) -> None:
        self.unsaved_cursors += 1

    @property
    def unsaved_in_open_logs(self) -> int:
        """The cursors of open managed ledgers whose last acknowledgements are not saved; a log whose deletion has begun
        has none to save.
        """
        staying = (managed for managed in self._open.values() if not managed.is_doomed)
        return sum(cursor.has_unsaved_acks for managed in staying for cursor in managed.cursors.values())

    def _forget(self, managed: ManagedLedger) -> None:
        """Forget a managed ledger that has ended. Where its end was cut off, some of its cursors did not close."""
        if self._open.get(managed.name) is managed:
            del self._open[managed.name]
            self.on_log_closed(managed.name)
        if not managed.is_doomed:
            cursors = managed.cursors.values()
            self.unsaved_cursors += sum(cursor.has_unsaved_acks for cursor in cursors if not cursor.is_closed)

    async def _bring_up(self, name: str, config: ManagedLedgerConfig, *, create_if_missing: bool) -> ManagedLedger:
        """Open the managed ledger. Requests that do not depend on each other are under way at the same time: where the
        metadata store is slow, the number of answers that an opening awaits one after the other is its time.
        """
        env, background = self._env, Background(name)
        ledger_list = LedgerList(name, env.metadata, env.layout)
        loading = ledger_list.load(env.clock.now_ms(), create_if_missing=create_if_missing)
        try:
            existed, nodes = await background.together(loading, env.metadata.children(ledger_list.path))
        except BadVersionError as error:
            raise NoSuchManagedLedgerError(name, "created by another owner in this moment") from error
        reserve = early_reserve(env, ledger_list)
        try:
            look = EarlyLook(env, ledger_list.path, background)
            index, ledger_list.created_ms, _ = await background.together(
                recover_ledgers(env, ledger_list),
                self._created(ledger_list, existed=existed),
                look.recover_ledgers(nodes if ledger_list.was_open else ()),
            )
            managed = ManagedLedger(env, ledger_list, config, Opened(index, reserve))
            if existed:
                nodes = await look.read(nodes)  # behind the save of the list: no other owner changes records any more
                await managed.load_cursors([env.layout.cursor_name(node) for node in nodes], look)
        except BaseException:
            if reserve is not None:
                self._background.start(reserve.give_up(), "delete ledger")
            raise
        ledger_list.on_fenced = self._on_fenced
        return managed

    async def _created(self, ledger_list: LedgerList, *, existed: bool) -> int:
        """Return when the list was created, as its record or the metadata store knows."""
        if existed and not ledger_list.created_ms and self._env.created_ms is not None:
            return await self._env.created_ms(ledger_list.path)
        return ledger_list.created_ms
