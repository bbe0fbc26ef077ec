"""Avro schemas as Arrow types; the mapping follows Spark's own Avro source where that has a mapping.

| Avro | column |
|---|---|
| boolean, int, long, float, double, string, bytes | boolean, int, bigint, float, double, string, binary |
| fixed; enum | binary; string |
| array; map; record | array; map with string keys; struct |
| union of null and T | T |
| union of int and long; of float and double | bigint; double |
| other unions | string: text as it is, any other value as JSON |
| null | string, always null |
| date | date |
| timestamp-millis, timestamp-micros | timestamp |
| local-timestamp-millis, -micros | timestamp without time zone |
| decimal | decimal |
| time-millis, time-micros; uuid | int, bigint; string |

A record that contains itself has no form as columns. JSON schemas are Avro definitions too; there numbers stay numbers
(`logical=False`), because JSON encoders do not agree on dates.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from magnetar.pipeline.columns import TIMESTAMP
from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.types import TIMESTAMP_NTZ, list_of, struct_of

MAX_DEPTH: Final = 64
_PRIMITIVES: Final = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): TIMESTAMP_NTZ,
}
_WIDER: Final = (({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64()))
_DROPPED_LOGICAL: Final = frozenset(("time-millis", "time-micros", "uuid", "duration"))


class AvroTypes:
    """Types of one schema; names are resolved as they are defined, in the order of the text.

    has_mixed_unions: values of some columns must become text (`with_text`).
    """

    def __init__(self, *, logical: bool = True) -> None:
        self._logical = logical
        self._named: dict[str, tuple[Any, str]] = {}
        self._open: list[str] = []
        self.has_mixed_unions = False

    def arrow(self, schema: Any, namespace: str = "", depth: int = 0) -> pa.DataType:
        """The Arrow type of a schema. Raises SchemaError."""
        if depth > MAX_DEPTH:
            raise SchemaError("the schema is nested too deeply")
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, str):
            return self._name(schema, namespace, depth)
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaError(f"{str(schema)[:60]!r} is no Avro schema")
        return self._complex(schema, namespace, depth)

    def _complex(self, schema: dict[str, Any], namespace: str, depth: int) -> pa.DataType:
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.arrow(kind, namespace, depth + 1)
        if self._logical and (kind, schema.get("logicalType")) in _LOGICAL:
            return _LOGICAL[kind, schema["logicalType"]]
        if self._logical and schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            self._define(schema, namespace)
            return _decimal(schema)
        if kind == "array":
            return list_of(self.arrow(schema.get("items"), namespace, depth + 1))
        if kind == "map":
            return pa.map_(pa.string(), self.arrow(schema.get("values"), namespace, depth + 1))
        if kind in ("record", "error"):
            return self._record(schema, namespace, depth)
        if kind in ("enum", "fixed"):
            self._define(schema, namespace)
            return pa.string() if kind == "enum" else pa.binary()
        return self._name(kind, namespace, depth)

    def _record(self, schema: dict[str, Any], namespace: str, depth: int) -> pa.DataType:
        name = self._define(schema, namespace)
        if name in self._open:
            raise SchemaError(f"record {name} contains itself and has no form as columns; read with valueMode=bytes")
        inner = name.rpartition(".")[0]
        self._open.append(name)
        try:
            fields = [(str(f["name"]), self.arrow(f["type"], inner, depth + 1)) for f in schema["fields"]]
        except (KeyError, TypeError) as e:
            raise SchemaError(f"record {name} is no Avro record: {e}") from e
        finally:
            self._open.pop()
        return struct_of(fields)

    def _name(self, name: str, namespace: str, depth: int) -> pa.DataType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise SchemaError(f"the schema names a type {name} that it does not define")
        return self.arrow(*found, depth + 1)

    def _define(self, schema: dict[str, Any], namespace: str) -> str:
        name = str(schema.get("name", ""))
        own = schema.get("namespace", namespace)
        full = name if "." in name or not own else f"{own}.{name}"
        self._named[full] = schema, full.rpartition(".")[0]
        return full

    def _union(self, branches: list[Any], namespace: str, depth: int) -> pa.DataType:
        left = [branch for branch in branches if branch != "null"]
        if not left:
            return pa.string()
        if len(left) == 1:
            return self.arrow(left[0], namespace, depth + 1)
        names = {branch for branch in left if isinstance(branch, str)}
        for members, arrow in _WIDER:
            if len(names) == len(left) and names <= members:
                return arrow
        for branch in left:
            self.arrow(branch, namespace, depth + 1)  # later branches may name its definitions
        self.has_mixed_unions = True
        return pa.string()


def _decimal(schema: dict[str, Any]) -> pa.DataType:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if (
        not isinstance(precision, int)
        or not isinstance(scale, int)
        or not 0 <= scale <= precision <= 38
        or not precision
    ):
        raise SchemaError(f"a decimal of precision {precision} and scale {scale} has no form in Spark (at most 38)")
    return pa.decimal128(precision, scale)


def with_text(value: Any, arrow: pa.DataType) -> Any:
    """The value with the branches of mixed unions, whose column is a string, converted to strings."""
    if value is None:
        return None
    if pa.types.is_string(arrow):
        return value if isinstance(value, str) else json.dumps(value, default=_text, sort_keys=True)
    if pa.types.is_struct(arrow):
        return {field.name: with_text(value.get(field.name), field.type) for field in arrow}
    if pa.types.is_list(arrow):
        return [with_text(each, arrow.value_type) for each in value]
    if pa.types.is_map(arrow):
        return {key: with_text(each, arrow.item_type) for key, each in value.items()}
    return value


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def physical(schema: Any) -> Any:
    """The schema without those logical types that the columns hold in their underlying type."""
    if isinstance(schema, list):
        return [physical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: physical(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if not (key == "logicalType" and value in _DROPPED_LOGICAL)
    }
