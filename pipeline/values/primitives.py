"""Payloads of primitive schemas: numbers are big-endian and of fixed width, so a batch is read at once.

| schema | bytes | column `value` |
|---|---|---|
| BOOLEAN | 1 | boolean |
| INT8 .. INT64, FLOAT, DOUBLE | 1, 2, 4, 8 | tinyint .. bigint, float, double |
| STRING | UTF-8 | string |
| DATE | 8, milliseconds | date |
| TIME, TIMESTAMP | 8, milliseconds | timestamp |
| INSTANT | 8 seconds, 4 nanoseconds | timestamp |
| LOCAL_DATE | 8, days | date |
| LOCAL_TIME | 8, nanoseconds of the day | bigint |
| LOCAL_DATE_TIME | 8 days, 8 nanoseconds of the day | timestamp without time zone |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from magnetar.pipeline.columns import FIRST_MS, LAST_MS, TIMESTAMP
from magnetar.pipeline.decode.byte_columns import fixed
from magnetar.pipeline.values.interface import DecodedValues
from magnetar.pipeline.values.row_by_row import ENCRYPTED
from magnetar.pipeline.values.types import TIMESTAMP_NTZ, column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from magnetar.pipeline.values.interface import ValueBatch

_DAY_MS: Final = 86_400_000
_DAY_US: Final = _DAY_MS * 1000
_DAYS: Final = (FIRST_MS // _DAY_MS, LAST_MS // _DAY_MS)


def _at(data: NDArray[np.uint8], column_: int, kind: str) -> Any:
    """Convert the big-endian numbers at one column of a matrix of bytes to native numbers."""
    width = np.dtype(kind).itemsize
    raw = np.ascontiguousarray(data[:, column_ : column_ + width]).view(kind)[:, 0]
    return raw.astype(raw.dtype.newbyteorder("="))


def _within(values: Any, bounds: tuple[int, int]) -> Any:
    return (values >= bounds[0]) & (values <= bounds[1])


def _number(kind: str) -> Callable[[Any], tuple[Any, Any]]:
    return lambda data: (_at(data, 0, kind), True)


def _boolean(data: Any) -> tuple[Any, Any]:
    return data[:, 0] != 0, True


def _date(data: Any) -> tuple[Any, Any]:
    days = _at(data, 0, ">i8") // _DAY_MS
    return days.astype(np.int32), _within(days, _DAYS)


def _local_date(data: Any) -> tuple[Any, Any]:
    days = _at(data, 0, ">i8")
    return days.astype(np.int32), _within(days, _DAYS)


def _milliseconds(data: Any) -> tuple[Any, Any]:
    ms = _at(data, 0, ">i8")
    return ms * 1000, _within(ms, (FIRST_MS, LAST_MS))


def _instant(data: Any) -> tuple[Any, Any]:
    seconds = _at(data, 0, ">i8")
    return seconds * 1_000_000 + _at(data, 8, ">i4") // 1000, _within(
        seconds, (FIRST_MS // 1000 + 3, LAST_MS // 1000 - 3)
    )


def _local_date_time(data: Any) -> tuple[Any, Any]:
    days, nanoseconds = _at(data, 0, ">i8"), _at(data, 8, ">i8")
    good = _within(days, _DAYS) & (nanoseconds >= 0) & (nanoseconds < _DAY_US * 1000)
    return days * _DAY_US + nanoseconds // 1000, good


PRIMITIVES: Final[Mapping[str, tuple[int, pa.DataType, Callable[[Any], tuple[Any, Any]]]]] = {
    "BOOLEAN": (1, pa.bool_(), _boolean),
    "INT8": (1, pa.int8(), _number(">i1")),
    "INT16": (2, pa.int16(), _number(">i2")),
    "INT32": (4, pa.int32(), _number(">i4")),
    "INT64": (8, pa.int64(), _number(">i8")),
    "FLOAT": (4, pa.float32(), _number(">f4")),
    "DOUBLE": (8, pa.float64(), _number(">f8")),
    "DATE": (8, pa.date32(), _date),
    "TIME": (8, TIMESTAMP, _milliseconds),
    "TIMESTAMP": (8, TIMESTAMP, _milliseconds),
    "INSTANT": (12, TIMESTAMP, _instant),
    "LOCAL_DATE": (8, pa.date32(), _local_date),
    "LOCAL_TIME": (8, pa.int64(), _number(">i8")),
    "LOCAL_DATE_TIME": (16, TIMESTAMP_NTZ, _local_date_time),
}
"""Width in bytes, type, and how a matrix of that many bytes a row becomes values with a mask of those that are good."""


class FixedWidthValues:
    """Payloads of one width."""

    def __init__(self, kind: str) -> None:
        self._width, self._arrow, self._convert = PRIMITIVES[kind]
        self._kind = kind
        self.columns = (column("value", self._arrow, f"of the schema {kind}"),)

    def decode(self, batch: ValueBatch) -> DecodedValues:
        payload, n = batch.payload, len(batch.payload)
        null = np.asarray(payload.is_null())
        offsets = np.frombuffer(payload.buffers()[1], np.int32)[payload.offset : payload.offset + n + 1].astype(
            np.int64
        )
        lengths = np.diff(offsets)
        encrypted = np.asarray(batch.encrypted)
        wrong = ~null & ((lengths != self._width) | encrypted)
        readable = np.flatnonzero(~null & ~wrong)
        failures = {
            int(row): ENCRYPTED if encrypted[row] else f"{lengths[row]} bytes, {self._kind} has {self._width}"
            for row in np.flatnonzero(wrong)
        }
        data = np.frombuffer(payload.buffers()[2] or b"", np.uint8)
        found, good = self._convert(data[offsets[readable][:, None] + np.arange(self._width)])
        failures |= {int(row): f"no {self._arrow}" for row in readable[~np.broadcast_to(good, len(readable))]}
        values = np.zeros(n, found.dtype)
        values[readable] = found
        null[np.fromiter(failures, np.int64, len(failures))] = True
        if pa.types.is_boolean(self._arrow):
            return DecodedValues([pa.array(values, mask=null)], failures)
        return DecodedValues([fixed(values, self._arrow, null)], failures)


class StringValues:
    """Payloads of the schema STRING."""

    columns = (column("value", pa.string(), "of the schema STRING"),)

    def decode(self, batch: ValueBatch) -> DecodedValues:
        failures = {int(row): ENCRYPTED for row in np.flatnonzero(batch.encrypted)}
        try:
            if not failures:
                return DecodedValues([batch.payload.cast(pa.string())])
        except pa.ArrowInvalid:
            pass
        values: list[str | None] = []
        for row, payload in enumerate(batch.payload.to_pylist()):
            try:
                values.append(None if payload is None or row in failures else payload.decode())
            except UnicodeDecodeError as e:
                failures[row] = f"no UTF-8: {e}"
                values.append(None)
        return DecodedValues([pa.array(values, pa.string())], failures)
