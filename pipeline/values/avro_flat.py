"""Flat Avro records, all rows of a batch at once: field by field, each for every row in lock step.

A record is flat when its fields are primitives, enums or fixed, or unions of null with one of these. Rows that end
early or hold what the schema does not allow are marked; the slow path then says what is wrong with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from magnetar.pipeline.columns import FIRST_MS, LAST_MS, TIMESTAMP
from magnetar.pipeline.decode.byte_columns import NULL, Buffers, Slices, fixed
from magnetar.pipeline.values.types import TIMESTAMP_NTZ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_KINDS: Final = ("boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed")
_TIMES: Final[Mapping[str, tuple[int, pa.DataType]]] = {
    "timestamp-millis": (1000, TIMESTAMP),
    "timestamp-micros": (1, TIMESTAMP),
    "local-timestamp-millis": (1000, TIMESTAMP_NTZ),
    "local-timestamp-micros": (1, TIMESTAMP_NTZ),
}
_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_DAYS: Final = (FIRST_MS // 86_400_000, LAST_MS // 86_400_000)


@dataclass(frozen=True, slots=True)
class FlatField:
    """One field of the writer's record. null_branch: number of null in its union; None without a union."""

    name: str
    kind: str
    null_branch: int | None
    logical: str = ""
    symbols: tuple[str, ...] = ()
    size: int = 0


def resolved(fields: list[FlatField], arrays: list[pa.Array], reader: Any) -> list[pa.Array] | None:
    """The columns of the reader's flat record, out of those of the writer's; None when that takes more than leaving
    columns out, ordering them and adding nulls (promotion, other defaults, aliases).
    """
    wanted = flat_fields(reader)
    if wanted is None or any("aliases" in field for field in reader["fields"]):
        return None
    written = {field.name: number for number, field in enumerate(fields)}
    out: list[pa.Array | None] = []
    for field, details in zip(wanted, reader["fields"], strict=True):
        number = written.get(field.name)
        if number is None:
            if field.null_branch is None or details.get("default", ...) is not None:
                return None
            out.append(None)
            continue
        writer = fields[number]
        same = (writer.kind, writer.logical, writer.symbols, writer.size) == (
            field.kind,
            field.logical,
            field.symbols,
            field.size,
        )
        if not same or (writer.null_branch is not None and field.null_branch is None):
            return None
        out.append(arrays[number])
    return out


def flat_fields(schema: Any) -> list[FlatField] | None:
    """The fields of a flat record, None for any other schema."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    found = [_flat_field(field) for field in schema.get("fields", ())]
    return None if any(field is None for field in found) else [field for field in found if field is not None]


def _flat_field(field: Any) -> FlatField | None:
    kind, null_branch = field["type"], None
    if isinstance(kind, list):
        if len(kind) != 2 or "null" not in kind or kind[0] == kind[1]:
            return None
        null_branch = kind.index("null")
        kind = kind[1 - null_branch]
    details: dict[str, Any] = kind if isinstance(kind, dict) else {"type": kind}
    name, logical = details["type"], details.get("logicalType", "")
    if name not in _KINDS or logical == "decimal":
        return None
    return FlatField(
        field["name"], name, null_branch, logical, tuple(details.get("symbols", ())), int(details.get("size", 0))
    )


class FlatReader:
    """Reads payloads that stand in one buffer; `good` tells which rows hold all fields so far."""

    def __init__(self, data: NDArray[np.uint8], starts: Int64s, ends: Int64s) -> None:
        self._buffers = Buffers()
        self._buffers.add(data)
        self._data = data if len(data) else np.zeros(1, np.uint8)
        self._at = starts.copy()
        self._ends = ends
        self.good: Bools = np.ones(len(starts), np.bool_)

    def read(self, field: FlatField) -> pa.Array:
        """The next field of every row."""
        rows = np.flatnonzero(self.good)
        null = np.zeros(len(self.good), np.bool_)
        if field.null_branch is not None:
            branch = self._varint(rows)
            self._require(rows, (branch == 0) | (branch == 1))
            null[rows] = branch == field.null_branch
            rows = rows[self.good[rows] & ~null[rows]]
        return self._value(field, rows, null | ~self.good)

    def _value(self, field: FlatField, rows: Any, null: Bools) -> pa.Array:
        if field.kind in ("int", "long"):
            return self._integer(field, rows, null)
        if field.kind == "boolean":
            truth = self._bytes(rows, 1)[:, 0]
            self._require(rows, truth <= 1)
            return pa.array(_spread(rows, truth == 1, len(null)), mask=null)
        if field.kind in ("float", "double"):
            kind = "<f4" if field.kind == "float" else "<f8"
            numbers = np.ascontiguousarray(self._bytes(rows, int(kind[2]))).view(kind)[:, 0]
            return fixed(_spread(rows, numbers, len(null)), pa.float32() if kind == "<f4" else pa.float64(), null)
        if field.kind == "enum":
            chosen = self._varint(rows)
            self._require(rows, (chosen >= 0) & (chosen < len(field.symbols)))
            codes = _spread(rows, chosen, len(null))
            codes[~self.good] = 0
            return pa.array(field.symbols, pa.string()).take(pa.array(codes, mask=null | ~self.good))
        return self._text(field, rows, null)

    def _integer(self, field: FlatField, rows: Any, null: Bools) -> pa.Array:
        values = self._varint(rows)
        if field.kind == "int":
            low, high = _DAYS if field.logical == "date" else _INT32
            self._require(rows, (values >= low) & (values <= high))
            spread = _spread(rows, values, len(null)).astype(np.int32)
            return fixed(spread, pa.date32() if field.logical == "date" else pa.int32(), null)
        spread = _spread(rows, values, len(null))
        if field.logical not in _TIMES:
            return fixed(spread, pa.int64(), null)
        factor, arrow = _TIMES[field.logical]
        bounds = (FIRST_MS * 1000 // factor, (LAST_MS + 1) * 1000 // factor - 1)
        self._require(rows, (values >= bounds[0]) & (values <= bounds[1]))
        return fixed(np.where(self.good, spread, 0) * factor, arrow, null)

    def _text(self, field: FlatField, rows: Any, null: Bools) -> pa.Array:
        lengths = np.full(len(rows), field.size) if field.kind == "fixed" else self._varint(rows)
        fits = (lengths >= 0) & (lengths <= self._ends[rows] - self._at[rows])
        self._require(rows, fits)
        rows, lengths = rows[fits], lengths[fits]
        slices = Slices(np.zeros(len(null), np.int64), self._at.copy(), _spread(rows, lengths, len(null), absent=NULL))
        self._at[rows] += lengths
        found = self._buffers.binary(slices)
        return found.cast(pa.string()) if field.kind == "string" else found

    def _bytes(self, rows: Any, width: int) -> NDArray[np.uint8]:
        """`width` bytes a row; rows without as many are no good and give any."""
        self._require(rows, self._ends[rows] - self._at[rows] >= width)
        where = np.minimum(self._at[rows][:, None] + np.arange(width), len(self._data) - 1)
        self._at[rows] += width
        found: NDArray[np.uint8] = self._data[where]
        return found

    def _varint(self, rows: Any) -> Int64s:
        """A zigzag number of every row; rows that end within it, or go beyond ten bytes, are no good."""
        values = np.zeros(len(rows), np.uint64)
        left = np.arange(len(rows))
        for shift in range(0, 70, 7):
            at = self._at[rows[left]]
            there = at < self._ends[rows[left]]
            if not there.all():
                self.good[rows[left[~there]]] = False
                left, at = left[there], at[there]
            byte = self._data[at]
            values[left] |= (byte & np.uint8(127)).astype(np.uint64) << np.uint64(shift)
            self._at[rows[left]] += 1
            left = left[byte > 127]
            if not len(left):
                break
        self.good[rows[left]] = False
        zigzag: Int64s = (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)
        return zigzag

    def _require(self, rows: Any, fine: Bools) -> None:
        self.good[rows[~fine]] = False


def _spread(rows: Any, values: Any, n: int, absent: int = 0) -> Any:
    """The values at their rows, something else at the others."""
    out = np.full(n, absent, values.dtype)
    out[rows] = values
    return out
