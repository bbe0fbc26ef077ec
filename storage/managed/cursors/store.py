"""Where a durable cursor is kept: its record in the metadata store and its cursor ledger.

Record ``/managed-ledgers/<name>/<url-encoded cursor>``: ``ManagedCursorInfo`` (``managed_ledger_records.proto``).
Either ``cursorsLedgerId`` is -1 and ``state`` is the whole state, or it names the cursor ledger, whose newest complete
state counts (``cursor_state.py``); mark-delete is in the record in both cases, as the fallback should that ledger be
lost.

Order of writes: a new cursor ledger holds a complete state on disk before the record names it; the record no longer
names a ledger before that is deleted. So at any crash the record leads to a state that was complete, and to every
state whose save was reported. Falling back to an older state redelivers, it never skips.
"""

from __future__ import annotations

import contextlib
from array import array
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog
from google.protobuf.message import DecodeError

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
)
from magnetar.storage.interfaces import MUST_NOT_EXIST
from magnetar.storage.managed.cursors.recovery import read_newest_state
from magnetar.storage.managed.cursors.state import (
    CursorState,
    decode_state,
    encode_entries,
    encode_increment,
    encode_state,
)
from magnetar.storage.managed.ledger_list import ledger_list_path
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo
from magnetar.storage.managed.slab_append import append_slab
from magnetar.storage.managed.unlisted_ledgers import UnlistedLedgers
from magnetar.storage.position import Position
from magnetar.storage.slab import Slab

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.storage.interfaces import LedgerWriter
    from magnetar.storage.managed.config import ManagedLedgerConfig
    from magnetar.storage.managed.cursors.ack_state import AckState
    from magnetar.storage.managed.environment import StorageEnv

__all__ = ["CursorStore", "cursor_path"]

log = structlog.get_logger(__name__)

_NO_LEDGER = -1


def cursor_path(ledger_name: str, cursor_name: str) -> str:
    return f"{ledger_list_path(ledger_name)}/{quote(cursor_name, safe='')}"


class CursorStore:
    """Not re-entrant: one call at a time (``CursorSaver`` sees to it)."""

    def __init__(
        self, env: StorageEnv, ledger_name: str, cursor_name: str, config: Callable[[], ManagedLedgerConfig]
    ) -> None:
        self.cursor_properties: dict[str, str] = {}
        self.created_ms = 0
        self.saves = 0
        self._config = config
        self._env = env
        self._ledger_name, self._cursor_name = ledger_name, cursor_name
        self._path = cursor_path(ledger_name, cursor_name)
        self._version = -1
        self._ledger_id = _NO_LEDGER
        self._writer: LedgerWriter | None = None
        self._unlisted = UnlistedLedgers(env.ledgers, lambda: self._put_record(self._version))
        self._base = 0
        self._full_bytes = 0
        self._increment_bytes = 0
        self._inline = b""
        self._mark_delete = Position(-1, -1)

    @property
    def config(self) -> ManagedLedgerConfig:
        return self._config()

    async def create(self, acks: AckState, properties: dict[str, int], cursor_properties: dict[str, str]) -> None:
        """A new record with the whole state inline; durable on return."""
        self.cursor_properties = dict(cursor_properties)
        self.created_ms = self._env.clock.now_ms()
        self._inline = encode_state(acks.snapshot(properties))
        self._mark_delete = acks.mark_delete
        await self._put_record(MUST_NOT_EXIST)

    async def load(self) -> CursorState:
        """The newest stored state. Raises NoNodeError, LedgerListError, StorageError."""
        found = await self._env.metadata.get(self._path)
        if found is None:
            raise NoNodeError(self._path)
        value, self._version = found
        try:
            record = ManagedCursorInfo.FromString(value)
        except DecodeError as error:
            raise LedgerListError(f"{self._path}: {error}") from error
        self.cursor_properties = {item.name: item.value for item in record.cursorProperties}
        self.created_ms = record.createdMs
        self._ledger_id = record.cursorsLedgerId
        self._inline = record.state
        self._mark_delete = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
        if self._ledger_id != _NO_LEDGER:
            return await self._load_from_ledger()
        if record.state:
            try:
                return decode_state(record.state)
            except CursorStateError as error:
                self._report_lost(error)
        return CursorState(self._mark_delete)

    async def write(self, acks: AckState, properties: dict[str, int]) -> None:
        """Store what the cursor holds now; durable on return. After an error nothing is lost: call it again."""
        writer = self._writer
        try:
            if writer is None or writer.last_add_pushed + 1 >= self.config.cursor_max_entries_per_ledger:
                await self._write_to_new_ledger(acks, properties)
            else:
                await self._append(writer, self._next_entries(writer, acks, properties))
                self._mark_delete = acks.mark_delete
        except StorageError:
            acks.needs_snapshot()
            self._writer = None
            raise
        self.saves += 1

    async def close(self, acks: AckState, properties: dict[str, int], *, dirty: bool) -> None:
        """Store the state a last time: a small one in the record, which makes the next opening cheap."""
        await self._unlisted.try_delete()
        if self._ledger_id == _NO_LEDGER and not dirty:
            return
        state = encode_state(acks.snapshot(properties))
        if len(state) <= self.config.cursor_inline_bytes:
            old_id, old = self._ledger_id, self._writer
            self._ledger_id, self._writer = _NO_LEDGER, None
            self._inline, self._mark_delete = state, acks.mark_delete
            await self._put_record(self._version)
            await self._drop_ledger(old_id, old)
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
        """The record first, then the ledger."""
        with contextlib.suppress(NoNodeError):
            await self._env.metadata.delete(self._path)
        self._unlisted.listed(_NO_LEDGER)  # no record is left that could name one
        await self._unlisted.try_delete()
        await self._drop_ledger(self._ledger_id, self._writer)
        self._ledger_id, self._writer = _NO_LEDGER, None

    # -- cursor ledger ---

    def _next_entries(self, writer: LedgerWriter, acks: AckState, properties: dict[str, int]) -> list[bytes]:
        """An increment while that is less to write and to read back than the whole state."""
        increment = acks.take_changes(properties)
        if increment is not None:
            data = encode_state(increment)
            self._increment_bytes += len(data)
            chunk_bytes = self.config.cursor_chunk_bytes
            if len(data) <= chunk_bytes and self._increment_bytes <= max(self._full_bytes, chunk_bytes):
                return [encode_increment(data, self._base)]
        return self._full_entries(acks, properties, writer.last_add_pushed + 1)

    def _full_entries(self, acks: AckState, properties: dict[str, int], first_entry_id: int) -> list[bytes]:
        data = encode_state(acks.snapshot(properties))
        self._base, self._full_bytes, self._increment_bytes = first_entry_id, len(data), 0
        return encode_entries(data, first_entry_id, self.config.cursor_chunk_bytes)

    async def _write_to_new_ledger(self, acks: AckState, properties: dict[str, int]) -> None:
        writer = await self._unlisted.create(
            {
                "application": "pulsar",
                "component": "managed-ledger",
                "pulsar/managed-ledger": self._ledger_name,
                "pulsar/cursor": self._cursor_name,
            }
        )
        mark_delete = acks.mark_delete
        try:
            await self._append(writer, self._full_entries(acks, properties, 0))
        except StorageError:
            await self._unlisted.try_delete()
            raise
        old_id, old, old_inline = self._ledger_id, self._writer, self._inline
        self._ledger_id, self._inline, self._mark_delete = writer.ledger_id, b"", mark_delete
        try:
            await self._put_record(self._version)
        except StorageError:
            self._ledger_id, self._inline = old_id, old_inline
            self._unlisted.record_in_doubt()
            raise
        self._unlisted.listed(writer.ledger_id)
        self._writer = writer
        await self._drop_ledger(old_id, old)

    async def _append(self, writer: LedgerWriter, bodies: list[bytes]) -> None:
        first = writer.last_add_pushed + 1
        offsets, at = [0], 0
        for body in bodies:
            at += len(body)
            offsets.append(at)
        places = _int64s(offsets)
        counts = _int64s([1] * len(bodies))
        data, record_offsets = stamp(
            b"".join(bodies), places, counts, 0, len(bodies), writer.ledger_id, first, writer.last_add_confirmed, -1, -2
        )
        await append_slab(writer, Slab(writer.ledger_id, first, data, record_offsets))

    async def _drop_ledger(self, ledger_id: int, writer: LedgerWriter | None) -> None:
        """Nothing refers to it any more; a failure leaves an unknown ledger behind and harms nobody."""
        if ledger_id == _NO_LEDGER:
            return
        try:
            if writer is not None:
                await writer.close()
            await self._env.ledgers.delete(ledger_id)
        except StorageError as error:
            log.warning(events.CURSOR_LEDGER_NOT_DELETED, ledger_id=ledger_id, error=str(error))

    async def _load_from_ledger(self) -> CursorState:
        try:
            info = await self._env.ledgers.open_recover(self._ledger_id)
            state = await read_newest_state(self._env.ledgers, self._ledger_id, info.last_entry_id)
        except NoSuchLedgerError as error:
            self._report_lost(error)
            return CursorState(self._mark_delete)
        if state is None:
            self._report_lost(CursorStateError(f"no complete state in ledger {self._ledger_id}"))
            return CursorState(self._mark_delete)
        return state

    def _report_lost(self, error: StorageError) -> None:
        log.error(events.CURSOR_STATE_LOST, cursor=self._path, fallback=str(self._mark_delete), error=str(error))

    # -- record ---

    async def _put_record(self, expected_version: int) -> None:
        record = ManagedCursorInfo(
            cursorsLedgerId=self._ledger_id,
            markDeleteLedgerId=self._mark_delete.ledger_id,
            markDeleteEntryId=self._mark_delete.entry_id,
            createdMs=self.created_ms,
        )
        if self._ledger_id == _NO_LEDGER:
            record.state = self._inline
        for name, value in self.cursor_properties.items():
            record.cursorProperties.add(name=name, value=value)
        try:
            self._version = await self._env.metadata.put(self._path, record.SerializeToString(), expected_version)
        except BadVersionError as error:
            raise ManagedLedgerFencedError(self._ledger_name, f"cursor {self._cursor_name}") from error


def _int64s(values: list[int]) -> bytes:
    return array("q", values).tobytes()
