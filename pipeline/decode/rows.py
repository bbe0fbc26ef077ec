"""Rows: a row for each message, before rows become Arrow columns. Rows are joined, ordered and cut as a
whole; bytes are named by buffer, start and length (`byte_columns.Buffers`).

Fields that a message shares with its entry (publish time, producer, schema version, ...) stay in the Headers, found by
`entry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from magnetar.pipeline.decode.byte_columns import NULL, Slices
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, MessageColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from magnetar.pipeline.decode.headers import Headers

    Int64s = NDArray[np.int64]

COLUMNS: Final = (
    *("entry", "index", "batch_index", "batch_size", "flags"),
    *("payload_buffer", "payload_start", "payload_length"),
    *("metadata_buffer", "metadata_start", "metadata_end", "properties", "property_field"),
    *("key_start", "key_length", "ordering_start", "ordering_length"),
    *("event_time", "sequence_id", "first_chunk_ledger", "first_chunk_entry"),
)
"""entry: number in the chunk. index: -1 without. batch_index -1 and batch_size 0: no batch. first_chunk_*: -1 unless
the message is chunked. Keys lie in the metadata's buffer; property_field is the number of KeyValue in that metadata."""
_NUMBER: Final = {name: number for number, name in enumerate(COLUMNS)}


class Rows:
    """Rows as one int64 array, a column behind the other."""

    __slots__ = ("table",)

    def __init__(self, table: Int64s) -> None:
        self.table = table

    @classmethod
    def zeros(cls, n: int) -> Rows:
        return cls(np.zeros((len(COLUMNS), n), np.int64))

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def __getitem__(self, column: str) -> Int64s:
        values: Int64s = self.table[_NUMBER[column]]
        return values

    def __setitem__(self, column: str, values: Int64s | int) -> None:
        self.table[_NUMBER[column]] = values

    def picked(self, which: Any) -> Rows:
        """Return these rows: a slice, numbers or a mask."""
        return Rows(self.table[:, which])


ENTRY_PROPERTIES: Final = 4
MESSAGE_PROPERTIES: Final = 1

_FROM_ENTRY = {
    "flags": EntryColumn.FLAGS,
    "metadata_start": EntryColumn.METADATA_START,
    "metadata_end": EntryColumn.METADATA_END,
    "properties": EntryColumn.PROPERTIES,
    "key_start": EntryColumn.KEY_START,
    "key_length": EntryColumn.KEY_LENGTH,
    "ordering_start": EntryColumn.ORDERING_START,
    "ordering_length": EntryColumn.ORDERING_LENGTH,
    "event_time": EntryColumn.EVENT_TIME,
    "sequence_id": EntryColumn.SEQUENCE_ID,
}
_FROM_MESSAGE = {
    "batch_index": MessageColumn.BATCH_INDEX,
    "flags": MessageColumn.FLAGS,
    "payload_start": MessageColumn.METADATA_END,
    "payload_length": MessageColumn.PAYLOAD_LENGTH,
    "metadata_start": MessageColumn.METADATA_START,
    "metadata_end": MessageColumn.METADATA_END,
    "properties": MessageColumn.PROPERTIES,
    "key_start": MessageColumn.KEY_START,
    "key_length": MessageColumn.KEY_LENGTH,
    "ordering_start": MessageColumn.ORDERING_START,
    "ordering_length": MessageColumn.ORDERING_LENGTH,
}


def no_rows() -> Rows:
    return Rows.zeros(0)


def rows_of_entries(headers: Headers, entries: Int64s) -> Rows:
    """One row an entry, in ascending order of distinct entries; the payload as it is stored, in buffer 0."""
    which = slice(None) if len(entries) == len(headers) else entries  # all in their order: nothing to pick
    rows = Rows.zeros(len(entries))
    rows["entry"] = entries
    for name, column in _FROM_ENTRY.items():
        rows[name] = headers[column][which]
    rows["payload_start"] = headers[EntryColumn.METADATA_END][which]
    rows["payload_length"] = headers.payload_bytes()[which]
    rows["property_field"] = ENTRY_PROPERTIES
    rows["batch_index"] = -1
    rows["index"] = headers.first_index[which]
    rows["first_chunk_ledger"] = -1
    rows["first_chunk_entry"] = -1
    return rows


def rows_of_messages(headers: Headers, entries: Int64s, buffer: int, table: bytes) -> Rows:
    """Rows of a table of `message_columns`; its column ENTRY counts in `entries`. Compacted messages are left out."""
    columns = np.frombuffer(table, np.int64).reshape(len(MessageColumn), -1)
    compacted = (columns[MessageColumn.FLAGS] & int(ColumnFlag.COMPACTED_OUT)) != 0
    if compacted.any():
        columns = columns[:, ~compacted]
    rows = Rows.zeros(columns.shape[1])
    entry = entries[columns[MessageColumn.ENTRY]]
    rows["entry"] = entry
    for name, column in _FROM_MESSAGE.items():
        rows[name] = columns[column]
    flags = columns[MessageColumn.FLAGS]
    own = (flags & int(ColumnFlag.HAS_EVENT_TIME)) != 0
    rows["event_time"] = np.where(own, columns[MessageColumn.EVENT_TIME], headers[EntryColumn.EVENT_TIME][entry])
    own = (flags & int(ColumnFlag.HAS_SEQUENCE_ID)) != 0
    rows["sequence_id"] = np.where(own, columns[MessageColumn.SEQUENCE_ID], headers[EntryColumn.SEQUENCE_ID][entry])
    rows["payload_buffer"] = buffer
    rows["metadata_buffer"] = buffer
    rows["property_field"] = MESSAGE_PROPERTIES
    rows["batch_size"] = headers.messages[entry]
    first = headers.first_index[entry]
    rows["index"] = np.where(headers.last_index[entry] >= 0, first + rows["batch_index"], -1)
    rows["first_chunk_ledger"] = -1
    rows["first_chunk_entry"] = -1
    return rows


def joined(parts: list[Rows]) -> Rows:
    """Return all rows in the order of their entries; rows of an entry keep their order."""
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else no_rows()
    rows = Rows(np.hstack([part.table for part in parts]))
    return rows.picked(np.argsort(rows["entry"], kind="stable"))


def in_range(rows: Rows, first_index: int | None, end_index: int | None) -> Rows:
    """Rows with ``first_index <= index < end_index``; those without an index pass."""
    if first_index is None and end_index is None:
        return rows
    index = rows["index"]
    wanted = np.ones(len(rows), np.bool_)
    if first_index is not None:
        wanted &= index >= first_index
    if end_index is not None:
        wanted &= index < end_index
    wanted |= index < 0
    return rows if wanted.all() else rows.picked(wanted)


def payloads(rows: Rows) -> Slices:
    """Payloads; null for tombstones."""
    null = (rows["flags"] & int(ColumnFlag.NULL_VALUE)) != 0
    return Slices(rows["payload_buffer"], rows["payload_start"], np.where(null, NULL, rows["payload_length"]))


def keys(rows: Rows) -> Slices:
    """Keys as in the metadata; null without a key."""
    null = (rows["flags"] & int(ColumnFlag.NULL_KEY)) != 0
    return Slices(rows["metadata_buffer"], rows["key_start"], np.where(null, NULL, rows["key_length"]))


def ordering_keys(rows: Rows) -> Slices:
    return Slices(rows["metadata_buffer"], rows["ordering_start"], rows["ordering_length"])


def has(rows: Rows, flag: ColumnFlag) -> Any:
    """Which rows have the flag."""
    return (rows["flags"] & int(flag)) != 0
