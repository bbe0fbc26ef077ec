"""The value columns of a row as the payload of its message, and the schema the topic gets.

| valueMode | columns                        | payload                            | schema of the topic |
|-----------|--------------------------------|------------------------------------|---------------------|
| auto      | `value` alone, binary, string  | its bytes                          | none                |
| auto      | `value` alone, a number, bool  | as Pulsar's schema of that type    | that type           |
| auto      | `value` alone, a struct        | as avro, of the struct's fields    | AVRO                |
| auto      | others                         | as avro                            | AVRO                |
| bytes     | `value` alone, binary, string  | its bytes                          | none                |
| json      | any                            | a JSON object of the columns       | JSON                |
| avro      | any                            | an Avro record of the columns      | AVRO                |

A row whose column `value` is null becomes a tombstone. A record made of several columns is never a tombstone, even when
all of them are null.
"""

from __future__ import annotations

import io
import json
import math
import struct
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_writer

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.columns import parts
from magnetar.pipeline.sink.options import SinkOptions, ValueMode
from magnetar.pipeline.sink.record_schema import record_schema
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

_PRIMITIVES: tuple[tuple[Callable[[pa.DataType], bool], pb.Schema.Type, str], ...] = (
    (pa.types.is_boolean, pb.Schema.Bool, ">?"),
    (pa.types.is_int8, pb.Schema.Int8, ">b"),
    (pa.types.is_int16, pb.Schema.Int16, ">h"),
    (pa.types.is_int32, pb.Schema.Int32, ">i"),
    (pa.types.is_int64, pb.Schema.Int64, ">q"),
    (pa.types.is_float32, pb.Schema.Float, ">f"),
    (pa.types.is_float64, pb.Schema.Double, ">d"),
)
_TEXT_OR_BYTES = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)


class ValueEncoder(Protocol):
    """Record batches to payloads."""

    schema: pb.Schema | None
    """The schema that PRODUCER carries; None for bytes."""

    def encode(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """The payload of each row; None for a tombstone. Raises: ValueError for a row that does not fit."""
        ...


def value_encoder(schema: pa.Schema, options: SinkOptions) -> ValueEncoder:
    """The encoder for rows of this Arrow schema. Raises: OptionError."""
    _, names = parts(schema.names, options)
    alone = len(names) == 1 and names[0].lower() == "value"
    field = schema.field(names[0])
    mode = options.value_mode
    if mode is ValueMode.AUTO and not (alone and not pa.types.is_struct(field.type)):
        mode = ValueMode.AVRO
    if mode in {ValueMode.AUTO, ValueMode.BYTES}:
        if not alone:
            raise OptionError(f"valueMode bytes takes one column called value; there are {', '.join(names)}")
        return _single(field, mode, register=options.register_schema)
    fields = list(field.type) if alone and pa.types.is_struct(field.type) else [schema.field(name) for name in names]
    definition = record_schema(options.record_name, fields, as_json=mode is ValueMode.JSON)
    kind = pb.Schema.Json if mode is ValueMode.JSON else pb.Schema.Avro
    registered = _schema(kind, json.dumps(definition).encode()) if options.register_schema else None
    struct_column = names[0] if alone and pa.types.is_struct(field.type) else None
    if mode is ValueMode.JSON:
        return _Json(names, struct_column, registered)
    return _Avro(names, struct_column, registered, definition)


def _schema(kind: pb.Schema.Type, definition: bytes = b"") -> pb.Schema:
    return pb.Schema(name=pb.Schema.Type.Name(kind), schema_data=definition, type=kind)


def _single(field: pa.Field, mode: ValueMode, *, register: bool) -> ValueEncoder:
    kind = field.type
    if any(matches(kind) for matches in _TEXT_OR_BYTES):
        return _Bytes(field.name)
    for matches, schema_type, layout in _PRIMITIVES:
        if mode is ValueMode.AUTO and matches(kind):
            return _Primitive(field.name, struct.Struct(layout), _schema(schema_type) if register else None)
    raise OptionError(f"column value is {kind}: give valueMode json or avro")


class _Bytes:
    def __init__(self, name: str) -> None:
        self._name = name
        self.schema: pb.Schema | None = None

    def encode(self, batch: pa.RecordBatch) -> list[bytes | None]:
        values: list[bytes | None] = (
            batch.column(batch.schema.get_field_index(self._name)).cast(pa.binary()).to_pylist()
        )
        return values


class _Primitive:
    def __init__(self, name: str, layout: struct.Struct, schema: pb.Schema | None) -> None:
        self._name, self._layout, self.schema = name, layout, schema

    def encode(self, batch: pa.RecordBatch) -> list[bytes | None]:
        pack = self._layout.pack
        column = batch.column(batch.schema.get_field_index(self._name))
        return [None if value is None else pack(value) for value in column.to_pylist()]


class _Records:
    def __init__(self, names: list[str], struct_column: str | None, schema: pb.Schema | None) -> None:
        self._names, self._struct, self.schema = names, struct_column, schema

    def _records(self, batch: pa.RecordBatch) -> list[dict[str, Any] | None]:
        if self._struct is not None:
            column = batch.column(batch.schema.get_field_index(self._struct))
            values: list[dict[str, Any] | None] = column.to_pylist(maps_as_pydicts="strict")
            return values
        records: list[dict[str, Any] | None] = list(batch.select(self._names).to_pylist(maps_as_pydicts="strict"))
        return records


class _Json(_Records):
    def encode(self, batch: pa.RecordBatch) -> list[bytes | None]:
        encode = msgspec.json.Encoder(decimal_format="string").encode
        records: list[Any] = self._records(batch)
        if any(_is_beyond_json(column) for column in batch.columns):
            records = [_as_text(record) for record in records]
        return [None if record is None else encode(record) for record in records]


def _is_beyond_json(column: pa.Array) -> bool:
    """Whether an array may have a NaN or an infinity, for which JSON has no number, at any depth."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is False
    if pa.types.is_struct(kind):
        return any(_is_beyond_json(each) for each in column.flatten())
    if pa.types.is_map(kind):
        return _is_beyond_json(column.items)
    return bool(pa.types.is_list(kind)) and _is_beyond_json(column.flatten())


def _as_text(value: Any) -> Any:
    """A value with the text that Java's encoder writes in place of such numbers: "NaN", "Infinity", "-Infinity"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _as_text(each) for key, each in value.items()}
    return [_as_text(each) for each in value] if isinstance(value, list) else value


class _Avro(_Records):
    def __init__(
        self, names: list[str], struct_column: str | None, schema: pb.Schema | None, definition: dict[str, Any]
    ) -> None:
        super().__init__(names, struct_column, schema)
        self._definition = definition

    def encode(self, batch: pa.RecordBatch) -> list[bytes | None]:
        parsed = parse_schema(self._definition)
        payloads: list[bytes | None] = []
        for record in self._records(batch):
            if record is None:
                payloads.append(None)
                continue
            out = io.BytesIO()
            schemaless_writer(out, parsed, record)
            payloads.append(out.getvalue())
        return payloads
