"""A peeked message as text: its batch taken apart, decoded by its topic's schema where that is possible. Pure."""

from __future__ import annotations

import functools
import io
import json
import struct
from itertools import islice
from typing import Any, Final

from magnetar.console.avro_bounds import empty_values
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.texts import repair_texts

__all__ = ["MOST_MESSAGES", "MOST_SHOWN", "payload_text", "split_batch"]

MOST_SHOWN: Final = 4096
"""The most bytes or characters of a payload that a page shows."""
MOST_DECODED: Final = 256 << 10
"""The most bytes of a payload that is decoded by its schema."""
MOST_DEFINITION: Final = 64 << 10
"""The most bytes of a schema by which payloads are decoded."""
MOST_VALUES: Final = 300_000
"""The most values that an Avro payload may decode to."""
_NUMBERS: Final = {
    "BOOLEAN": ">?",
    "INT8": ">b",
    "INT16": ">h",
    "INT32": ">i",
    "INT64": ">q",
    "FLOAT": ">f",
    "DOUBLE": ">d",
}
"""Schema types whose values are big-endian numbers (Pulsar's client library)."""
MOST_MESSAGES: Final = 100
"""The most messages of a batch that a page shows."""


def payload_text(payload: bytes, schema_type: str = "NONE", definition: str = "") -> tuple[str, str]:
    """(kind of the text, text).

    The first part is the schema type for a value decoded by it, ``text`` for printable UTF-8, else ``hex``; a payload
    that does not fit its schema is shown as text or hex. definition: the schema's JSON, for AVRO.
    """
    decoded = _by_schema(payload, schema_type, definition) if len(payload) <= MOST_DECODED else None
    if decoded is not None:
        return schema_type, _cut(decoded)
    try:
        text = payload[: 4 * MOST_SHOWN].decode("utf-8", "strict" if len(payload) <= 4 * MOST_SHOWN else "ignore")
    except UnicodeDecodeError:
        return "hex", _hex(payload)
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        return "text", _cut(text)
    return "hex", _hex(payload)


def _by_schema(payload: bytes, schema_type: str, definition: str) -> str | None:
    try:
        if schema_type in _NUMBERS:
            return str(struct.unpack(_NUMBERS[schema_type], payload)[0])
        if schema_type == "JSON":
            return _indented(json.loads(payload))
        if schema_type == "AVRO":
            return _indented(_avro(payload, definition))
        if schema_type == "STRING":
            return payload.decode("utf-8")
    except Exception:  # noqa: BLE001 - a producer without schema may have sent anything
        return None
    return None


def _indented(value: Any) -> str:
    """Return the JSON text up to the shown length: indentation may make deep values a thousand times longer."""
    parts, length = [], 0
    for part in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
        parts.append(part)
        length += len(part)
        if length > MOST_SHOWN:
            break
    return "".join(parts)


def _avro(payload: bytes, definition: str) -> Any:
    from fastavro import schemaless_reader  # noqa: PLC0415 - the extra [avro]; without it Avro is hex

    schema, empty = _schema(definition)
    if (len(payload) + 1) * (1 + empty) > MOST_VALUES:
        raise ValueError("the payload may hold too many values")
    stream = io.BytesIO(payload)
    value = schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("the value ends before the payload")
    return value


@functools.lru_cache(maxsize=4)
def _schema(definition: str) -> tuple[Any, int]:
    """The schema for fastavro, and its bound of values without bytes (`avro_bounds.empty_values`)."""
    from fastavro import parse_schema  # noqa: PLC0415 - as above

    if len(definition) > MOST_DEFINITION:
        raise ValueError("the schema is large")
    found = json.loads(definition)
    return parse_schema(found), empty_values(found)


def _hex(payload: bytes) -> str:
    return _cut(payload[: MOST_SHOWN // 2].hex(" ", 4)) + (" ..." if len(payload) > MOST_SHOWN // 2 else "")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + " ..."


def split_batch(payload: bytes, count: int) -> list[tuple[list[tuple[str, str]], bytes]] | None:
    """(properties and key, payload) of each message; None for a payload that is no batch of `count` messages."""
    if count <= 0:
        return None
    metadata = pb.MessageMetadata(producer_name="", sequence_id=0, publish_time=0, num_messages_in_batch=count)
    try:
        return [
            (_own(each.metadata), bytes(each.payload)) for each in islice(walk_batch(metadata, payload), MOST_MESSAGES)
        ]
    except ProtocolError:
        return None


def _own(metadata: pb.SingleMessageMetadata) -> list[tuple[str, str]]:
    repair_texts(metadata)
    out = [("key", metadata.partition_key)] if metadata.HasField("partition_key") else []
    return out + [(f"property {pair.key}", pair.value) for pair in metadata.properties]
