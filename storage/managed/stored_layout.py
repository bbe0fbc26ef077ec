"""The layout of the managed layer's records in the stores. A factory has one layout for all its managed ledgers.

``OwnLayout`` is the layout of this project; ``storage.pulsar_layout`` has the layout of Apache Pulsar, which the
brokers of a cluster use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote

from google.protobuf.message import DecodeError

from magnetar.storage.errors import CursorStateError, LedgerListError
from magnetar.storage.managed.cursors.recovery import read_newest_state
from magnetar.storage.managed.cursors.state import (
    CursorState,
    decode_state,
    encode_entries,
    encode_increment,
    encode_state,
)
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.managed.list_parts import encoded_ledgers
from magnetar.storage.managed.managed_ledger_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.storage.position import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.storage.interfaces import LedgerStore

__all__ = ["DELETION_PROPERTY", "NO_LEDGER", "USER_PROPERTY", "CursorRecord", "ListRecord", "OwnLayout", "StoredLayout"]

NO_LEDGER = -1
USER_PROPERTY = "user."
"""In front of the names of properties that users keep with a topic, among those of its managed ledger."""
DELETION_PROPERTY = "magnetar.deletion"
"""The mark of a managed ledger whose deletion has begun: the id of the last ledger of its list, -1 without ledgers. A
broker that does not know the mark adds a ledger before it appends, and the mark counts no longer.
"""


@dataclass(slots=True)
class ListRecord:
    """The stored record of a managed ledger."""

    ledgers: Sequence[LedgerSlot] = ()
    """Ascending by ledger id; an open ledger has ``closed_at_ms`` 0, and its figures are meaningless."""
    terminated: Position | None = None
    properties: dict[str, str] = field(default_factory=dict)
    created_ms: int = 0

    @property
    def deletion_mark(self) -> str:
        """The value that marks this list, with its ledgers, as one of a log that is being deleted."""
        return str(self.ledgers[-1].ledger_id if self.ledgers else NO_LEDGER)

    @property
    def doomed(self) -> bool:
        """Whether the deletion of the managed ledger has begun."""
        return self.properties.get(DELETION_PROPERTY) == self.deletion_mark


@dataclass(slots=True)
class CursorRecord:
    """The stored record of a cursor; the cursor ledger is stored apart from it."""

    ledger_id: int = NO_LEDGER
    """The cursor ledger, whose newest state is the state of the cursor; NO_LEDGER: ``state`` is."""
    mark_delete: Position = EARLIEST
    """The position for a cursor whose state cannot be read."""
    state: CursorState | None = None
    """None when the cursor has a cursor ledger, or when the state is unreadable (``damage`` has the reason)."""
    damage: str = ""
    cursor_properties: dict[str, str] = field(default_factory=dict)
    created_ms: int = 0


class StoredLayout(Protocol):
    """All methods are pure, except ``newest_state``."""

    @property
    def one_open_ledger(self) -> bool:
        """Whether only the last ledger of a list may be open: its predecessor is sealed before the next ledger is
        created.
        """
        ...

    @property
    def saves_at_open(self) -> bool:
        """Opening a managed ledger always stores its list, so that another owner's next change fails."""
        ...

    @property
    def opens_without_last_ledger(self) -> bool:
        """Whether a managed ledger opens without its last ledger if this ledger does not exist any more, as in Apache
        Pulsar; the entries of the ledger are lost.
        """
        ...

    def cursor_node(self, cursor_name: str) -> str:
        """Return the name of the cursor's node below the node of its managed ledger."""
        ...

    def cursor_name(self, node: str) -> str: ...

    def encode_list(self, record: ListRecord) -> bytes: ...

    def decode_list(self, value: bytes) -> ListRecord:
        """Raises LedgerListError."""
        ...

    def encode_cursor(self, record: CursorRecord, now_ms: int) -> bytes: ...

    def decode_cursor(self, value: bytes) -> CursorRecord:
        """Raises LedgerListError."""
        ...

    def fits_record(self, state: CursorState, inline_bytes: int) -> bool:
        """Whether a closed cursor keeps this state in its record."""
        ...

    def record_can_hold(self, state: CursorState, inline_bytes: int) -> bool:
        """Whether the record can hold this state until a cursor ledger can be written."""
        ...

    def full_entries(self, state: CursorState, first_entry_id: int, chunk_bytes: int) -> list[bytes]:
        """Entries of a cursor ledger that hold the whole state."""
        ...

    def increment_entry(self, increment: CursorState, base: int) -> bytes | None:
        """An entry with the changes since the entry before; None: the layout has no such entries."""
        ...

    async def newest_state(self, ledgers: LedgerStore, ledger_id: int, last_entry_id: int) -> CursorState | None:
        """The newest complete state of a closed cursor ledger; None: there is none."""
        ...


def _encode_ledger(slot: LedgerSlot) -> bytes:
    message = ManagedLedgerInfo()
    info = message.ledgerInfo.add(ledgerId=slot.ledger_id, entries=0, size=0, timestamp=slot.closed_at_ms)
    if slot.closed_at_ms:
        info.entries, info.size = slot.entries, slot.size_bytes
    for key, value in slot.properties.items():
        info.properties.add(key=key, value=value)
    return message.SerializeToString()


class OwnLayout:
    """Pulsar's protobuf records with further fields; states as ``cursors/state.py`` describes them."""

    one_open_ledger = False
    saves_at_open = False
    opens_without_last_ledger = False

    def cursor_node(self, cursor_name: str) -> str:
        return quote(cursor_name, safe="")

    def cursor_name(self, node: str) -> str:
        return unquote(node)

    def encode_list(self, record: ListRecord) -> bytes:
        message = ManagedLedgerInfo(createdMs=record.created_ms)
        if record.terminated is not None:
            message.terminatedPosition.ledgerId, message.terminatedPosition.entryId = record.terminated
        for key, value in record.properties.items():
            message.properties.add(key=key, value=value)
        return encoded_ledgers(record.ledgers, _encode_ledger) + message.SerializeToString()

    def decode_list(self, value: bytes) -> ListRecord:
        try:
            message = ManagedLedgerInfo.FromString(value)
        except DecodeError as error:
            raise LedgerListError(str(error)) from error
        end = message.terminatedPosition if message.HasField("terminatedPosition") else None
        return ListRecord(
            [
                LedgerSlot(
                    info.ledgerId,
                    info.entries,
                    info.size,
                    info.timestamp,
                    {item.key: item.value for item in info.properties},
                )
                for info in message.ledgerInfo
            ],
            None if end is None else Position(end.ledgerId, end.entryId),
            {item.key: item.value for item in message.properties},
            message.createdMs,
        )

    def encode_cursor(self, record: CursorRecord, now_ms: int) -> bytes:  # noqa: ARG002 - Pulsar's records hold a time
        message = ManagedCursorInfo(
            cursorsLedgerId=record.ledger_id,
            markDeleteLedgerId=record.mark_delete.ledger_id,
            markDeleteEntryId=record.mark_delete.entry_id,
            createdMs=record.created_ms,
        )
        if record.state is not None:
            message.state = encode_state(record.state)
        for name, value in record.cursor_properties.items():
            message.cursorProperties.add(name=name, value=value)
        return message.SerializeToString()

    def decode_cursor(self, value: bytes) -> CursorRecord:
        try:
            message = ManagedCursorInfo.FromString(value)
        except DecodeError as error:
            raise LedgerListError(str(error)) from error
        record = CursorRecord(
            message.cursorsLedgerId,
            Position(message.markDeleteLedgerId, message.markDeleteEntryId),
            cursor_properties={item.name: item.value for item in message.cursorProperties},
            created_ms=message.createdMs,
        )
        if record.ledger_id == NO_LEDGER and message.state:
            try:
                record.state = decode_state(message.state)
            except CursorStateError as error:
                record.damage = str(error)
        elif record.ledger_id == NO_LEDGER:
            record.state = CursorState(record.mark_delete)
        return record

    def fits_record(self, state: CursorState, inline_bytes: int) -> bool:
        return len(encode_state(state)) <= inline_bytes

    def record_can_hold(self, state: CursorState, inline_bytes: int) -> bool:
        return self.fits_record(state, inline_bytes)

    def full_entries(self, state: CursorState, first_entry_id: int, chunk_bytes: int) -> list[bytes]:
        return encode_entries(encode_state(state), first_entry_id, chunk_bytes)

    def increment_entry(self, increment: CursorState, base: int) -> bytes | None:
        return encode_increment(encode_state(increment), base)

    async def newest_state(self, ledgers: LedgerStore, ledger_id: int, last_entry_id: int) -> CursorState | None:
        return await read_newest_state(ledgers, ledger_id, last_entry_id)
