"""Arrow types and the Spark types they stand for: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from magnetar.pipeline.columns import TIMESTAMP, Column
from magnetar.pipeline.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMESTAMP_NTZ: Final = pa.timestamp("us")
_SIMPLE: Final = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}


def spark_type(arrow: pa.DataType) -> str:
    """The type in Spark's DDL. Raises SchemaError for a type that Spark has no form of."""
    if arrow in _SIMPLE:
        return _SIMPLE[arrow]
    if pa.types.is_decimal128(arrow):
        return f"DECIMAL({arrow.precision}, {arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_type(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"MAP<{spark_type(arrow.key_type)}, {spark_type(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        inner = ", ".join(f"`{field.name.replace('`', '``')}`: {spark_type(field.type)}" for field in arrow)
        return f"STRUCT<{inner}>"
    raise SchemaError(f"{arrow} has no form in Spark")


def list_of(element: pa.DataType) -> pa.DataType:
    """A list type whose element has the name that Spark gives it."""
    return pa.list_(pa.field("element", element))


def struct_of(fields: Iterable[tuple[str, pa.DataType]]) -> pa.DataType:
    return pa.struct([pa.field(name, arrow) for name, arrow in fields])


def column(name: str, arrow: pa.DataType, doc: str = "of the topic's schema") -> Column:
    """A column of the value."""
    return Column(name, arrow, spark_type(arrow), doc)


def record_columns(arrow: pa.DataType) -> tuple[Column, ...]:
    """One column a field of a record. Raises SchemaError for names that differ by case only: Spark cannot tell them
    apart.
    """
    seen: dict[str, str] = {}
    for field in arrow:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaError(f"fields {other} and {field.name} differ by case only; read with valueMode=bytes")
    if not len(arrow):
        raise SchemaError("the record has no fields; read with valueMode=bytes")
    return tuple(column(field.name, field.type) for field in arrow)
