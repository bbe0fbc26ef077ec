"""The decoder for the schema of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.pipeline.errors import SchemaError
from magnetar.pipeline.values.avro_values import AvroValues
from magnetar.pipeline.values.interface import BytesValues
from magnetar.pipeline.values.json_values import JsonValues
from magnetar.pipeline.values.key_values import KeyValueValues
from magnetar.pipeline.values.primitives import PRIMITIVES, FixedWidthValues, StringValues
from magnetar.pipeline.values.protobuf_values import ProtobufValues

if TYPE_CHECKING:
    from magnetar.pipeline.values.interface import ValueDecoder
    from magnetar.pipeline.values.topic_schema import SchemaVersions, TopicSchema

AS_BYTES = frozenset(("NONE", "BYTES", "PROTOBUF", "AUTO_CONSUME", "AUTO_PUBLISH", "AUTO", "EXTERNAL"))
"""Types read as bytes. PROTOBUF among them: its schema is an Avro text that does not tell the fields' numbers."""


def _no_versions(_: int) -> TopicSchema | None:
    return None


def value_decoder(schema: TopicSchema | None, versions: SchemaVersions = _no_versions) -> ValueDecoder:
    """The decoder to the columns of `schema`, the reader's (the topic's latest, or any other); None: bytes.

    Args:  versions: gives the schemas that older rows were written under; see `topic_schema.SchemaVersions`.
    Raises SchemaError for a schema that has no form as columns, saying why.
    """
    kind = "NONE" if schema is None else schema.type.upper()
    if schema is None or kind in AS_BYTES:
        return BytesValues()
    if kind in PRIMITIVES:
        return FixedWidthValues(kind)
    if kind == "STRING":
        return StringValues()
    if kind == "AVRO":
        return AvroValues(schema, versions)
    if kind == "JSON":
        return JsonValues(schema)
    if kind == "PROTOBUF_NATIVE":
        return ProtobufValues(schema)
    if kind == "KEY_VALUE":
        return _key_value(schema, versions)
    raise SchemaError(f"schema type {schema.type} is not known; read with valueMode=bytes")


def _key_value(schema: TopicSchema, versions: SchemaVersions) -> KeyValueValues:
    def part_versions(part: int) -> SchemaVersions:
        def of_part(version: int) -> TopicSchema | None:
            found = versions(version)
            return None if found is None else found.key_and_value()[part]

        return of_part

    parts = [value_decoder(part, part_versions(k)) for k, part in enumerate(schema.key_and_value())]
    return KeyValueValues(parts[0], parts[1], separated=schema.is_separated)
