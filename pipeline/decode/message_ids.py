"""`__messageId`: MessageIdData of every row, the same bytes as `MessageId.serialize` of the official clients.

    1 ledgerId | 2 entryId | [3 partition] | [4 batch_index] | [6 batch_size] | [7 first_chunk_message_id]

An id without partition, batch index or batch size omits that field, as Apache Pulsar's Java and C++ clients do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]


def message_id(
    ledger_id: int,
    entry_id: int,
    partition: int = -1,
    batch_index: int = -1,
    batch_size: int = 0,
    first_chunk: tuple[int, int] | None = None,
) -> bytes:
    """One serialized id. first_chunk: ledger and entry of the first chunk of a chunked message."""
    data = pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
    if partition >= 0:
        data.partition = partition
    if batch_index >= 0:
        data.batch_index = batch_index
    if batch_size > 0:
        data.batch_size = batch_size
    if first_chunk is not None:
        data.first_chunk_message_id.ledgerId, data.first_chunk_message_id.entryId = first_chunk
        if partition >= 0:
            data.first_chunk_message_id.partition = partition
    return data.SerializeToString()


def message_ids(
    ledger_id: int, partition: int, entry_ids: Int64s, batch_indexes: Int64s, batch_sizes: Int64s
) -> pa.Array:
    """The ids of many rows of one ledger; batch_indexes -1 and batch_sizes 0 where there are none."""
    head = message_id(ledger_id, 0)[:-1]  # up to the tag of entryId
    middle = (
        pb.MessageIdData(ledgerId=0, entryId=0, partition=partition).SerializeToString()[4:] if partition >= 0 else b""
    )
    parts = [(np.maximum(entry_ids, 0), np.ones(len(entry_ids), np.bool_), head, middle)]
    if (batch_indexes >= 0).any():
        parts.append((batch_indexes, batch_indexes >= 0, b"\x20", b""))
        parts.append((batch_sizes, batch_sizes > 0, b"\x30", b""))
    return _joined(len(entry_ids), parts)


def _joined(n: int, parts: list[tuple[Any, ...]]) -> pa.Array:
    """Rows as the concatenation of parts ``before | varint | behind``; a row contains only the parts that it has."""
    lengths = np.zeros(n, np.int64)
    for values, there, before, behind in parts:
        lengths += np.where(there, len(before) + _varint_lengths(values) + len(behind), 0)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for values, there, before, behind in parts:
        rows = np.flatnonzero(there)
        _put_constant(out, at, rows, before)
        _put_varints(out, at, rows, values[rows].astype(np.uint64))
        _put_constant(out, at, rows, behind)
    return pa.Array.from_buffers(
        pa.binary(), n, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)], null_count=0
    )


def _varint_lengths(values: Int64s) -> Int64s:
    lengths = np.ones(len(values), np.int64)
    top = int(values.max(initial=0))
    limit = 1 << 7
    while limit <= top:
        lengths += values >= limit
        limit <<= 7
    return lengths


def _put_constant(out: NDArray[np.uint8], at: Int64s, rows: NDArray[np.intp], text: bytes) -> None:
    for byte in text:
        out[at[rows]] = byte
        at[rows] += 1


def _put_varints(out: NDArray[np.uint8], at: Int64s, rows: NDArray[np.intp], values: NDArray[np.uint64]) -> None:
    while len(rows):
        more = values > 127
        out[at[rows]] = (values & 127) | (more.astype(np.uint64) << 7)
        at[rows] += 1
        rows, values = rows[more], values[more] >> np.uint64(7)
