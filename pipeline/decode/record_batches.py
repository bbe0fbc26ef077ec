"""Rows to record batches: one builder a column, and how many rows go into a batch."""

from __future__ import annotations

from binascii import Error, a2b_base64
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipeline.columns import ENCRYPTION, FIRST_MS, LAST_MS, TIMESTAMP
from magnetar.pipeline.decode.byte_columns import Slices, fixed, repeated
from magnetar.pipeline.decode.decryption import encryption_context
from magnetar.pipeline.decode.message_ids import message_id, message_ids
from magnetar.pipeline.decode.properties import property_headers, property_maps
from magnetar.pipeline.decode.rows import has, keys, ordering_keys, payloads
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from magnetar.pipeline.decode.byte_columns import Buffers
    from magnetar.pipeline.decode.headers import Headers
    from magnetar.pipeline.decode.rows import RowColumns
    from magnetar.pipeline.entry_chunk import EntryChunk

    Int64s = NDArray[np.int64]

ROW_OVERHEAD_BYTES: Final = 160
"""About the size of the columns of fixed width, per row."""


def cut_rows(rows: RowColumns, max_bytes: int, max_rows: int) -> Iterator[RowColumns]:
    """Cut rows into runs of at most max_rows rows and about max_bytes bytes. The runs have about equal sizes, since a
    small run costs as much as a large run; a row larger than max_bytes is a run of its own.
    """
    sizes = rows["payload_length"] + (rows["metadata_end"] - rows["metadata_start"]) + ROW_OVERHEAD_BYTES
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    runs = max(1, -(-total // max_bytes))
    even = -(-total // runs)
    limit = min(max_bytes, even + int(sizes.max(initial=1)) - 1)
    start, before = 0, 0
    while start < len(rows):
        end = int(np.searchsorted(ends, before + limit, side="right"))
        end = max(start + 1, min(end, start + max_rows))
        yield rows.picked(slice(start, end))
        start, before = end, int(ends[end - 1])


class BatchSource:
    """The rows of one record batch with all that their columns are made of."""

    def __init__(self, rows: RowColumns, headers: Headers, buffers: Buffers, chunk: EntryChunk) -> None:
        self.rows = rows
        self.headers = headers
        self.buffers = buffers
        self.chunk = chunk

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _keys(self) -> tuple[pa.Array, list[int]]:
        slices, wrong = decoded_keys(self.rows, self.buffers)
        return self.buffers.binary(slices), wrong

    @property
    def keys(self) -> pa.Array:
        return self._keys[0]

    @property
    def wrong_keys(self) -> list[int]:
        """Rows whose key is flagged as base64 and is not valid base64."""
        return self._keys[1]

    @cached_property
    def payloads(self) -> pa.Array:
        return self.buffers.binary(payloads(self.rows))

    @cached_property
    def schema_versions(self) -> pa.Array:
        return self.buffers.binary(self.entry_slices(EntryColumn.SCHEMA_START, EntryColumn.SCHEMA_LENGTH))

    def has(self, flag: ColumnFlag) -> Any:
        return has(self.rows, flag)

    def of_entry(self, column: EntryColumn) -> Int64s:
        """A column of the headers, one value a row."""
        return self.rows.of_entry(self.headers[column])

    def entry_flag(self, flag: ColumnFlag) -> Any:
        return (self.of_entry(EntryColumn.FLAGS) & int(flag)) != 0

    def entry_slices(self, start: EntryColumn, length: EntryColumn) -> Slices:
        """Bytes that all messages of an entry share; they lie in buffer 0."""
        starts = self.of_entry(start)
        return Slices(np.zeros(len(starts), np.int64), starts, self.of_entry(length))


def _time(ms: Int64s, absent: Any = None) -> pa.Array:
    """Milliseconds as TIMESTAMP; null outside of the years 1 to 9999."""
    if absent is None and len(ms) and int(ms.min()) >= FIRST_MS and int(ms.max()) <= LAST_MS:
        return fixed(ms * 1000, TIMESTAMP)
    null = (ms > LAST_MS) | (ms < FIRST_MS)
    if absent is not None:
        null |= absent
    return fixed(np.where(null, 0, ms) * 1000, TIMESTAMP, null)


def _message_ids(source: BatchSource) -> pa.Array:
    rows, chunk = source.rows, source.chunk
    entry_ids = rows.of_entry(chunk.entry_ids)
    ids = message_ids(chunk.ledger_id, chunk.partition, entry_ids, rows["batch_index"], rows["batch_size"])
    chunked = np.flatnonzero(rows["first_chunk_entry"] >= 0)
    if not len(chunked):
        return ids
    values = ids.to_pylist()
    for i in chunked.tolist():
        first = int(rows["first_chunk_ledger"][i]), int(rows["first_chunk_entry"][i])
        values[i] = message_id(chunk.ledger_id, int(entry_ids[i]), chunk.partition, first_chunk=first)
    return pa.array(values, pa.binary())


def _transactions(source: BatchSource) -> pa.Array:
    inside = source.entry_flag(ColumnFlag.HAS_TXN)
    if not inside.any():
        return pa.nulls(len(source), pa.string())
    most, least = source.of_entry(EntryColumn.TXN_MOST), source.of_entry(EntryColumn.TXN_LEAST)
    return pa.array(
        [
            f"({m},{n})" if there else None
            for there, m, n in zip(inside.tolist(), most.tolist(), least.tolist(), strict=True)
        ],
        pa.string(),
    )


def _encryption(source: BatchSource) -> pa.Array:
    encrypted = source.entry_flag(ColumnFlag.ENCRYPTED)
    if not encrypted.any():
        return pa.nulls(len(source), ENCRYPTION)
    data = source.buffers.array(0)
    starts, ends = source.of_entry(EntryColumn.METADATA_START), source.of_entry(EntryColumn.METADATA_END)
    return pa.array(
        [encryption_context(data[starts[i] : ends[i]].tobytes()) if encrypted[i] else None for i in range(len(source))],
        ENCRYPTION,
    )


def _index(source: BatchSource) -> pa.Array:
    index = source.rows["index"]
    return fixed(index, pa.int64(), index < 0)


def _kafka_key(source: BatchSource) -> pa.Array:
    ordering = source.buffers.binary(ordering_keys(source.rows))
    return pc.coalesce(ordering, source.keys)


def _kafka_time(source: BatchSource) -> pa.Array:
    event = source.rows["event_time"]
    return _time(np.where(event > 0, event, source.of_entry(EntryColumn.PUBLISH_TIME)))


def _ordering(source: BatchSource) -> pa.Array:
    return source.buffers.binary(ordering_keys(source.rows))


def _text(start: EntryColumn, length: EntryColumn) -> Callable[[BatchSource], pa.Array]:
    return lambda source: source.buffers.text(source.entry_slices(start, length))


def _int32(source: BatchSource, name: str, null: Any = None) -> pa.Array:
    values = source.rows[name]
    return fixed(values.astype(np.int32), pa.int32(), null)


BUILDERS: Final[Mapping[str, Callable[[BatchSource], pa.Array]]] = {
    "__key": lambda s: s.keys,
    "__topic": lambda s: repeated(s.chunk.topic, pa.string(), len(s)),
    "__messageId": _message_ids,
    "__publishTime": lambda s: _time(s.of_entry(EntryColumn.PUBLISH_TIME)),
    "__eventTime": lambda s: _time(s.rows["event_time"], s.rows["event_time"] == 0),
    "__messageProperties": lambda s: property_maps(s.rows, s.buffers),
    "__index": _index,
    "__brokerPublishTime": lambda s: _time(
        s.of_entry(EntryColumn.BROKER_TIMESTAMP), ~s.entry_flag(ColumnFlag.HAS_BROKER_TIMESTAMP)
    ),
    "__partition": lambda s: repeated(s.chunk.partition, pa.int32(), len(s)),
    "__ledgerId": lambda s: repeated(s.chunk.ledger_id, pa.int64(), len(s)),
    "__entryId": lambda s: fixed(s.rows.of_entry(s.chunk.entry_ids), pa.int64()),
    "__batchIndex": lambda s: _int32(s, "batch_index", s.rows["batch_index"] < 0),
    "__producerName": _text(EntryColumn.PRODUCER_START, EntryColumn.PRODUCER_LENGTH),
    "__sequenceId": lambda s: fixed(s.rows["sequence_id"], pa.int64()),
    "__orderingKey": _ordering,
    "__schemaVersion": lambda s: s.schema_versions,
    "__nullValue": lambda s: pa.array(s.has(ColumnFlag.NULL_VALUE)),
    "__size": lambda s: _int32(s, "payload_length"),
    "__replicatedFrom": _text(EntryColumn.REPLICATED_START, EntryColumn.REPLICATED_LENGTH),
    "__txnId": _transactions,
    "__encryptionContext": _encryption,
}
"""Columns of the style pulsar (and EXTRA), without those of the value."""

KAFKA_BUILDERS: Final[Mapping[str, Callable[[BatchSource], pa.Array]]] = {
    "key": _kafka_key,
    "value": lambda s: s.payloads,
    "topic": lambda s: repeated(s.chunk.partitioned_topic, pa.string(), len(s)),
    "partition": lambda s: repeated(max(s.chunk.partition, 0), pa.int32(), len(s)),
    "offset": _index,
    "timestamp": _kafka_time,
    "timestampType": lambda s: repeated(0, pa.int32(), len(s)),
    "headers": lambda s: property_headers(s.rows, s.buffers),
}
"""Columns of the style kafka."""


def decoded_keys(rows: RowColumns, buffers: Buffers) -> tuple[Slices, list[int]]:
    """Keys of all rows, decoded from base64 where flagged; and the rows whose flagged key is not valid base64: such a
    row keeps the text of its metadata.
    """
    travelling = keys(rows)
    if not rows.any_flags & int(ColumnFlag.KEY_IS_BASE64):
        return travelling, []
    encoded = np.flatnonzero(has(rows, ColumnFlag.KEY_IS_BASE64) & (travelling.length >= 0))
    if not len(encoded):
        return travelling, []
    values, wrong = [], []
    for row in encoded.tolist():
        text = buffers.value(travelling, row) or b""
        try:
            values.append(a2b_base64(text, strict_mode=True) if text else b"")
        except Error:
            wrong.append(row)
            values.append(text)
    number, starts, lengths = buffers.add_values(values)
    buffer, start, length = (column.copy() for column in travelling)
    buffer[encoded], start[encoded], length[encoded] = number, starts, lengths
    return Slices(buffer, start, length), wrong
