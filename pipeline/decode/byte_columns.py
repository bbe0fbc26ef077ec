"""Columns of bytes without a loop over rows: slices of shared buffers, copied into Arrow arrays by one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from magnetar.protocol.entry_columns import gather

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    Bools = NDArray[np.bool_]

NULL: Final = -1
"""Length of a null."""


class Slices(NamedTuple):
    """Value i is ``buffers[buffer[i]][start[i] : start[i] + length[i]]``; null where length[i] is NULL."""

    buffer: Int64s
    start: Int64s
    length: Int64s


class Buffers:
    """The buffers that values lie in. Nothing is copied; added buffers stay alive with this object."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.uint8]] = []

    def add(self, data: Any) -> int:
        """Add a buffer; returns its number."""
        self._arrays.append(np.frombuffer(data, np.uint8))
        return len(self._arrays) - 1

    def add_values(self, values: Iterable[bytes]) -> tuple[int, Int64s, Int64s]:
        """Put these values into a new buffer; return its number, starts and lengths."""
        parts = list(values)
        lengths = np.array([len(part) for part in parts], np.int64)
        return self.add(b"".join(parts)), np.cumsum(lengths) - lengths, lengths

    def array(self, number: int) -> NDArray[np.uint8]:
        return self._arrays[number]

    def value(self, slices: Slices, i: int) -> bytes | None:
        """One value; None for a null."""
        length = int(slices.length[i])
        if length < 0:
            return None
        start = int(slices.start[i])
        return self._arrays[int(slices.buffer[i])][start : start + length].tobytes()

    def binary(self, slices: Slices) -> pa.Array:
        """The values as an Arrow array of type binary. Raises ValueError for more than 2 GiB."""
        arrays = [np.ascontiguousarray(column) for column in slices]
        offsets, data = gather(self._arrays, *arrays)
        return pa.Array.from_buffers(
            pa.binary(),
            len(slices.length),
            [validity(slices.length < 0), pa.py_buffer(offsets), pa.py_buffer(data)],
        )

    def text(self, slices: Slices) -> pa.Array:
        """The values as an Arrow array of type string; bytes that are no UTF-8 become U+FFFD, as in Java clients."""
        binary = self.binary(slices)
        try:
            return binary.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array(
                [None if v is None else v.decode("utf-8", "replace") for v in binary.to_pylist()], pa.string()
            )


def validity(null: Bools) -> pa.Buffer | None:
    """Arrow's bitmap of non-null values; None without nulls."""
    return pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None


def fixed(values: NDArray[Any], arrow: pa.DataType, null: Bools | None = None) -> pa.Array:
    """Numbers as an Arrow array whose type has the same width as their dtype."""
    data = np.ascontiguousarray(values)
    bitmap = validity(null) if null is not None else None
    return pa.Array.from_buffers(arrow, len(data), [bitmap, pa.py_buffer(data)])


def repeated(value: Any, arrow: pa.DataType, n: int) -> pa.Array:
    """An array that repeats the same value `n` times."""
    return pa.repeat(pa.scalar(value, arrow), n)
