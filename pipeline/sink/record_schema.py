"""The Avro definition of a record with given Arrow fields, as the schemas AVRO and JSON of a topic have it.

Every field is a union with null and null by default, so that a later table with one column more stays compatible.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TEXT = "string"
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "int"),
    (pa.types.is_int16, "int"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, _TEXT),
    (pa.types.is_large_string, _TEXT),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)
_VARIANT_MARK = (b"variant", b"true")
"""Spark's mark on the field `metadata` of a VARIANT column, which crosses as a struct of two binaries."""


def record_schema(name: str, fields: Sequence[pa.Field], *, as_json: bool = False) -> dict[str, Any]:
    """The record's definition. `as_json`: dates, times, decimals and bytes are text, as JSON has them.

    Raises: OptionError for a column that Avro cannot have.
    """
    return _Definition(as_json).record(name, fields)


class _Definition:
    """One definition: Avro allows each name of a record once, and `a_b` and the field `b` of `a` would share a name."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._names: set[str] = set()

    def record(self, name: str, fields: Sequence[pa.Field]) -> dict[str, Any]:
        """A record under this name, or, if an earlier record has the name, under the name with a number."""
        if not _NAME.match(name):
            raise OptionError(f"recordName {name!r} is no name in Avro: letters, digits and _, no digit first")
        if any(_VARIANT_MARK in (field.metadata or {}).items() for field in fields):
            raise OptionError(f"a column of type variant cannot be written as Avro or JSON: write to_json of {name}")
        own = self._unused(name)
        return {"type": "record", "name": own, "fields": [self._field(own, field) for field in fields]}

    def _unused(self, name: str) -> str:
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        chosen = next(each for each in itertools.chain([name], numbered) if each not in self._names)
        self._names.add(chosen)
        return chosen

    def _field(self, owner: str, field: pa.Field) -> dict[str, Any]:
        if not _NAME.match(field.name):
            raise OptionError(f"column {field.name!r} is no name in Avro: rename it to letters, digits and _")
        return {"name": field.name, "type": ["null", self._type(f"{owner}_{field.name}", field.type)], "default": None}

    def _type(self, path: str, kind: pa.DataType) -> Any:
        as_json = self._as_json
        for matches, name in _PLAIN:
            if matches(kind):
                return _TEXT if as_json and name == "bytes" else name
        if pa.types.is_struct(kind):
            return self.record(path, list(kind))
        if pa.types.is_list(kind):
            return {"type": "array", "items": ["null", self._type(path, kind.value_type)]}
        if pa.types.is_map(kind) and (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
            return {"type": "map", "values": ["null", self._type(path, kind.item_type)]}
        if pa.types.is_timestamp(kind):
            return _TEXT if as_json else {"type": "long", "logicalType": _timestamp(kind)}
        if pa.types.is_date32(kind):
            return _TEXT if as_json else {"type": "int", "logicalType": "date"}
        if pa.types.is_decimal128(kind):
            decimal = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            return _TEXT if as_json else decimal
        raise OptionError(f"a column of type {kind} cannot be written as Avro: cast {path} to another type")


def _timestamp(kind: pa.TimestampType) -> str:
    return "timestamp-micros" if kind.tz is not None else "local-timestamp-micros"
