"""Payloads of PROTOBUF_NATIVE schemas: messages of a descriptor that the schema carries.

| protobuf | column |
|---|---|
| int32, sint32, sfixed32; int64, sint64, sfixed64 | int; bigint |
| uint32, fixed32; uint64, fixed64 | bigint; decimal(20, 0) |
| float, double, bool, string, bytes | float, double, boolean, string, binary |
| enum | string: the name, or the number of a value without a name |
| message; repeated; map | struct; array; map |

A field with presence that is not set is null; a field without presence has its default. Protobuf itself resolves older
versions: fields are matched by number. A message that contains itself has no form as columns.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.interface import DecodedValues
from magnetar.pipeline.values.row_by_row import ENCRYPTED, decode_each, field_arrays
from magnetar.pipeline.values.types import list_of, record_columns, struct_of

if TYPE_CHECKING:
    from magnetar.pipeline.values.interface import ValueBatch
    from magnetar.pipeline.values.topic_schema import TopicSchema

_UINT64: Final = pa.decimal128(20, 0)
_SIMPLE: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: _UINT64,
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
Convert = Callable[[Any], Any]


class ProtobufValues:
    """Decodes to the columns of the root message."""

    def __init__(self, schema: TopicSchema) -> None:
        """Raises SchemaError for a schema without a sound descriptor, or whose message contains itself."""
        root = _root(schema)
        self._message: Any = message_factory.GetMessageClass(root)
        self._arrow, self._convert = _record(root, ())
        self.columns = record_columns(self._arrow)

    def decode(self, batch: ValueBatch) -> DecodedValues:
        """See ValueDecoder."""
        failures = {int(row): ENCRYPTED for row in np.flatnonzero(batch.encrypted)}
        rows = decode_each(batch.payload.to_pylist(), self._decoded, failures)
        return DecodedValues(field_arrays(rows, self._arrow, failures), failures)

    def _decoded(self, payload: bytes) -> Any:
        message = self._message.FromString(payload)
        if not message.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors()[:5])}")
        return self._convert(message)


def _root(schema: TopicSchema) -> Any:
    definition = schema.definition
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(definition["fileDescriptorSet"]))
        pool = DescriptorPool()
        for file in _in_order(list(files.file)):
            pool.Add(file)
        return pool.FindMessageTypeByName(definition["rootMessageTypeName"])
    except (KeyError, TypeError, ValueError, binascii.Error, DecodeError) as e:
        raise SchemaError(f"the PROTOBUF_NATIVE schema holds no sound descriptor: {e}") from e


def _in_order(files: list[Any]) -> list[Any]:
    """The files ordered so that each follows the files it imports."""
    by_name = {file.name: file for file in files}
    ordered: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name in ordered:
            return
        by_name.pop(file.name, None)  # an import of itself is not followed
        for name in file.dependency:
            if name in by_name:
                add(by_name[name])
        ordered[file.name] = file

    for file in files:
        add(file)
    return list(ordered.values())


def _record(descriptor: Any, open_: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    if descriptor.full_name in open_:
        raise SchemaError(f"message {descriptor.full_name} contains itself and has no form as columns")
    inside = (*open_, descriptor.full_name)
    fields = [(field.name, field.has_presence, *_field(field, inside)) for field in descriptor.fields]
    plan = [(name, presence, convert) for name, presence, _, convert in fields]

    def convert_record(message: Any) -> dict[str, Any]:
        return {
            name: None if presence and not message.HasField(name) else convert(getattr(message, name))
            for name, presence, convert in plan
        }

    return struct_of((name, arrow) for name, _, arrow, _ in fields), convert_record


def _field(field: Any, open_: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key_type, key = _single(field.message_type.fields_by_name["key"], open_)
        value_type, value = _single(field.message_type.fields_by_name["value"], open_)
        return pa.map_(key_type, value_type), lambda found: [(key(k), value(found[k])) for k in found]
    arrow, convert = _single(field, open_)
    if not field.is_repeated:
        return arrow, convert
    return list_of(arrow), lambda found: [convert(each) for each in found]


def _single(field: Any, open_: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return _record(field.message_type, open_)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return (pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()), lambda found: found
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return pa.string(), lambda found: names.get(found, str(found))
    if kind == FieldDescriptor.CPPTYPE_UINT64:
        return _UINT64, Decimal
    return _SIMPLE[kind], lambda found: found
