"""Decodes payloads singly in Python and makes Arrow columns of their values, for schemas without a faster way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ADDRESS: Final = re.compile(r" object at 0x[0-9a-f]+")
ENCRYPTED: Final = "the payload is encrypted and has no value of the schema"
_NOT_A_VALUE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError)


def decode_each(
    payloads: Sequence[bytes | None], decode: Callable[[bytes], Any], failures: dict[int, str]
) -> list[Any]:
    """The decoded payloads; None for tombstones, and for rows that failed before this call or fail in it."""
    out: list[Any] = []
    for row, payload in enumerate(payloads):
        value = None
        if payload is not None and row not in failures:
            try:
                value = decode(payload)
            except Exception as e:  # noqa: BLE001 - decoders of foreign bytes raise any error: a failure of the row
                failures[row] = _why(e)
        out.append(value)
    return out


def _why(error: Exception) -> str:
    """A short reason without addresses of objects: equal damage has equal reasons."""
    if isinstance(error, EOFError):
        return "the payload ends early"
    return _ADDRESS.sub("", f"{type(error).__name__}: {error}")[:300]


def arrow_array(values: list[Any], arrow: pa.DataType, failures: dict[int, str]) -> pa.Array:
    """Values as an array; a value that the type cannot hold is a failure of its row."""
    try:
        return pa.array(values, arrow)
    except _NOT_A_VALUE:
        return _one_by_one(values, arrow, failures)


def _one_by_one(values: list[Any], arrow: pa.DataType, failures: dict[int, str]) -> pa.Array:
    kept = list(values)
    for row, value in enumerate(values):
        try:
            pa.array([value], arrow)
        except _NOT_A_VALUE as e:
            failures.setdefault(row, f"no {arrow}: {e}"[:300])
            kept[row] = None
    return pa.array(kept, arrow)


def field_arrays(
    rows: list[Any], arrow: pa.DataType, failures: dict[int, str], get: Callable[[Any, str], Any] = dict.get
) -> list[pa.Array]:
    """One array a field of the record type; rows that are None are null in all."""
    return [
        arrow_array([None if row is None else get(row, field.name) for row in rows], field.type, failures)
        for field in arrow
    ]
