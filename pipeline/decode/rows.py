"""Rows: a row for each message, before rows become Arrow columns. Rows are joined, ordered and cut as a
whole; bytes are named by buffer, start and length (`byte_columns.Buffers`).

Fields that a message shares with its entry (publish time, producer, schema version, ...) stay in the Headers, found by
`entry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

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
"""entry: number in the chunk. index: -1 without an index. batch_index -1 and batch_size 0: no batch. first_chunk_*: -1
unless the message is chunked. Keys lie in the metadata's buffer; property_field is the field number of the properties
(KeyValue) in that metadata."""
_NUMBER: Final = {name: number for number, name in enumerate(COLUMNS)}


class RowColumns(Protocol):
    """Access to rows by column: the input of the columns of one record batch."""

    any_flags: int
    """An upper bound of the flags of all rows: no row has a flag outside of it."""

    def __len__(self) -> int: ...

    def __getitem__(self, column: str) -> Int64s: ...

    def picked(self, which: slice) -> RowColumns: ...

    def of_entry(self, values: Int64s) -> Int64s:
        """Values of the chunk's entries, one value a row."""
        ...


class Rows:
    """Rows as one int64 array, a column behind the other."""

    __slots__ = ("table",)
    any_flags: int = -1

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

    def of_entry(self, values: Int64s) -> Int64s:
        of_rows: Int64s = values[self["entry"]]
        return of_rows


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


class SingleRows:
    """Rows of a chunk in which every entry is a single message as it is stored: columns are those of the headers.

    Most columns are never read, so each is made on its first read. Equal to `rows_of_entries` of the same entries.
    """

    __slots__ = ("_headers", "_lengths", "_start", "_stop", "any_flags")

    def __init__(self, headers: Headers) -> None:
        self._headers, self._lengths = headers, headers.payload_bytes()
        self._start, self._stop = 0, len(headers)
        self.any_flags = headers.any_flags()

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, column: str) -> Int64s:
        if column in _FROM_ENTRY:
            return self.of_entry(self._headers[_FROM_ENTRY[column]])
        if column == "payload_start":
            return self.of_entry(self._headers[EntryColumn.METADATA_END])
        if column == "payload_length":
            return self.of_entry(self._lengths)
        if column == "index":
            return self.of_entry(self._headers.first_index)
        if column == "entry":
            return np.arange(self._start, self._stop)
        return np.full(len(self), _SAME_IN_EVERY_ENTRY[column])

    def picked(self, which: slice) -> SingleRows:
        """The rows of the slice, one behind the other."""
        start, stop, _ = which.indices(len(self))
        found = object.__new__(SingleRows)
        found._headers, found._lengths, found.any_flags = self._headers, self._lengths, self.any_flags
        found._start, found._stop = self._start + start, self._start + max(start, stop)
        return found

    def of_entry(self, values: Int64s) -> Int64s:
        return values[self._start : self._stop]

    def lie_in(self, first_index: int | None, end_index: int | None) -> bool:
        """Whether there are rows, and all their indexes lie in the half-open range."""
        index = self["index"]
        if not len(index):
            return False
        return (first_index is None or int(index.min()) >= first_index) and (
            end_index is None or int(index.max()) < end_index
        )


def no_rows() -> Rows:
    return Rows.zeros(0)


_SAME_IN_EVERY_ENTRY: Final = {
    "batch_index": -1,
    "batch_size": 0,
    "payload_buffer": 0,
    "metadata_buffer": 0,
    "property_field": ENTRY_PROPERTIES,
    "first_chunk_ledger": -1,
    "first_chunk_entry": -1,
}


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


def payloads(rows: RowColumns) -> Slices:
    """Payloads; null for tombstones."""
    length = _null_where(rows, ColumnFlag.NULL_VALUE, rows["payload_length"])
    return Slices(rows["payload_buffer"], rows["payload_start"], length)


def keys(rows: RowColumns) -> Slices:
    """Keys as in the metadata; null without a key."""
    length = _null_where(rows, ColumnFlag.NULL_KEY, rows["key_length"])
    return Slices(rows["metadata_buffer"], rows["key_start"], length)


def _null_where(rows: RowColumns, flag: ColumnFlag, lengths: Int64s) -> Int64s:
    return np.where(has(rows, flag), NULL, lengths) if rows.any_flags & int(flag) else lengths


def ordering_keys(rows: RowColumns) -> Slices:
    return Slices(rows["metadata_buffer"], rows["ordering_start"], rows["ordering_length"])


def has(rows: RowColumns, flag: ColumnFlag) -> Any:
    """Which rows have the flag."""
    return (rows["flags"] & int(flag)) != 0
