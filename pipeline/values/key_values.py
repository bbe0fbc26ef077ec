"""Payloads of KEY_VALUE schemas: columns `key` and `value`, each typed by its own schema; a record becomes a struct.

INLINE: ``i32 size | key | i32 size | value`` in the payload, size -1 for null. SEPARATED: the key is the message's key,
the value its payload.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from magnetar.pipeline.columns import Column
from magnetar.pipeline.values.interface import DecodedValues, ValueBatch
from magnetar.pipeline.values.row_by_row import ENCRYPTED
from magnetar.pipeline.values.types import column, struct_of

if TYPE_CHECKING:
    from magnetar.pipeline.values.interface import ValueDecoder

_SIZE = struct.Struct(">i")


class KeyValueValues:
    """Decodes to the columns `key` and `value`."""

    def __init__(self, key: ValueDecoder, value: ValueDecoder, *, separated: bool) -> None:
        self._parts = (key, value)
        self._separated = separated
        self.columns: tuple[Column, ...] = (_part_column("key", key), _part_column("value", value))

    def decode(self, batch: ValueBatch) -> DecodedValues:
        """See ValueDecoder."""
        failures = {int(row): ENCRYPTED for row in np.flatnonzero(batch.encrypted)}
        keys, values = (batch.key, batch.payload) if self._separated else _cut(batch.payload, failures)
        arrays = []
        for decoder, payload in zip(self._parts, (keys, values), strict=True):
            part = ValueBatch(payload, batch.key, batch.schema_version, batch.encrypted)
            found = decoder.decode(part)
            for row, why in found.failures.items():
                failures.setdefault(row, why)
            arrays.append(_part_array(decoder, found.arrays, payload))
        return DecodedValues(arrays, failures)


def _part_column(name: str, decoder: ValueDecoder) -> Column:
    if _is_single(decoder):
        return Column(name, decoder.columns[0].arrow, decoder.columns[0].ddl, f"the {name} of the schema KEY_VALUE")
    return column(name, struct_of((c.name, c.arrow) for c in decoder.columns), f"the {name} of the schema KEY_VALUE")


def _is_single(decoder: ValueDecoder) -> bool:
    return [found.name for found in decoder.columns] == ["value"]


def _part_array(decoder: ValueDecoder, arrays: list[pa.Array], payload: pa.Array) -> pa.Array:
    if _is_single(decoder):
        return arrays[0]
    return pa.StructArray.from_arrays(
        arrays, fields=list(struct_of((c.name, c.arrow) for c in decoder.columns)), mask=payload.is_null()
    )


def _cut(payload: pa.Array, failures: dict[int, str]) -> tuple[pa.Array, pa.Array]:
    """Keys and values of inline payloads."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for row, data in enumerate(payload.to_pylist()):
        key = value = None
        if data is not None and row not in failures:
            try:
                key, at = _part(data, 0)
                value, _ = _part(data, at)
            except (struct.error, ValueError):
                failures[row] = "the payload is no key and value with their sizes"
        keys.append(key)
        values.append(value)
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


def _part(data: bytes, at: int) -> tuple[Any, int]:
    (size,) = _SIZE.unpack_from(data, at)
    end = at + 4 + max(size, 0)
    if end > len(data):
        raise ValueError
    return (None if size < 0 else data[at + 4 : end]), end
