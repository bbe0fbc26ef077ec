"""The stored form of a durable cursor: its record in the metadata store and its cursor ledger.

Record ``/managed-ledgers/<name>/<encoded cursor>``, in the bytes of the factory's layout (``stored_layout.py``). Either
it holds the whole state, or it names the cursor ledger, whose newest complete state counts; mark-delete is in the
record in both cases, as the fallback should that ledger be lost.

Order of writes: a new cursor ledger holds a complete state on disk before the record names it; the record no longer
names a ledger before that ledger is deleted. So after any crash the record leads to a complete state that is at least
as new as the last state whose save was reported. An older state causes redelivery; it never skips an entry.

The ledger list decides the owner, not the version of the record, since a write without an answer may have been carried
out: each write of the record depends on the version of the list, which a new owner changes before it reads records.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from magnetar.protocol.speed import stamp
from magnetar.storage import events
from magnetar.storage.errors import (
    BadVersionError,
    CursorStateError,
    LedgerListError,
    ManagedLedgerFencedError,
    NoNodeError,
    NoSuchLedgerError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed.cursors.state import CursorState
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.slab_append import append_slab
from magnetar.storage.managed.stored_layout import NO_LEDGER, CursorRecord
from magnetar.storage.managed.unlisted_ledgers import UnlistedLedgers
from magnetar.storage.position import EARLIEST, Position
from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from magnetar.storage.interfaces import LedgerInfo, LedgerWriter
    from magnetar.storage.managed.config import ConfigInForce, ManagedLedgerConfig
    from magnetar.storage.managed.cursors.ack_state import AckState
    from magnetar.storage.managed.cursors.early_look import EarlyLook
    from magnetar.storage.managed.environment import StorageEnv
    from magnetar.storage.managed.ledger_list import LedgerList

__all__ = ["CursorStore", "cursor_path"]

log = structlog.get_logger(__name__)

_PAGE_BYTES = 4096
"""The smallest write of the journal."""
_NO_LEDGER_NOW = (StorageUnavailableError, StorageFullError)
"""Errors of ledgers alone: the metadata store may take a record. Acknowledgements make room on a full disk."""
_RECORD_ATTEMPTS = 3
"""The most writes of a record for one save, while other writes of the record come in between."""


def cursor_path(ledger_name: str, cursor_name: str) -> str:
    return f"{ledger_list_path(ledger_name)}/{quote(cursor_name, safe='')}"


class CursorStore:
    """The stored form of one cursor. Not re-entrant: ``CursorSaver`` makes one call at a time."""

    def __init__(
        self,
        env: StorageEnv,
        ledger_list: LedgerList,
        cursor_name: str,
        config: ConfigInForce,
    ) -> None:
        self.cursor_properties: dict[str, str] = {}
        self.created_ms = 0
        self.saves = 0
        self._config = config
        self._env = env
        self._list = ledger_list
        self._cursor_name = cursor_name
        self._layout = env.layout
        self._path = f"{ledger_list.path}/{env.layout.cursor_node(cursor_name)}"
        self._version = -1
        self._ledger_id = NO_LEDGER
        self._writer: LedgerWriter | None = None
        self._loaded_entry = -1
        """The last entry of the cursor ledger when the cursor was loaded."""
        self._unlisted = UnlistedLedgers(env.ledgers)
        self._base = 0
        self._full_bytes = 0
        self._increment_bytes = 0
        self._properties: dict[str, int] = {}
        self._inline: CursorState | None = None
        self._mark_delete = EARLIEST
        self._may_be_deleted = False
        """Whether a deletion of the record got no answer. Only the owner deletes records, so if no record is found now,
        that deletion was carried out, and the next save creates the record again.
        """
        self.state_lost = False
        """Whether no stored state was readable: the cursor then has the record's mark-delete position and no
        properties.
        """

    @property
    def config(self) -> ManagedLedgerConfig:
        return self._config.value

    @property
    def stored_at(self) -> Position:
        """The last entry of the cursor ledger; EARLIEST when the record names no ledger."""
        if self._ledger_id == NO_LEDGER:
            return EARLIEST
        return Position(self._ledger_id, self._loaded_entry if self._writer is None else self._writer.last_add_pushed)

    async def create(self, acks: AckState, properties: dict[str, int], cursor_properties: dict[str, str]) -> None:
        """A new record with the whole state inline; durable on return."""
        self.cursor_properties = dict(cursor_properties)
        self.created_ms = self._env.clock.now_ms()
        self._inline = acks.snapshot(properties)
        self._mark_delete = acks.mark_delete
        await self._put_record(MUST_NOT_EXIST)

    async def load(self, look: EarlyLook | None = None) -> CursorState:
        """Return the newest stored state; the findings of the look are not read again. Raises NoNodeError,
        LedgerListError, StorageError.
        """
        found = None if look is None else look.records.get(self._layout.cursor_node(self._cursor_name))
        found = found or await self._env.metadata.get(self._path)
        if found is None:
            raise NoNodeError(self._path)
        value, self._version = found
        try:
            record = self._layout.decode_cursor(value)
        except LedgerListError as error:
            raise LedgerListError(f"{self._path}: {error}") from error
        self.cursor_properties = record.cursor_properties
        self.created_ms = record.created_ms
        self._ledger_id, self._inline, self._mark_delete = record.ledger_id, record.state, record.mark_delete
        if self._ledger_id != NO_LEDGER:
            return await self._load_from_ledger({} if look is None else look.ends)
        if record.damage:
            self._report_lost(CursorStateError(record.damage))
        return record.state or CursorState(self._mark_delete)

    async def write(self, acks: AckState, properties: Callable[[], dict[str, int]]) -> None:
        """Store the state of the cursor at one moment during the call; durable on return. While no ledger can be
        written a small state goes into the record. An error loses no state: call again.
        """
        writer = self._writer
        try:
            if writer is None or writer.last_add_pushed + 1 >= self.config.cursor_max_entries_per_ledger:
                await self._write_to_new_ledger(acks, properties)
            else:
                await self._append(writer, self._next_entries(writer, acks, properties()))
                self._mark_delete = acks.mark_delete
        except StorageError as error:
            self._writer = None
            state = acks.snapshot(properties())
            acks.needs_snapshot()
            inline_bytes = self.config.cursor_inline_bytes
            if not isinstance(error, _NO_LEDGER_NOW) or not self._layout.record_can_hold(state, inline_bytes):
                raise
            await self._write_to_record(state)
        self.saves += 1

    async def close(self, acks: AckState, properties: Callable[[], dict[str, int]], *, dirty: bool) -> None:
        """Store the state a last time; a small state goes into the record, which makes the next opening cheap."""
        await self._unlisted.try_delete(self._put_same_record)
        if self._ledger_id == NO_LEDGER and not dirty:
            if self._inline is None or self._fits_record(self._inline):
                return
            dirty = True  # Apache Pulsar writes more into a record than it reads from the record
        state = acks.snapshot(properties())
        if self._fits_record(state):
            await self._write_to_record(state)
            return
        acks.needs_snapshot()
        if dirty:
            await self.write(acks, properties)
        if self._writer is not None:
            await self._writer.close()
            self._writer = None

    async def set_cursor_properties(self, cursor_properties: dict[str, str]) -> None:
        """Durable on return."""
        before, self.cursor_properties = self.cursor_properties, dict(cursor_properties)
        try:
            await self._put_record(self._version)
        except StorageError:
            self.cursor_properties = before
            raise

    async def delete(self) -> None:
        """Delete the record first, then the cursor ledger. After an error the next save writes the record."""
        try:
            await self._delete_record()
        except StorageError:
            self._may_be_deleted, self._writer = True, None  # a save to the present ledger would not write the record
            raise
        self._unlisted.listed(NO_LEDGER)  # no record exists that could name a ledger
        await self._unlisted.try_delete(self._put_same_record)
        await self._drop_ledger(self._ledger_id)
        self._ledger_id, self._writer = NO_LEDGER, None

    async def _put_same_record(self) -> None:
        await self._put_record(self._version)

    # -- cursor ledger ---

    def _next_entries(self, writer: LedgerWriter, acks: AckState, properties: dict[str, int]) -> list[bytes]:
        """Return the entries of the next save: an increment if that is less to write and to read back than the whole
        state. New properties cause a whole state while it fits a page, so that no earlier damaged entry hides them.
        """
        may_be_increment = properties == self._properties or self._full_bytes > _PAGE_BYTES
        increment = acks.take_changes(properties) if may_be_increment else None
        entry = None if increment is None else self._layout.increment_entry(increment, self._base)
        if entry is not None:
            self._increment_bytes += len(entry)
            chunk_bytes = self.config.cursor_chunk_bytes
            if len(entry) <= chunk_bytes and self._increment_bytes <= max(self._full_bytes, chunk_bytes):
                self._properties = dict(properties)
                return [entry]
        return self._full_entries(acks, properties, writer.last_add_pushed + 1)

    def _full_entries(self, acks: AckState, properties: dict[str, int], first_entry_id: int) -> list[bytes]:
        chunk_bytes = self.config.cursor_chunk_bytes
        entries = self._layout.full_entries(acks.snapshot(properties), first_entry_id, chunk_bytes)
        self._base, self._full_bytes, self._increment_bytes = first_entry_id, sum(map(len, entries)), 0
        self._properties = dict(properties)
        return entries

    async def _write_to_new_ledger(self, acks: AckState, properties: Callable[[], dict[str, int]]) -> None:
        writer = await self._unlisted.create(
            {
                "application": "pulsar",
                "component": "managed-ledger",
                "pulsar/managed-ledger": self._list.name,
                "pulsar/cursor": self._cursor_name,
            },
            self._put_same_record,
        )
        mark_delete = acks.mark_delete
        try:
            await self._append(writer, self._full_entries(acks, properties(), 0))
        except StorageError:
            await self._unlisted.try_delete(self._put_same_record)
            raise
        old_id, old_inline = self._ledger_id, self._inline
        self._ledger_id, self._inline, self._mark_delete = writer.ledger_id, None, mark_delete
        try:
            await self._put_record(self._version)
        except StorageError:
            self._ledger_id, self._inline = old_id, old_inline
            self._unlisted.record_in_doubt()
            raise
        self._unlisted.listed(writer.ledger_id)
        self._writer = writer
        await self._drop_ledger(old_id)

    async def _append(self, writer: LedgerWriter, bodies: list[bytes]) -> None:
        first = writer.last_add_pushed + 1
        offsets, at = [0], 0
        for body in bodies:
            at += len(body)
            offsets.append(at)
        places = _int64s(offsets)
        counts = _int64s([1] * len(bodies))
        data, record_offsets = stamp(
            b"".join(bodies), places, counts, 0, len(bodies), writer.ledger_id, first, writer.record_proof, -1, -2
        )
        await append_slab(writer, Slab(writer.ledger_id, first, data, record_offsets))

    async def _drop_ledger(self, ledger_id: int) -> None:
        """Delete a ledger that no record names. A failure leaves an orphaned ledger, which is harmless."""
        if ledger_id == NO_LEDGER:
            return
        try:
            await self._env.ledgers.delete(ledger_id)
        except StorageError as error:
            log.warning(events.CURSOR_LEDGER_NOT_DELETED, ledger_id=ledger_id, error=str(error))

    async def _load_from_ledger(self, ends: Mapping[int, LedgerInfo]) -> CursorState:
        """``ends``: ledgers that are recovered."""
        try:
            info = ends.get(self._ledger_id) or await self._env.ledgers.open_recover(self._ledger_id)
            self._loaded_entry = info.last_entry_id
            state = await self._layout.newest_state(self._env.ledgers, self._ledger_id, info.last_entry_id)
        except NoSuchLedgerError as error:
            found = await self._env.metadata.get(self._path)
            if found is None or found[1] != self._version:  # the former owner, still at work, has changed the record
                return await self.load()
            self._report_lost(error)
            return CursorState(self._mark_delete)
        if state is None:
            self._report_lost(CursorStateError(f"no complete state in ledger {self._ledger_id}"))
            return CursorState(self._mark_delete)
        return state

    def _report_lost(self, error: StorageError) -> None:
        self.state_lost = True
        log.error(events.CURSOR_STATE_LOST, cursor=self._path, fallback=str(self._mark_delete), error=str(error))

    # -- record ---

    def _fits_record(self, state: CursorState) -> bool:
        return self._layout.fits_record(state, self.config.cursor_inline_bytes)

    async def _write_to_record(self, state: CursorState) -> None:
        """Store the whole state in the record, and delete the cursor ledger."""
        before = self._ledger_id, self._inline, self._mark_delete
        self._ledger_id, self._inline, self._mark_delete = NO_LEDGER, state, state.mark_delete
        try:
            await self._put_record(self._version)
        except StorageError:
            self._ledger_id, self._inline, self._mark_delete = before
            raise
        self._writer = None
        await self._drop_ledger(before[0])

    async def _put_record(self, expected_version: int) -> None:
        state = self._inline if self._ledger_id == NO_LEDGER else None
        record = CursorRecord(
            self._ledger_id,
            self._mark_delete,
            state,
            cursor_properties=self.cursor_properties,
            created_ms=self.created_ms,
        )
        value = self._layout.encode_cursor(record, self._env.clock.now_ms())
        version = expected_version
        for _ in range(_RECORD_ATTEMPTS):
            try:
                self._version = await self._list.guarded(partial(self._env.metadata.put, self._path, value, version))
            except BadVersionError:
                found = await self._env.metadata.get(self._path)
                if found is None and not self._may_be_deleted:
                    break  # deleted
                version = MUST_NOT_EXIST if found is None else found[1]
            else:
                return
        raise ManagedLedgerFencedError(self._list.name, f"cursor {self._cursor_name}")

    async def _delete_record(self) -> None:
        """Delete the record of a known version: the deletion cannot arrive late and delete a record written since."""
        version = self._version
        for _ in range(_RECORD_ATTEMPTS):
            try:
                await self._list.guarded(partial(self._env.metadata.delete, self._path, version))
            except NoNodeError:
                return
            except BadVersionError:
                found = await self._env.metadata.get(self._path)
                if found is None:
                    return
                version = found[1]
            else:
                return
        raise ManagedLedgerFencedError(self._list.name, f"cursor {self._cursor_name}")


def _int64s(values: list[int]) -> bytes:
    return array("q", values).tobytes()
