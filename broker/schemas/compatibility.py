"""Decides whether a new schema fits the schemas of a topic: Pulsar's strategies over Avro's resolution rules.

A strategy (SchemaCompatibilityStrategy) names the checked direction, and whether the check covers the latest version or
(TRANSITIVE) all versions. BACKWARD: the new schema reads data written with the old schema. FORWARD: the old schema
reads data written with the new schema. FULL: both.
Avro and JSON schemas (both described by Avro records in Pulsar) are parsed by `avro_schema` and compared by
`avro_resolution`. Protobuf schemas are parsed as well, and not compared, as in Apache Pulsar; other types must be the
same type.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import (
    BrokenKeyValueError,
    ImpossibleSchemaError,
    IncompatibleSchemaError,
    InvalidSchemaError,
    SchemaDefaultError,
)
from magnetar.broker.schemas.avro_defaults import invalid_default
from magnetar.broker.schemas.avro_printing import printed
from magnetar.broker.schemas.avro_resolution import can_read
from magnetar.broker.schemas.avro_schema import (
    SchemaMeaningError,
    SchemaTextError,
    canonical,
    parse_json,
    parse_schema,
)
from magnetar.broker.schemas.native_schema import protobuf_root
from magnetar.broker.schemas.work import MAX_DEFINITION_BYTES, SchemaWork
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

_STRING_OF_CPP = (pb.Schema.String, b"null")
"""The bytes with which the C++ and Python clients describe a string; other clients send no bytes."""
_PRIMITIVE_TYPES = frozenset(
    {
        pb.Schema.String,
        pb.Schema.Bool,
        pb.Schema.Int8,
        pb.Schema.Int16,
        pb.Schema.Int32,
        pb.Schema.Int64,
        pb.Schema.Float,
        pb.Schema.Double,
        pb.Schema.Date,
        pb.Schema.Time,
        pb.Schema.Timestamp,
        pb.Schema.Instant,
        pb.Schema.LocalDate,
        pb.Schema.LocalTime,
        pb.Schema.LocalDateTime,
    }
)
_BYTES = -1  # only Apache Pulsar has this type; it is not on the wire
_JAVA_NAMES = {
    "Bool": "BOOLEAN",
    "KeyValue": "KEY_VALUE",
    "LocalDate": "LOCAL_DATE",
    "LocalTime": "LOCAL_TIME",
    "LocalDateTime": "LOCAL_DATE_TIME",
    "ProtobufNative": "PROTOBUF_NATIVE",
    "AutoConsume": "AUTO_CONSUME",
}
_JAVA_TYPES = {_JAVA_NAMES.get(name, name.upper()): number for name, number in pb.Schema.Type.items()}
_JAVA_TYPES["BYTES"] = _BYTES
_NAMES = {number: name for name, number in _JAVA_TYPES.items()}
AVRO_TYPES = frozenset({pb.Schema.Avro, pb.Schema.Json, pb.Schema.Protobuf})
"""Types whose definition is an Avro text."""
_COMPARED_TYPES = frozenset({pb.Schema.Avro, pb.Schema.Json})
_OLD_JSON = object()
_PRINTED_BYTES = 16 << 10
_MOST_KEY_VALUES = 16
"""The most levels of KeyValue schemas inside each other."""
_JSON_SCHEMA_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null", "any"})


class Definition(NamedTuple):
    """The parts of a schema that a check compares."""

    type: int
    data: bytes
    properties: Mapping[str, str] = {}


class Strategy(enum.StrEnum):
    """SchemaCompatibilityStrategy by its Pulsar names."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def takes_the_latest(self) -> bool:
        """A definition with the bytes of the latest version fits, whatever its properties are."""
        return not self.transitive and self is not Strategy.ALWAYS_INCOMPATIBLE

    @property
    def backward(self) -> bool:
        """The new schema must read data of the old schema."""
        return self.value.startswith(("BACKWARD", "FULL")) or self is Strategy.UNDEFINED

    @property
    def forward(self) -> bool:
        """The old schemas must read data of the new schema."""
        return self.value.startswith(("FORWARD", "FULL")) or self is Strategy.UNDEFINED

    def for_consumer(self) -> Strategy:
        """A consumer must read the stored data: check only that direction of its schema."""
        latest = (Strategy.BACKWARD, Strategy.FORWARD, Strategy.FORWARD_TRANSITIVE, Strategy.FULL)
        return Strategy.BACKWARD if self in latest else self


def check_compatible(
    new: Definition, existing: list[Definition], strategy: Strategy, work: SchemaWork | None = None
) -> None:
    """Return if the schema fits; raise IncompatibleSchemaError with the reason if it does not.

    `existing`: the topic's versions, oldest first; only the latest counts unless the strategy is transitive.
    Raises: InvalidSchemaError when the definition itself does not parse, SchemaWorkError when `work` is used up.
    """
    work = work or SchemaWork()
    check_definition(new, work)
    check_with_existing(new, existing, strategy, work)


def check_definition(new: Definition, work: SchemaWork | None = None) -> None:
    """Raise InvalidSchemaError when the definition itself does not parse, SchemaWorkError when `work` is used up."""
    work = work or SchemaWork()
    if len(new.data) > MAX_DEFINITION_BYTES:
        raise InvalidSchemaError(f"A schema may have {MAX_DEFINITION_BYTES} bytes, not {len(new.data)}")
    _validate(new, work)


def check_with_existing(
    new: Definition, existing: list[Definition], strategy: Strategy, work: SchemaWork | None = None
) -> None:
    """Check as `check_compatible` does, for a schema whose text was checked before or does not matter.

    Raises SchemaDefaultError for a default that cannot be written, IncompatibleSchemaError where the strategy is
    transitive.
    """
    work = work or SchemaWork()
    if not existing or strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    if new.type == pb.Schema.KeyValue and strategy.takes_the_latest and existing[-1][:2] == new[:2]:
        return  # the types of its parts, which the properties name, do not count then
    compared = existing if strategy.transitive else existing[-1:]
    for old in compared:
        _check_type(new.type, old.type)
    for old in reversed(compared):  # the refusal shows the latest version that does not fit, as in Apache Pulsar
        if strategy is Strategy.ALWAYS_INCOMPATIBLE:
            raise _always_incompatible(new, old, work)
        try:
            _check_definition(new, old, strategy, work)
        except SchemaDefaultError as e:
            if not strategy.transitive:
                raise
            raise IncompatibleSchemaError(str(e)) from e


def _check_definition(new: Definition, old: Definition, strategy: Strategy, work: SchemaWork, depth: int = 0) -> None:
    _check_type(new.type, old.type)
    if new.type != pb.Schema.KeyValue:
        _check_part(new.type, new.data, old.data, strategy, work)
        return
    for new_part, old_part in _parts_of_both(new, old, work, depth):
        _check_definition(new_part, old_part, strategy, work, depth + 1)


def _parts_of_both(
    new: Definition, old: Definition, work: SchemaWork, depth: int
) -> list[tuple[Definition, Definition]]:
    """Return the keys and the values of two KeyValues. Raises IncompatibleSchemaError when their types differ."""
    new_parts, old_parts = _key_and_value(new, work, depth), _key_and_value(old, work, depth)
    if [part.type for part in new_parts] != [part.type for part in old_parts]:
        old_key, old_value = (type_name(part.type) for part in old_parts)
        new_key, new_value = (type_name(part.type) for part in new_parts)
        raise wire_refusals.KEY_VALUE_TYPES_CHANGED.error(
            old_key=old_key, new_key=new_key, old_value=old_value, new_value=new_value
        )
    return list(zip(new_parts, old_parts, strict=True))


def _check_type(new: int, old: int) -> None:
    if new != old:
        raise wire_refusals.SCHEMA_TYPE_CHANGED.error(old=type_name(old), new=type_name(new))


def _check_part(schema_type: int, data: bytes, old_data: bytes, strategy: Strategy, work: SchemaWork) -> None:
    if schema_type == pb.Schema.ProtobufNative and (new_root := protobuf_root(data)) != (
        root := protobuf_root(old_data)
    ):
        raise wire_refusals.PROTOBUF_ROOT_CHANGED.error(strategy=strategy.value, old=root, new=new_root)
    if schema_type not in _COMPARED_TYPES:
        return
    new, old = _parse(schema_type, data, work, is_new=True), _parse(schema_type, old_data, work)
    if old is _OLD_JSON:
        return
    if strategy.forward and (problem := can_read(reader=old, writer=new, work=work)):
        raise _unreadable(strategy, Text(old, old_data), Text(new, data), problem)
    if strategy.backward and (problem := can_read(reader=new, writer=old, work=work)):
        raise _unreadable(strategy, Text(new, data), Text(old, old_data), problem)


def _always_incompatible(new: Definition, old: Definition, work: SchemaWork, depth: int = 0) -> IncompatibleSchemaError:
    """Refuse an Avro schema in Apache Pulsar's words: the schema cannot even read itself. The key decides the words for
    a KeyValue, because Apache Pulsar checks it first.
    """
    if new.type == pb.Schema.KeyValue:
        (new_key, old_key), _ = _parts_of_both(new, old, work, depth)
        return _always_incompatible(new_key, old_key, work, depth + 1)
    if new.type == pb.Schema.ProtobufNative:
        return IncompatibleSchemaError("Unknown SchemaCompatibilityStrategy.")
    if new.type not in _COMPARED_TYPES:
        return IncompatibleSchemaError("Schema compatibility strategy is ALWAYS_INCOMPATIBLE")
    text = Text(_parse(new.type, new.data, work, is_new=True), new.data)
    return _unreadable(Strategy.ALWAYS_INCOMPATIBLE, text, text)


_REMEDY: Final = (
    ". Give a new or removed field a default and keep the types of the others, or let the namespace take such schemas: "
    "`magnetar admin namespaces set-schema-compatibility-strategy --compatibility ALWAYS_COMPATIBLE TENANT/NAMESPACE`"
)


class Text(NamedTuple):
    """A parsed schema and its bytes."""

    schema: Any
    data: bytes

    def __str__(self) -> str:
        """Avro's printing of the schema, or the size of a large schema, so that a refusal stays readable."""
        return printed(self.schema) if len(self.data) <= _PRINTED_BYTES else f"(a schema of {len(self.data)} bytes)"


def _unreadable(strategy: Strategy, reader: Text, writer: Text, problem: str = "") -> IncompatibleSchemaError:
    """The refusal in Apache Pulsar's words, since clients and their tests look for them; behind them the place in the
    schema and the remedy.
    """
    text = wire_refusals.UNREADABLE_SCHEMA.format(strategy=strategy.value, reader=reader, writer=writer)
    return IncompatibleSchemaError(f"{text}\n{problem[:_PRINTED_BYTES]}{_REMEDY}" if problem else text)


class Fingerprint(NamedTuple):
    """A digest that is equal for equivalent definitions of a type, and the refusal of an invalid default."""

    digest: bytes
    default_problem: str | None

    def check_defaults(self) -> None:
        """Raise SchemaDefaultError for an invalid default."""
        if self.default_problem is not None:
            raise SchemaDefaultError(self.default_problem)


def fingerprint(schema_type: int, data: bytes, work: SchemaWork | None = None) -> Fingerprint:
    """Return the fingerprint of a definition: Avro texts are compared as schemas, all other definitions byte for byte.

    Raises SchemaWorkError when `work` is used up.
    """
    work = work or SchemaWork()
    form, seen, problem = b"bytes", data, None
    if schema_type in AVRO_TYPES:
        with contextlib.suppress(SchemaTextError):
            schema = parse_schema(data, work)
            form, seen = b"avro", json.dumps(canonical(schema, work), sort_keys=True).encode()
            problem = invalid_default(schema, work)
    return Fingerprint(hashlib.sha256(b"%d %s " % (schema_type, form) + seen).digest(), problem)


def _key_and_value(schema: Definition, work: SchemaWork, depth: int) -> list[Definition]:
    """Return the parts of a KeyValue, each of which may be a KeyValue. Raises BrokenKeyValueError.

    A KeyValue's data is ``u32 size | key schema | u32 size | value schema`` (size -1: empty). Its properties name the
    types of the parts, and have the properties of the parts as JSON; a part without a type is plain bytes.
    """
    if depth >= _MOST_KEY_VALUES:
        raise BrokenKeyValueError(f"KEY_VALUE schemas inside each other may have {_MOST_KEY_VALUES} levels")
    parts: list[Definition] = []
    at, data = 0, schema.data
    for name in ("key", "value"):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        end = at + 4 + max(size, 0)
        if len(data) < at + 4 or len(data) < end:
            raise BrokenKeyValueError("Invalid schema definition data for KEY_VALUE schema")
        type_name = schema.properties.get(f"{name}.schema.type", "BYTES")
        if type_name not in _JAVA_TYPES:
            raise BrokenKeyValueError(f"There is no schema type {type_name}")
        kind = _JAVA_TYPES[type_name]
        nested = kind == pb.Schema.KeyValue
        properties = _properties(schema.properties.get(f"{name}.schema.properties", ""), work) if nested else {}
        parts.append(Definition(kind, data[at + 4 : end], properties))
        at = end
    return parts


def _properties(text: str, work: SchemaWork) -> dict[str, str]:
    try:
        parsed = parse_json(text.encode(), work) if text.strip() else {}
    except SchemaTextError as e:
        raise BrokenKeyValueError(f"The properties of a part of a KEY_VALUE schema are no JSON: {e}") from e
    if not isinstance(parsed, dict):
        raise BrokenKeyValueError("The properties of a part of a KEY_VALUE schema are no JSON object")
    texts = {key: value for key, value in parsed.items() if isinstance(value, str)}
    return {key: value.encode("utf-8", "replace").decode() for key, value in texts.items()}  # no lone surrogates


def _parse(schema_type: int, data: bytes, work: SchemaWork, *, is_new: bool = False) -> Any:
    """Return the Avro schema in `data` as JSON values; raises InvalidSchemaError.

    For a definition in the form of JSON Schema, which old clients wrote for JSON types, the result is _OLD_JSON. A new
    definition may not have that form (Apache Pulsar 4.2.4).
    """
    try:
        return parse_schema(data, work)
    except SchemaTextError as e:
        if schema_type == pb.Schema.Json and not is_new and _is_json_schema(data, work):
            return _OLD_JSON
        text = wire_refusals.SCHEMA_DEFINITION_INVALID.format(kind=type_name(schema_type), problem=e)
        is_impossible = isinstance(e, SchemaMeaningError) and schema_type == pb.Schema.Avro
        raise (ImpossibleSchemaError if is_impossible else InvalidSchemaError)(text) from e


def check_text(schema_type: int, data: bytes, work: SchemaWork) -> None:
    """Raise InvalidSchemaError unless the text of a new schema of an Avro type parses."""
    _parse(schema_type, data, work, is_new=True)


def _is_json_schema(data: bytes, work: SchemaWork) -> bool:
    try:
        schema = parse_json(data, work)
    except SchemaTextError:
        return False
    kind = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(kind, str) and kind in _JSON_SCHEMA_TYPES


def _validate(schema: Definition, work: SchemaWork, depth: int = 0) -> None:
    """Raise InvalidSchemaError unless the data can describe the type."""
    schema_type, data = schema.type, schema.data
    if schema_type == pb.Schema.KeyValue:
        for part in _key_and_value(schema, work, depth):
            _validate(part, work, depth + 1)
        return
    if schema_type in AVRO_TYPES:
        if isinstance(_parse(schema_type, data, work, is_new=True), list) and schema_type == pb.Schema.Avro:
            raise wire_refusals.SCHEMA_UNION.error()
    elif schema_type == pb.Schema.ProtobufNative:
        protobuf_root(data)
    elif schema_type in _PRIMITIVE_TYPES and data and (schema_type, data) != _STRING_OF_CPP:
        if schema_type == pb.Schema.String:
            text = data[:_PRINTED_BYTES].decode(errors="replace")
            raise wire_refusals.STRING_SCHEMA_WITH_DATA.error(data=text)
        raise wire_refusals.PRIMITIVE_SCHEMA_WITH_DATA.error(size=len(data))
    elif schema_type == pb.Schema.AutoConsume:
        raise wire_refusals.SCHEMA_OF_CLIENTS.error(kind=type_name(schema_type))


def type_name(schema_type: int) -> str:
    """Return the name of a type in Apache Pulsar's texts (SchemaType)."""
    return _NAMES[schema_type]
