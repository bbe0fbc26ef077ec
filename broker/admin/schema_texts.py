"""Schemas in the form of REST: names of types, and the text of a definition.

REST uses the names of Pulsar's SchemaType. Except for BOOLEAN they differ from the names on the wire by case alone. The
definition of a KEY_VALUE schema is the JSON object ``{"key": ..., "value": ...}`` in REST and
``i32 size | key schema | i32 size | value schema`` on the wire and in the store. A part whose type has no definition is
"" there; the properties ``key.schema.type`` and ``value.schema.type`` name the type, BYTES when they are absent.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY_VALUE = pb.Schema.KeyValue
_REST_NAMES = {
    "Bool": "BOOLEAN",
    "KeyValue": "KEY_VALUE",
    "ProtobufNative": "PROTOBUF_NATIVE",
    "LocalDate": "LOCAL_DATE",
    "LocalTime": "LOCAL_TIME",
    "LocalDateTime": "LOCAL_DATE_TIME",
    "AutoConsume": "AUTO_CONSUME",
}
_TYPES = {_REST_NAMES.get(name, name.upper()): number for name, number in pb.Schema.Type.items()}
_DEFINED = frozenset({"AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE"})
_SIZE = struct.Struct(">i")


def type_named(name: str) -> int | None:
    """The type with that name in REST."""
    return _TYPES.get(name)


def name_of(schema_type: int) -> str:
    name = pb.Schema.Type.Name(schema_type)
    return _REST_NAMES.get(name, name.upper())


def stored_definition(schema_type: int, text: str) -> bytes:
    """The bytes to store for a REST text; raises ValueError for a KEY_VALUE text without an object of both parts."""
    if schema_type != _KEY_VALUE:
        return text.encode()
    try:
        parts = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as e:
        raise ValueError(f"the definition of a KEY_VALUE schema is JSON: {e}") from e
    if not isinstance(parts, dict) or not {"key", "value"} <= parts.keys():
        raise ValueError("the definition of a KEY_VALUE schema is an object with key and value")
    return b"".join(_sized(b"" if part == "" else msgspec.json.encode(part)) for part in (parts["key"], parts["value"]))


def shown_definition(schema_type: int, data: bytes, properties: Mapping[str, str]) -> str:
    """The REST text of a stored schema."""
    if schema_type != _KEY_VALUE:
        return data.decode(errors="replace")
    key, rest = _split(data)
    parts = {"key": key, "value": _split(rest)[0]}
    shown = {
        name: _shown_part(part) if properties.get(f"{name}.schema.type") in _DEFINED else ""
        for name, part in parts.items()
    }
    return msgspec.json.encode(shown).decode()


def _sized(part: bytes) -> bytes:
    return _SIZE.pack(len(part)) + part


def _split(data: bytes) -> tuple[bytes, bytes]:
    size = max(0, _SIZE.unpack_from(data)[0]) if len(data) >= _SIZE.size else 0
    end = _SIZE.size + size
    return data[_SIZE.size : end], data[end:]


def _shown_part(part: bytes) -> object:
    """JSON without spaces; other texts unchanged."""
    try:
        return msgspec.json.decode(part)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return part.decode(errors="replace")
