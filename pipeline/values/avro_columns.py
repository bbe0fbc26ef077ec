"""Avro values as columns, all rows of a batch at once: field by field, each for every row in lock step.

Numbers are decoded a byte at a time for all rows, texts are gathered by one call, the k-th items of all lists are read
together. Every irregular row (a row that ends early, an unknown symbol, very long lists) stops the whole batch: the
decoder then reads row by row and reports the fault of each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from magnetar.pipeline.columns import FIRST_MS, LAST_MS, TIMESTAMP
from magnetar.pipeline.decode.byte_columns import Buffers, Slices, fixed
from magnetar.pipeline.values.types import TIMESTAMP_NTZ, list_of, struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from magnetar.pipeline.values.avro_plan import Plan

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MAX_ITEMS: Final = 200
"""The longest list or map that is read in lock step: the k-th items take one pass over all rows that have k items."""
_TIMES: Final[Mapping[str, tuple[int, pa.DataType]]] = {
    "timestamp-millis": (1000, TIMESTAMP),
    "timestamp-micros": (1, TIMESTAMP),
    "local-timestamp-millis": (1000, TIMESTAMP_NTZ),
    "local-timestamp-micros": (1, TIMESTAMP_NTZ),
}
_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_DAYS: Final = (FIRST_MS // 86_400_000, LAST_MS // 86_400_000)


class OddValuesError(Exception):
    """The batch cannot be read in lock step."""


class ColumnReader:
    """Reads values that stand one behind the other in rows of one buffer."""

    def __init__(self, data: NDArray[np.uint8], starts: Int64s, ends: Int64s) -> None:
        self._buffers = Buffers()
        self._buffers.add(data)
        self._data = data if len(data) else np.zeros(1, np.uint8)
        self._at = starts.copy()
        self._ends = ends

    def read(self, plan: Plan, rows: Int64s) -> pa.Array:
        """The next value of these rows (numbers, each once), in their order. Raises OddValuesError."""
        if plan.null_branch is None:
            return self._value(plan, rows)
        branch = self._varint(rows)
        _require((branch == 0) | (branch == 1))
        there = branch != plan.null_branch
        values = self._value(plan, rows[there])
        return values if there.all() else spread(values, there)

    def _value(self, plan: Plan, rows: Int64s) -> pa.Array:
        return _READERS[plan.kind](self, plan, rows)

    def _record(self, plan: Plan, rows: Int64s) -> pa.Array:
        arrays = [self.read(field, rows) for _, field in plan.fields]
        types = struct_of((name, array.type) for (name, _), array in zip(plan.fields, arrays, strict=True))
        if not arrays:
            return pa.array([{}] * len(rows), types)
        return pa.StructArray.from_arrays(arrays, fields=list(types))

    def _array(self, plan: Plan, rows: Int64s) -> pa.Array:
        owners, (items,) = self._items((plan.fields[0][1],), rows)
        return pa.ListArray.from_arrays(_offsets(owners, len(rows)), items, type=list_of(items.type))

    def _map(self, plan: Plan, rows: Int64s) -> pa.Array:
        owners, (keys, values) = self._items((_KEY, plan.fields[0][1]), rows)
        return pa.MapArray.from_arrays(_offsets(owners, len(rows)), keys, values)

    def _items(self, plans: tuple[Any, ...], rows: Int64s) -> tuple[Int64s, list[pa.Array]]:
        """The items of one list per row: the places in `rows` of all items, unsorted, and an array of items per plan,
        in the order of `rows`.
        """
        owners, parts = [], []
        left = np.zeros(len(rows), np.int64)
        active = np.arange(len(rows))
        for _ in range(MAX_ITEMS + 1):
            ended = active[left[active] == 0]
            left[ended] = self._block(rows[ended])
            active = active[left[active] > 0]
            if not len(active):
                break
            owners.append(active)
            parts.append([self._key_or_item(plan, rows[active]) for plan in plans])
            left[active] -= 1
        else:
            raise OddValuesError
        if not owners:
            return np.zeros(0, np.int64), [self._key_or_item(plan, rows[:0]) for plan in plans]
        of_row = np.concatenate(owners)
        order = pa.array(np.argsort(of_row, kind="stable"))
        return of_row, [pa.concat_arrays(list(part)).take(order) for part in zip(*parts, strict=True)]

    def _key_or_item(self, plan: Any, rows: Int64s) -> pa.Array:
        return self._text(True, self._varint(rows), rows) if plan is _KEY else self.read(plan, rows)

    def _block(self, rows: Int64s) -> Int64s:
        """Items of the next block of each row; a block with a negative number states its size in bytes too."""
        counts = self._varint(rows)
        negative = counts < 0
        if negative.any():
            self._varint(rows[negative])
            counts = np.abs(counts)
        _require(counts <= MAX_ITEMS)
        return counts

    def _integer(self, plan: Plan, rows: Int64s) -> pa.Array:
        values = self._varint(rows)
        if plan.kind == "int":
            low, high = _DAYS if plan.logical == "date" else _INT32
            _require((values >= low) & (values <= high))
            return fixed(values.astype(np.int32), pa.date32() if plan.logical == "date" else pa.int32())
        if plan.logical not in _TIMES:
            return fixed(values, pa.int64())
        factor, arrow = _TIMES[plan.logical]
        _require((values >= FIRST_MS * 1000 // factor) & (values < (LAST_MS + 1) * 1000 // factor))
        return fixed(values * factor, arrow)

    def _float(self, plan: Plan, rows: Int64s) -> pa.Array:
        kind, arrow = ("<f4", pa.float32()) if plan.kind == "float" else ("<f8", pa.float64())
        return fixed(np.ascontiguousarray(self._bytes(rows, int(kind[2]))).view(kind)[:, 0], arrow)

    def _boolean(self, _plan: Plan, rows: Int64s) -> pa.Array:
        truth = self._bytes(rows, 1)[:, 0]
        _require(truth <= 1)
        return pa.array(truth == 1)

    def _enum(self, plan: Plan, rows: Int64s) -> pa.Array:
        chosen = self._varint(rows)
        _require((chosen >= 0) & (chosen < len(plan.symbols)))
        return pa.array(plan.symbols, pa.string()).take(pa.array(chosen))

    def _slices(self, plan: Plan, rows: Int64s) -> pa.Array:
        lengths = np.full(len(rows), plan.size) if plan.kind == "fixed" else self._varint(rows)
        return self._text(plan.kind == "string", lengths, rows)

    def _text(self, is_text: bool, lengths: Int64s, rows: Int64s) -> pa.Array:
        _require((lengths >= 0) & (lengths <= self._ends[rows] - self._at[rows]))
        found = self._buffers.binary(Slices(np.zeros(len(rows), np.int64), self._at[rows], lengths))
        self._at[rows] += lengths
        if not is_text:
            return found
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid as e:
            raise OddValuesError from e

    def _bytes(self, rows: Int64s, width: int) -> NDArray[np.uint8]:
        """The next `width` bytes of each row."""
        _require(self._ends[rows] - self._at[rows] >= width)
        found: NDArray[np.uint8] = self._data[self._at[rows][:, None] + np.arange(width)]
        self._at[rows] += width
        return found

    def _varint(self, rows: Int64s) -> Int64s:
        """The next zigzag number of each row."""
        at, ends = self._at[rows], self._ends[rows]
        values = np.zeros(len(rows), np.uint64)
        left = np.arange(len(rows))
        for shift in range(0, 70, 7):
            here = at[left]
            _require(here < ends[left])
            byte = self._data[here]
            values[left] |= (byte & np.uint8(127)).astype(np.uint64) << np.uint64(shift)
            at[left] += 1
            left = left[byte > 127]
            if not len(left):
                break
        else:
            raise OddValuesError
        self._at[rows] = at
        zigzag: Int64s = (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)
        return zigzag


_KEY: Final = object()
"""Stands for the key of a map where `_items` takes a plan."""
_READERS: Final[Mapping[str, Callable[[ColumnReader, Plan, Int64s], pa.Array]]] = {
    "record": ColumnReader._record,  # noqa: SLF001 - the table of this class
    "array": ColumnReader._array,  # noqa: SLF001
    "map": ColumnReader._map,  # noqa: SLF001
    "int": ColumnReader._integer,  # noqa: SLF001
    "long": ColumnReader._integer,  # noqa: SLF001
    "float": ColumnReader._float,  # noqa: SLF001
    "double": ColumnReader._float,  # noqa: SLF001
    "boolean": ColumnReader._boolean,  # noqa: SLF001
    "enum": ColumnReader._enum,  # noqa: SLF001
    "string": ColumnReader._slices,  # noqa: SLF001
    "bytes": ColumnReader._slices,  # noqa: SLF001
    "fixed": ColumnReader._slices,  # noqa: SLF001
}


def spread(values: pa.Array, there: Bools) -> pa.Array:
    """Spread values over rows: the next value where `there` is true, null elsewhere."""
    return values.take(pa.array(np.cumsum(there) - 1, pa.int64(), mask=~there))


def _require(fine: Bools) -> None:
    if not fine.all():
        raise OddValuesError


def _offsets(owners: Int64s, n: int) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=n)))).astype(np.int32))
