"""``StoredLayout`` of Apache Pulsar 4.2: reads the records of Pulsar brokers and writes records that they can read.

The layout keeps these rules of Pulsar (a violation of each was seen to lose messages or topics):

- a next owner recovers only the last ledger of a list, so every earlier ledger is stored with its true figures;
- ``entries`` and ``size`` of an open ledger are absent, not 0;
- ``properties["index"]`` is a number;
- properties that users keep with a topic stand beside those of the broker, under their own names;
- a cursor's record is never empty;
- each entry of a cursor ledger is the full state, and the last entry is in force.

Pulsar's sizes count the entries alone; sizes in memory also count the record header of each entry.

Reading fails for unsupported records: that of a ledger that was offloaded and deleted from BookKeeper, and that of a
shadow topic, whose ledgers belong to another topic, which alone may recover and delete them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

import structlog
from google.protobuf.message import DecodeError

from magnetar.protocol.url_encoder import url_encoded
from magnetar.storage import events
from magnetar.storage.errors import CorruptEntryError, CursorStateError, LedgerListError
from magnetar.storage.managed.entry_index import LEDGER_INDEX
from magnetar.storage.managed.ledger_list import INDEX_PROPERTY
from magnetar.storage.managed.ledger_map import LedgerSlot
from magnetar.storage.managed.list_parts import encoded_ledgers
from magnetar.storage.managed.stored_layout import DELETION_PROPERTY, NO_LEDGER, USER_PROPERTY, CursorRecord, ListRecord
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.compression import expanded
from magnetar.storage.pulsar_layout.cursor_records import (
    batch_bytes,
    decode_position_info,
    encode_position_info,
    fill_cursor_info,
    range_count,
    state_of_cursor_info,
)
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.storage.slab import RECORD_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magnetar.storage.interfaces import LedgerStore
    from magnetar.storage.managed.cursors.state import CursorState

__all__ = ["PulsarLayout"]

log = structlog.get_logger(__name__)

MOST_RANGES = 1000
"""managedLedgerMaxUnackedRangesToPersistInMetadataStore: a state with more ranges stays in the cursor ledger."""
_BROKERS_PROPERTIES = frozenset({INDEX_PROPERTY, "pulsar.topic.epoch", DELETION_PROPERTY})
"""The properties of a list that belong to the broker; all others but that of shadow topics belong to users."""
_SHADOW_OF = "PULSAR.SHADOW_SOURCE"
"""The property of a shadow topic of Pulsar, whose list names the ledgers of the topic in the value."""
_MOST_STATE_BYTES = 1 << 20
"""The largest size of one entry of a cursor ledger."""
_MOST_BATCH_BYTES = 512 << 10
"""The most bytes of parts of batches in a record: ZooKeeper takes no node of a mebibyte."""
_GREATEST_INDEX = 1 << 62
_MOST_ENTRIES = 1 << 32
"""Sets of acknowledged entries hold the entries of a ledger up to this number."""


def _encode_ledger(slot: LedgerSlot) -> bytes:
    message = ManagedLedgerInfo()
    info = message.ledgerInfo.add(ledgerId=slot.ledger_id, timestamp=slot.closed_at_ms)
    if slot.closed_at_ms:
        info.entries, info.size = slot.entries, slot.size_bytes - slot.entries * RECORD_HEADER_BYTES
    for key, value in slot.properties.items():
        info.properties.add(key=key, value=value)
    return message.SerializeToString()


class PulsarLayout:
    """See ``StoredLayout``."""

    one_open_ledger = True
    saves_at_open = True
    opens_without_last_ledger = True

    def cursor_node(self, cursor_name: str) -> str:
        return url_encoded(cursor_name)

    def cursor_name(self, node: str) -> str:
        return unquote_plus(node)

    def encode_list(self, record: ListRecord) -> bytes:
        message = ManagedLedgerInfo()
        if record.terminated is not None:
            message.terminatedPosition.ledgerId, message.terminatedPosition.entryId = record.terminated
        for key, value in {**record.properties, INDEX_PROPERTY: record.properties.get(INDEX_PROPERTY, "-1")}.items():
            name = key.removeprefix(USER_PROPERTY)
            # A user's value of these would be read as the broker's, or make this a shadow topic.
            if name == key or name not in _BROKERS_PROPERTIES | {_SHADOW_OF}:
                message.properties.add(key=name, value=value)
        return encoded_ledgers(record.ledgers, _encode_ledger) + message.SerializeToString()

    def decode_list(self, value: bytes) -> ListRecord:
        """Return the list; empty bytes mean a topic that was created and never loaded. A ledger without figures or time
        counts as open: the next opening recovers it, also when it is not the last ledger.
        """
        try:
            message = ManagedLedgerInfo.FromString(expanded(value))
        except DecodeError as error:
            raise LedgerListError(str(error)) from error
        if not message.IsInitialized():
            raise LedgerListError("a required field is missing")
        for info in message.ledgerInfo:
            if info.offloadContext.bookkeeperDeleted:
                raise LedgerListError(f"ledger {info.ledgerId} was offloaded, which this broker does not read")
            if min(info.ledgerId, info.entries, info.size) < 0 or info.entries > _MOST_ENTRIES:
                raise LedgerListError(f"ledger {info.ledgerId} has {info.entries} entries of {info.size} bytes")
        properties = _texts((item.key, item.value) for item in message.properties)
        if _SHADOW_OF in properties:
            raise LedgerListError(f"a shadow of {properties[_SHADOW_OF]}, which owns the ledgers, is not served here")
        if not _is_index(properties.get(INDEX_PROPERTY, "-1")):
            raise LedgerListError(f"the property {INDEX_PROPERTY} is no number of a message")
        end = message.terminatedPosition if message.HasField("terminatedPosition") else None
        return ListRecord(
            [
                LedgerSlot(
                    info.ledgerId,
                    info.entries,
                    info.size + info.entries * RECORD_HEADER_BYTES,
                    info.timestamp if info.HasField("entries") else 0,
                    _notes_of(_texts((item.key, item.value) for item in info.properties)),
                )
                for info in message.ledgerInfo
            ],
            None if end is None else Position(end.ledgerId, end.entryId),
            {key if key in _BROKERS_PROPERTIES else USER_PROPERTY + key: text for key, text in properties.items()},
        )

    def encode_cursor(self, record: CursorRecord, now_ms: int) -> bytes:
        message = ManagedCursorInfo(
            cursorsLedgerId=record.ledger_id,
            markDeleteLedgerId=record.mark_delete.ledger_id,
            markDeleteEntryId=record.mark_delete.entry_id,
            lastActive=now_ms,
        )
        if record.state is not None:
            fill_cursor_info(message, record.state)
        for name, value in record.cursor_properties.items():
            message.cursorProperties.add(name=name, value=value)
        return message.SerializeToString()

    def decode_cursor(self, value: bytes) -> CursorRecord:
        try:
            message = ManagedCursorInfo.FromString(expanded(value))
        except DecodeError as error:
            raise LedgerListError(str(error)) from error
        if not message.IsInitialized():
            raise LedgerListError("a required field is missing")
        try:
            state = state_of_cursor_info(message)
        except CursorStateError as error:
            raise LedgerListError(str(error)) from error
        return CursorRecord(
            message.cursorsLedgerId,
            state.mark_delete,
            state if message.cursorsLedgerId == NO_LEDGER else None,
            cursor_properties=_texts((item.name, item.value) for item in message.cursorProperties),
            created_ms=message.lastActive,
        )

    def fits_record(self, state: CursorState, inline_bytes: int) -> bool:  # noqa: ARG002 - Pulsar counts ranges
        """Pulsar reads parts of batches only from cursor ledgers, although it also writes them into the record."""
        return not state.partial and range_count(state) <= MOST_RANGES

    def record_can_hold(self, state: CursorState, inline_bytes: int) -> bool:  # noqa: ARG002 - Pulsar counts ranges
        """This broker reads parts of batches from the record too: better there than nowhere. Apache Pulsar also writes
        its record when the cursor ledger fails.
        """
        return batch_bytes(state) <= _MOST_BATCH_BYTES and range_count(state) <= MOST_RANGES

    def full_entries(self, state: CursorState, first_entry_id: int, chunk_bytes: int) -> list[bytes]:  # noqa: ARG002
        return [encode_position_info(state, _MOST_STATE_BYTES)]

    def increment_entry(self, increment: CursorState, base: int) -> bytes | None:  # noqa: ARG002
        return None

    async def newest_state(self, ledgers: LedgerStore, ledger_id: int, last_entry_id: int) -> CursorState | None:
        """Return the state of the last entry, or of the newest intact entry if the last is damaged: then later
        acknowledgements are lost, and the broker redelivers their messages.
        """
        for entry_id in range(last_entry_id, -1, -1):
            try:
                slab = (await ledgers.read(ledger_id, entry_id, entry_id, 1))[0]
                return decode_position_info(bytes(slab.body(entry_id - slab.first_entry_id)))
            except (CorruptEntryError, CursorStateError) as error:
                log.warning(events.CURSOR_STATE_DAMAGED, ledger_id=ledger_id, entry_id=entry_id, error=str(error))
        return None


def _texts(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the properties. Raises LedgerListError for a text that is no UTF-8, which the parser returns as bytes."""
    found = dict(pairs)
    if not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise LedgerListError("a property is no text in UTF-8")
    return found


def _notes_of(properties: dict[str, str]) -> dict[str, str]:
    """Leave out an index that is no number of a message: the opening reads the index from the entries."""
    if _is_index(properties.get(LEDGER_INDEX, "-1")):
        return properties
    return {key: text for key, text in properties.items() if key != LEDGER_INDEX}


def _is_index(text: str) -> bool:
    """Whether the text is a broker index that leaves room for the following messages, or -1."""
    return text == "-1" or (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= _GREATEST_INDEX)
