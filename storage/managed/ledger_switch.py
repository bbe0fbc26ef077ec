"""The waiting half of the appender: creates, seals and recovers ledgers in the background."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import proxy

import structlog

from magnetar.storage import events
from magnetar.storage.errors import ManagedLedgerFencedError, NoSuchLedgerError, StorageError, StorageUnavailableError
from magnetar.storage.managed.appender import AppendState
from magnetar.storage.managed.early_reserve import KEPT_S, ledger_properties
from magnetar.storage.managed.entry_index import index_after, with_index
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.managed.roll_policy import is_full
from magnetar.storage.managed.unlisted_ledgers import UnlistedLedgers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from magnetar.storage.interfaces import LedgerWriter, Timer
    from magnetar.storage.managed.appender import Appender, OpenLedger
    from magnetar.storage.managed.background import Background
    from magnetar.storage.managed.early_reserve import EarlyReserve
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList

__all__ = ["LedgerSwitch"]

log = structlog.get_logger(__name__)

_AHEAD_RETRY_S = 10.0
_SEAL_WAIT_S = 30.0
"""The longest time that appends wait until the previous ledger is sealed. Then they fail; later appends try again."""
_IDLE_LOOKS = 4
"""Checks per idle time: an idle ledger is closed at most a quarter of the idle time late."""


class LedgerSwitch:
    """Chooses the ledger that is written next. Each managed ledger has a switch, which its ``Appender`` calls for
    ledgers and which the managed ledger settles at its end.
    """

    def __init__(
        self, env: StorageEnv, ledger_list: LedgerList, background: Background, trim: Callable[[int | None], None]
    ) -> None:
        self.env = env
        self.ledger_list = ledger_list
        self._background = background
        self._trim = trim
        self._ahead: LedgerWriter | None = None
        self._reserve: LedgerWriter | None = None
        """The next ledger, which no list names yet, if the layout allows only one open ledger: created before the
        previous ledger is sealed, so that appends wait for the seal and for one save of the list alone.
        """
        self._unlisted = UnlistedLedgers(env.ledgers)
        self._unsealed_writer: LedgerWriter | None = None
        """The writer of the newest ledger until that ledger is sealed: the store may read the ledger through it."""
        self._preparing = self._given_up = False
        self._one_open = env.layout.one_open_ledger
        self._sealed: asyncio.Event | None = None
        """Set when the previous ledger is sealed. Present during the sealing, if the layout allows only one open
        ledger.
        """
        self._retry_ahead_s = self._idle_since_s = 0.0
        self._failed: LedgerSlot | None = None
        self._dropped: list[int] = []
        """Empty ledgers that the list in memory no longer names; deleted after a save of the list."""
        self._unsealed: dict[int, LedgerSlot] = {}
        """Full ledgers that the store did not seal, by id; no trim goes beyond the first of them."""
        self._timer: Timer | None = None
        self._added_then = -1
        self._idle_waiters: Sequence[asyncio.Future[None]] = ()
        self._roll_waiters: Sequence[asyncio.Future[None]] = ()
        self._appender: Appender

    def attach(self, appender: Appender, reserve: EarlyReserve | None = None) -> None:
        self._appender = appender
        self._detached = False
        if reserve is not None:
            self._preparing = True
            self._background.start(self._keep_reserve(reserve.writer()), "create ledger")
            self._timer = self.env.scheduler.call_later(KEPT_S, self._drop_reserve)

    def detach(self) -> None:
        """Keep the appender no longer: the managed ledger is closed, and the garbage collector need not find the cycle.
        Calls that are late still reach the appender, which the managed ledger keeps. Safe to call twice, as by a
        deletion that is repeated.
        """
        if not self._detached:
            self._detached = True
            self._appender = proxy(self._appender)

    # -- calls of the appender ---

    def prepare(self) -> None:
        """Have the appender adopt the ledger made ahead, or create a ledger: runs wait and there is no current
        ledger. A ledger with failed appends is sealed first.
        """
        if self._ahead is not None and self._failed is None:
            writer, self._ahead = self._ahead, None
            slot = LedgerSlot(writer.ledger_id)
            self._unsealed_writer = writer
            self.ledger_list.ahead = None
            self.ledger_list.ledgers.add(slot)
            self._appender.adopt(writer, slot)
            self.arm_timer()
        elif not self._preparing:
            self._start_creating()

    def prepare_ahead(self) -> None:
        """Create the next ledger: the current ledger is nearly full."""
        if self._preparing or self.env.clock.now_s() < self._retry_ahead_s:
            return
        if not self._one_open:
            if self._ahead is None:
                self._start_creating()
        elif self._usable_reserve() is None and self.env.may_roll():
            self._preparing = True
            self._background.start(self._keep_reserve(self._create_unlisted()), "create ledger")

    def drained(self, old: OpenLedger) -> None:
        """Seal the full ledger and provide the next ledger: all entries of the full ledger are confirmed."""
        self._cancel_timer()
        with_index(old.slot, self._appender.confirmed_index)
        if self._one_open:
            self._sealed = self._sealed or asyncio.Event()
        self._background.start(self._seal(old), "seal ledger")
        self._wake_rolled()
        self._appender.pump()

    def failed(self, old: OpenLedger) -> None:
        """Keep this ledger for recovery: an append to it failed, and the writer has reported on all its appends."""
        self._cancel_timer()
        self._failed = old.slot
        self._wake_rolled()

    def idle(self) -> None:
        """Wake the callers of ``settle``: no append is pending."""
        if self._idle_waiters:
            waiters, self._idle_waiters = self._idle_waiters, ()
            _wake(waiters)

    # -- calls of the managed ledger ---

    async def settle(self, *, recover: bool = False) -> None:
        """Finish pending appends, seal the current ledger, drop the ledger made ahead, store the list.

        Precondition: the state of the appender refuses new appends. With ``recover`` the call also seals a ledger with
        failed appends, and the ledger whose seal an earlier call could not store. Raises StorageError.
        """
        while self._appender.pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters = (*self._idle_waiters, waiter)
            await waiter
        self._cancel_timer()
        await self._background.wait_idle()
        current = self._appender.current
        self._appender.release_current()
        self._wake_rolled()
        failed = self._failed
        dropped = await self._settle_failed() if recover else []
        if current is not None:
            self._failed = failed = current.slot
            with_index(current.slot, self._appender.confirmed_index)
            await self._close_slot(current)
            dropped += self._drop_empty(current.slot)
        ahead, self._ahead, self.ledger_list.ahead = self._ahead, None, None
        if ahead is not None:
            dropped.append(ahead.ledger_id)
        dropped += self._dropped
        if (current is not None or dropped) and not self.ledger_list.fenced:
            try:
                await self.ledger_list.save()
            except StorageError:
                self._not_settled(failed)
                if ahead is not None:
                    self._ahead, self.ledger_list.ahead = ahead, ahead.ledger_id
                raise
            self._failed, self._dropped = None, dropped
            await self._delete(dropped)
        if not self.ledger_list.fenced:
            await self._unlisted.try_delete(self.ledger_list.save)
        self._drop_reserve()

    def give_up_creation(self) -> None:
        """The managed ledger is about to close: create no ledger for which the store is not ready."""
        self._given_up = True
        self.env.give_up_creation(self._appender.name)

    async def seal_rest(self) -> None:
        """Seal the full ledgers that the store did not seal when their next ledger began, as far as it does now. A lost
        ledger counts as sealed, so that trims go beyond it.
        """
        for ledger_id, slot in list(self._unsealed.items()):
            try:
                with contextlib.suppress(NoSuchLedgerError):
                    await self.env.ledgers.open_recover(ledger_id)
            except StorageError as error:
                log.warning(events.BACKGROUND_FAILED, task=f"{self.ledger_list.name} seal ledger", error=str(error))
                return
            slot.closed_at_ms = self.env.clock.now_ms()
            self._unsealed.pop(ledger_id, None)

    async def wait_rolled(self) -> None:
        """Wait until a full current ledger is confirmed, sealed and stored as such."""
        if self._appender.is_draining:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._roll_waiters = (*self._roll_waiters, waiter)
            await waiter
        await self._background.wait_idle()

    def arm_timer(self) -> None:
        """(Re)start the timer that closes an aged or idle ledger."""
        current, config = self._appender.current, self._appender.config
        if current is None:
            return
        self._cancel_timer()
        waits = []
        if config.max_rollover_ms > 0:
            age_ms = (self.env.clock.now_s() - current.created_s) * 1000
            limit_ms = max(config.max_rollover_ms, config.min_rollover_ms + 1)
            waits.append(limit_ms - age_ms if age_ms < limit_ms else limit_ms)
        if config.inactive_rollover_ms > 0:
            waits.append(config.inactive_rollover_ms / _IDLE_LOOKS)
        if waits:
            self._timer = self.env.scheduler.call_later(min(waits) / 1000, lambda: self._tick(current))

    def _tick(self, current: OpenLedger) -> None:
        appender = self._appender
        if appender.current is not current or appender.is_draining:
            return
        self._timer = None
        if not self.env.may_roll():
            self._timer = self.env.scheduler.call_later(_AHEAD_RETRY_S, lambda: self._tick(current))
            return
        config, now_s = appender.config, self.env.clock.now_s()
        age_ms = (now_s - current.created_s) * 1000
        if appender.entries_added != self._added_then:
            self._idle_since_s, self._added_then = now_s, appender.entries_added
        is_idle = 0 < config.inactive_rollover_ms <= (now_s - self._idle_since_s) * 1000
        if current.entries and (is_idle or is_full(current.entries, current.size_bytes, age_ms, config)):
            appender.roll()
        else:
            self.arm_timer()

    def _wake_rolled(self) -> None:
        waiters, self._roll_waiters = self._roll_waiters, ()
        _wake(waiters)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- in the background ---

    def _start_creating(self) -> None:
        self._preparing = True
        self._background.start(self._create(), "create ledger")

    async def _create(self) -> None:
        """Create a ledger, unless an earlier call made a ledger ahead; the stored list names it before its first
        append.
        """
        appender = self._appender
        try:
            if self._one_open and self._ahead is None and self._usable_reserve() is None:
                self._reserve = await self._create_unlisted()
            await self._wait_sealed()
            if self._one_open and appender.current is not None:  # the seal has listed the reserve
                return
            self._check_creation()
            if self._failed is not None:
                self._dropped += await self._settle_failed()
                self._trim(None)  # on a full disk its space may be all that appends wait for
            dropped = list(self._dropped)
            if self._ahead is None:
                self._ahead = await self._create_listed()
            else:
                await self._save_list()
        except StorageError as error:
            self._creation_failed(error)
            return
        except Exception as error:  # a bug, which the background logs: no append may wait for ever
            self._creation_failed(StorageError(f"no ledger was created: {error!r}"))
            raise
        finally:
            self._preparing = False
        if appender.current is None and appender.waiting:
            self.prepare()
        await self._delete(dropped)

    async def _keep_reserve(self, creation: Coroutine[object, object, LedgerWriter]) -> None:
        """Keep the new ledger as the reserve. After a failure the ledger is created when appends need it."""
        try:
            self._reserve = await creation
        except StorageError as error:
            log.warning(events.LEDGER_CREATION_FAILED, managed_ledger=self._appender.name, error=str(error))
            self._retry_ahead_s = self.env.clock.now_s() + _AHEAD_RETRY_S
        finally:
            self._preparing = False
            if self._appender.current is None and self._appender.waiting:
                self.prepare()

    async def _create_unlisted(self) -> LedgerWriter:
        """Create a ledger that no list names. Raises StorageError."""
        await self._unlisted.delete(self.ledger_list.save)
        self._check_creation()  # the managed ledger may have begun to close meanwhile
        begun_s = self.env.clock.now_s()
        writer = await self.env.ledgers.create(ledger_properties(self._appender.name))
        self._appender.counters.ledger_created(self.env.clock.now_s() - begun_s)
        return writer

    async def _create_listed(self) -> LedgerWriter:
        """Return a new ledger, the reserve if there is one; the stored list names the ledger on return. Raises
        StorageError.
        """
        writer, self._reserve = self._usable_reserve(), None
        writer = writer or await self._create_unlisted()
        await self._list_next(writer)
        return writer

    async def _list_next(self, writer: LedgerWriter) -> None:
        """Store the list with this ledger at its end. After a failure the ledger is deleted before the next is created.
        Raises StorageError.
        """
        self._unlisted.add(writer.ledger_id)
        self.ledger_list.ahead = writer.ledger_id
        begun_s = self.env.clock.now_s()
        try:
            await self._save_list()
        except StorageError:
            self.ledger_list.ahead = None
            raise
        self._unlisted.listed(writer.ledger_id)
        self._appender.counters.ledger_listed(self.env.clock.now_s() - begun_s)

    def _usable_reserve(self) -> LedgerWriter | None:
        """Return the reserve, unless another client, like auto-recovery of a lost bookie, fenced the ledger."""
        if self._reserve is not None and self._reserve.failure is not None:
            self._unlisted.add(self._reserve.ledger_id)
            self._reserve = None
        return self._reserve

    def _drop_reserve(self) -> None:
        self._background.start(self._delete_reserve(), "delete ledger")

    async def _delete_reserve(self) -> None:
        """Delete the reserve, also that of a former owner: no list has ever named the ledger."""
        reserve, self._reserve = self._reserve, None
        if reserve is not None:
            await self.env.ledgers.delete(reserve.ledger_id)

    def _check_creation(self) -> None:
        """Raise StorageUnavailableError if the managed ledger closes and the store cannot create a ledger now."""
        if self._given_up and not self.env.may_roll():
            raise StorageUnavailableError("the managed ledger closes, and no ledger can be created now")

    async def _wait_sealed(self) -> None:
        """Wait until the previous ledger is sealed. Raises StorageUnavailableError after ``_SEAL_WAIT_S``."""
        try:
            async with asyncio.timeout(_SEAL_WAIT_S):
                if self._sealed is not None:
                    await self._sealed.wait()
        except TimeoutError as error:
            raise StorageUnavailableError(f"no ledger was sealed within {_SEAL_WAIT_S:g} s") from error

    async def _save_list(self) -> None:
        try:
            await self.ledger_list.save()
        except StorageError:
            self._unlisted.record_in_doubt()
            raise

    def _creation_failed(self, error: StorageError) -> None:
        appender = self._appender
        log.warning(events.LEDGER_CREATION_FAILED, managed_ledger=appender.name, error=str(error))
        self._retry_ahead_s = self.env.clock.now_s() + _AHEAD_RETRY_S
        if appender.state is not AppendState.OPEN:
            return
        if isinstance(error, ManagedLedgerFencedError):
            appender.fence()
            return
        self._trim(None)  # on a full disk the ledger that was closed last may be all the space
        if appender.waiting:
            appender.state = AppendState.WRITE_FAILED
            appender.fail_waiting(error)

    async def _settle_failed(self) -> list[int]:
        """Seal the ledger with failed appends and read its last entry. Return the ids to delete after the save."""
        slot = self._failed
        if slot is None:
            return []
        try:
            info = await self.env.ledgers.open_recover(slot.ledger_id)
        except NoSuchLedgerError:
            self.ledger_list.ledgers.remove([slot.ledger_id])
            self._failed = None
            return []
        found = [*self.ledger_list.ledgers.slots[:-1], replace(slot, entries=info.last_entry_id + 1)]
        index = await index_after(self.env.ledgers, found, self._appender.confirmed_index)
        self._appender.recovered(slot, info, index)
        with_index(slot, self._appender.confirmed_index)
        slot.closed_at_ms = self.env.clock.now_ms()
        self._failed = None
        return self._drop_empty(slot)

    def _not_settled(self, slot: LedgerSlot | None) -> None:
        """Keep the ledger for a further recovery: the stored list does not have the end of the ledger."""
        self._failed = slot
        if slot is not None and self.ledger_list.ledgers.slot(slot.ledger_id) is None:
            self.ledger_list.ledgers.put_back([slot])

    async def _seal(self, old: OpenLedger) -> None:
        try:
            await self._close_slot(old)
        except StorageError:
            if self._one_open:
                self._failed = old.slot  # recovered, and so closed, before the next ledger is created
            else:
                self._unsealed[old.slot.ledger_id] = old.slot
            self._wake_sealed()
            raise
        except BaseException:
            self._wake_sealed()
            raise
        self._dropped += self._drop_empty(old.slot)
        dropped = list(self._dropped)
        try:
            await self._save_sealed()
        except ManagedLedgerFencedError:
            self._appender.fence()
            raise
        finally:
            self._wake_sealed()
        log.info(
            events.LEDGER_CLOSED,
            managed_ledger=self._appender.name,
            ledger_id=old.slot.ledger_id,
            entries=old.slot.entries,
        )
        await self._delete(dropped)
        self._trim(old.slot.ledger_id)  # as in Apache Pulsar the full ledger stays for readers that are close behind

    async def _save_sealed(self) -> None:
        """Store the list with the end of the full ledger. If appends wait for the reserve, the same save lists the
        reserve. Raises StorageError.
        """
        reserve, appender = self._usable_reserve(), self._appender
        if reserve is None or not appender.waiting or appender.state is not AppendState.OPEN:
            self._wake_sealed()
            await self.ledger_list.save()
            return
        try:
            await self._list_next(reserve)
        finally:
            self._reserve = None  # not before: a creation that begins meanwhile would delete an unlisted ledger
        self._ahead = reserve
        if appender.current is None and appender.waiting:
            self.prepare()

    def _wake_sealed(self) -> None:
        if self._sealed is not None:
            self._sealed.set()
            self._sealed = None

    async def _delete(self, dropped: Sequence[int]) -> None:
        """Delete these dropped ledgers, which no list names. Raises StorageError; a later call deletes the rest."""
        for ledger_id in list(dropped):
            if ledger_id in self._dropped:
                self._dropped.remove(ledger_id)
                try:
                    await self.env.ledgers.delete(ledger_id)
                except StorageError:
                    self._dropped.append(ledger_id)
                    raise

    async def _close_slot(self, old: OpenLedger) -> None:
        info = await old.writer.close()
        if self._unsealed_writer is old.writer:
            self._unsealed_writer = None
        old.slot.size_bytes = info.length_bytes
        old.slot.closed_at_ms = self.env.clock.now_ms()

    def _drop_empty(self, slot: LedgerSlot) -> list[int]:
        if slot.entries:
            return []
        self.ledger_list.ledgers.remove([slot.ledger_id])
        return [slot.ledger_id]


def _wake(waiters: Sequence[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
