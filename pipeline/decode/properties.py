"""Properties of many messages as an Arrow map, or as Kafka's list of headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.converters.errors import ConversionError
from magnetar.converters.kafka_entry.properties import PREFIX, decode_properties
from magnetar.pipeline.columns import HEADERS, PROPERTIES
from magnetar.pipeline.decode.byte_columns import Slices, validity
from magnetar.protocol.entry_columns import property_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from magnetar.pipeline.decode.byte_columns import Buffers
    from magnetar.pipeline.decode.rows import RowColumns

    Int64s = NDArray[np.int64]


def _pairs(rows: RowColumns, buffers: Buffers) -> tuple[Int64s, Slices, Slices]:
    """Row, key and value of every property, in the order of the rows; within a row in the order of its metadata."""
    having = np.flatnonzero(rows["properties"] > 0)
    where = rows["metadata_buffer"][having] * 16 + rows["property_field"][having]
    parts = []
    for place in np.unique(where).tolist():
        here = having[where == place]
        number, field_number = divmod(place, 16)
        count = int(rows["properties"][here].sum())
        starts, ends = rows["metadata_start"][here], rows["metadata_end"][here]
        table = np.frombuffer(property_columns(buffers.array(number), starts, ends, field_number, count), np.int64)
        found = table.reshape(5, count)
        parts.append(np.vstack([here[found[0]], np.full(count, number), found[1:]]))
    if not parts:
        empty = np.zeros(0, np.int64)
        return empty, Slices(empty, empty, empty), Slices(empty, empty, empty)
    all_pairs = np.hstack(parts)
    all_pairs = all_pairs[:, np.argsort(all_pairs[0], kind="stable")]
    row, buffer, key, key_length, value, value_length = all_pairs
    return row, Slices(buffer, key, key_length), Slices(buffer, value, value_length)


def _offsets(row: Int64s, n: int) -> NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum(np.bincount(row, minlength=n)))).astype(np.int32)


def property_maps(rows: RowColumns, buffers: Buffers) -> pa.Array:
    """``map<string, string>``; of two properties with one name the later counts, as in Java clients."""
    n = len(rows)
    if not rows["properties"].any():
        nothing = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), nothing, nothing)
    row, key_slices, value_slices = _pairs(rows, buffers)
    keys, values = buffers.text(key_slices), buffers.text(value_slices)
    if len(row) and int(rows["properties"].max()) > 1:
        last = _last_of_each(row, keys)
        if not last.all():
            row, keys, values = row[last], keys.filter(pa.array(last)), values.filter(pa.array(last))
    return pa.MapArray.from_arrays(pa.array(_offsets(row, n)), keys, values).cast(PROPERTIES)


def _last_of_each(row: Int64s, keys: pa.Array) -> NDArray[np.bool_]:
    """Which pairs are the last with their key in their row."""
    codes = keys.dictionary_encode()
    number = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    combined = row * max(len(codes.dictionary), 1) + number
    _, reversed_first = np.unique(combined[::-1], return_index=True)
    last = np.zeros(len(row), np.bool_)
    last[len(row) - 1 - reversed_first] = True
    return last


def property_headers(rows: RowColumns, buffers: Buffers) -> pa.Array:
    """``list<struct<key: string, value: binary>>`` of Kafka's style, in order with repetitions; null when empty.
    Kafka-format entries have the headers that the Kafka producer set.
    """
    n = len(rows)
    if not rows["properties"].any():
        return pa.nulls(n, HEADERS)
    row, key_slices, value_slices = _pairs(rows, buffers)
    pairs = pa.StructArray.from_arrays([buffers.text(key_slices), buffers.binary(value_slices)], names=["key", "value"])
    offsets = _offsets(row, n)
    null: Any = np.diff(offsets) == 0
    headers = pa.Array.from_buffers(
        HEADERS, n, [validity(null), pa.py_buffer(offsets)], children=[pairs.cast(HEADERS.value_type)]
    )
    companions = pc.starts_with(pairs.field(0), PREFIX).to_numpy(zero_copy_only=False).astype(np.bool_)
    return _as_recorded(headers, np.unique(row[companions])) if companions.any() else headers


def _as_recorded(headers: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """The original headers of converted Kafka records, with null and binary values; the helper properties by which the
    converter marks such values are removed.
    """
    lists = headers.to_pylist()
    for row in rows.tolist():
        pairs = [(each["key"], each["value"].decode("utf-8", "replace")) for each in lists[row]]
        try:
            found = decode_properties(pairs).headers
        except ConversionError:  # properties of a Pulsar message that only look like it
            continue
        lists[row] = [
            {"key": each.key.encode("utf-8", "replace").decode(), "value": each.value} for each in found
        ] or None
    return pa.array(lists, HEADERS)
