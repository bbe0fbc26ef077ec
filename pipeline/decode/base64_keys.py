"""Keys that travel as base64, decoded: where a row has partition_key_b64_encoded."""

from __future__ import annotations

from binascii import Error, a2b_base64
from typing import TYPE_CHECKING

import numpy as np

from magnetar.pipeline.decode.byte_columns import Slices
from magnetar.pipeline.decode.rows import has, keys
from magnetar.protocol.entry_columns import ColumnFlag

if TYPE_CHECKING:
    from magnetar.pipeline.decode.byte_columns import Buffers
    from magnetar.pipeline.decode.rows import Rows


def decoded_keys(rows: Rows, buffers: Buffers) -> tuple[Slices, list[int]]:
    """Keys of all rows, and the rows whose key is flagged as base64 and is not: those have the text as it travels."""
    travelling = keys(rows)
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
