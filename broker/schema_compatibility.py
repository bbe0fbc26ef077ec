"""Whether a new schema fits those a topic has: Pulsar's strategies over Avro's resolution rules.

Strategies (SchemaCompatibilityStrategy): which direction is asked, and of the latest version or (TRANSITIVE) of all.
BACKWARD: the new schema reads data written with the old. FORWARD: the old reads data written with the new. FULL: both.
Avro, JSON and Protobuf schemas (all described by Avro records in Pulsar) are parsed by fastavro and
compared by `avro_resolution`; other types must be the same type.
"""

from __future__ import annotations

import enum
import json
from typing import Any

from magnetar.broker.avro_resolution import can_read
from magnetar.broker.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.protocol import pulsar_api_pb2 as pb

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
        getattr(pb.Schema, "None"),
    }
)
_AVRO_TYPES = frozenset({pb.Schema.Avro, pb.Schema.Json, pb.Schema.Protobuf})


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
    def backward(self) -> bool:
        """The new schema has to read what was written with the old."""
        return self.value.startswith(("BACKWARD", "FULL")) or self is Strategy.UNDEFINED

    @property
    def forward(self) -> bool:
        """The old schemas have to read what is written with the new."""
        return self.value.startswith(("FORWARD", "FULL")) or self is Strategy.UNDEFINED

    def for_consumer(self) -> Strategy:
        """A consumer has to read what is there: only that direction is asked of its schema."""
        if self in (Strategy.ALWAYS_COMPATIBLE, Strategy.ALWAYS_INCOMPATIBLE):
            return Strategy.ALWAYS_COMPATIBLE if self is Strategy.ALWAYS_COMPATIBLE else Strategy.BACKWARD
        return Strategy.BACKWARD_TRANSITIVE if self.transitive else Strategy.BACKWARD


def check_compatible(schema_type: int, data: bytes, existing: list[tuple[int, bytes]], strategy: Strategy) -> None:
    """Return when the schema fits, raise IncompatibleSchemaError with the reason when it does not.

    `existing` is (type, data) of the topic's versions, oldest first; the latest alone counts unless transitive.
    Raises: InvalidSchemaError when the definition itself does not parse.
    """
    for part_type, part in _parts(schema_type, data):
        _parse(part_type, part)
    if not existing or strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        raise IncompatibleSchemaError("schema compatibility strategy is ALWAYS_INCOMPATIBLE")
    for old_type, old_data in existing if strategy.transitive else existing[-1:]:
        _check_type(schema_type, old_type)
        for (new_part_type, new_part), (old_part_type, old_part) in zip(
            _parts(schema_type, data), _parts(old_type, old_data), strict=True
        ):
            _check_type(new_part_type, old_part_type)
            _check_part(new_part_type, new_part, old_part, strategy)


def _check_type(new: int, old: int) -> None:
    if new != old:
        raise IncompatibleSchemaError(
            f"Incompatible schema: exists schema type {_type_name(old)}, new schema type {_type_name(new)}"
        )


def _check_part(schema_type: int, data: bytes, old_data: bytes, strategy: Strategy) -> None:
    if schema_type not in _AVRO_TYPES:
        return
    new, old = _parse(schema_type, data), _parse(schema_type, old_data)
    if strategy.backward and (reason := can_read(reader=new, writer=old)):
        raise IncompatibleSchemaError(f"the new schema cannot read what was written with the existing: {reason}")
    if strategy.forward and (reason := can_read(reader=old, writer=new)):
        raise IncompatibleSchemaError(f"the existing schema cannot read what is written with the new: {reason}")


def same_definition(schema_type: int, one: bytes, other: bytes) -> bool:
    """Whether two definitions of a type mean the same: Avro texts as JSON values, everything else byte for byte."""
    if one == other or schema_type not in _AVRO_TYPES:
        return one == other or schema_type in _PRIMITIVE_TYPES
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _parts(schema_type: int, data: bytes) -> list[tuple[int, bytes]]:
    """The schemas a schema is made of: key and value of a KeyValue, itself otherwise.

    A KeyValue's data is ``u32 size | key schema | u32 size | value schema`` (size -1: empty). The types of the parts
    stand in
    properties; a part that is a JSON record is compared as one.
    """
    if schema_type != pb.Schema.KeyValue:
        return [(schema_type, data)]
    parts: list[tuple[int, bytes]] = []
    at = 0
    for _ in range(2):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        end = at + 4 + max(size, 0)
        if len(data) < at + 4 or len(data) < end:
            raise InvalidSchemaError("Invalid schema definition data for KEY_VALUE schema")
        part = data[at + 4 : end]
        parts.append((pb.Schema.Avro if part[:1] in (b"{", b"[") else pb.Schema.String, part))
        at = end
    return parts


def _parse(schema_type: int, data: bytes) -> Any:
    """The Avro schema in `data` as JSON values, None for a type not described by one; raises InvalidSchemaError."""
    if schema_type not in _AVRO_TYPES:
        return None
    import fastavro.schema  # noqa: PLC0415 - start-up budget: only topics with schemas pay for it

    try:
        schema = json.loads(data)
        fastavro.schema.parse_schema(schema)
        _require_fields(schema)
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as e:
        raise InvalidSchemaError(f"Invalid schema definition data for {_type_name(schema_type)} schema: {e}") from e
    return schema


def _require_fields(schema: Any) -> None:
    """A record without fields is none; fastavro lets it pass."""
    parts = schema if isinstance(schema, list) else list(schema.values()) if isinstance(schema, dict) else []
    if isinstance(schema, dict) and schema.get("type") == "record" and not isinstance(schema.get("fields"), list):
        raise ValueError(f"record {schema.get('name')} has no fields")
    for part in parts:
        _require_fields(part)


def _type_name(schema_type: int) -> str:
    return pb.Schema.Type.Name(schema_type).upper()
