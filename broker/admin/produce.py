r"""Produce over REST (PIP-64): POST /topics/{domain}/{tenant}/{namespace}/{topic}[/partitions/{partition}].

The body is that of Apache Pulsar 4.2 (ProducerMessages). `schemaVersion` names a stored schema; without it the broker
finds or adds the schema of `valueSchema` (with `keySchema`: a KEY_VALUE schema whose key is the message key). Without
schemas, payloads are STRING:

    {"producerName": "me", "valueSchema": "{\"type\": \"INT32\", \"schema\": \"\"}", "messages": [{"payload": "5"}]}

Each message is an entry of its own, durable before the answer. The messages of a request go to the partitions in turn,
beginning with the first partition, whatever their keys. The answer has one result per message, in order; errorCode 2:
the broker did not store the message; status 500: the broker stored none. Deduplication and publish rates do not apply.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.message_texts import PayloadTextError, compact, encoder, parts_of
from magnetar.broker.admin.produce_body import ProduceBody, ProducerMessage, ProducerMessages, produce_body
from magnetar.broker.admin.responses import JSON, json_response
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.admin.schema_texts import type_named
from magnetar.broker.auth.table import TOPIC_PRODUCE
from magnetar.broker.compat import java_numbers, rest_refusals
from magnetar.broker.compat.jackson_body import decode_body
from magnetar.broker.compat.jetty_http import media_type
from magnetar.broker.errors import BrokerError, ForeignNamespaceError, RestError
from magnetar.broker.schemas.schema_store import StoredSchema
from magnetar.broker.schemas.work import INLINE_BYTES, SchemaWork
from magnetar.broker.slices import sliced
from magnetar.converters.entry import build_entry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.message_id import signed
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
TOPIC: Final = "/topics/{domain:domain}/{tenant}/{namespace}/{topic}"
_MAX_WALKED_CHARACTERS: Final = 1 << 20  # of texts in JSON or in Avro's JSON
_FAILED: Final = 2  # errorCode of a message that was not stored
_UNSIGNED: Final = (1 << 64) - 1


class SchemaText(msgspec.Struct):
    """A schema in the body."""

    type: str | None = None
    schema: str | None = None
    name: str | None = None
    properties: dict[str, str] | None = None

    def definition(self) -> bytes:
        """The definition, empty for most types. Raises 500 without a definition, as Apache Pulsar does."""
        if self.schema is None:
            raise RestError(500, "a schema has a definition, which may be empty")
        try:
            return base64.b64decode(self.schema, validate=True)
        except binascii.Error as e:
            raise RestError(500, f"the definition of a schema is base64: {e}") from e


class Codec(NamedTuple):
    """Converts the texts of a request to bytes; `key` is None when a key stays a text.

    walks: whether the conversion parses the texts, which takes long for a large text.
    """

    version: int
    payload: Callable[[str], bytes]
    key: Callable[[str], bytes] | None = None
    walks: bool = False


@routes.post(TOPIC, TOPIC_PRODUCE, most_body=None)
async def produce(call: Call) -> Response:
    body = await _body(call)
    name = _topic(call)
    count = call.topics.partition_count(name)
    parts = [name] if count is None else [name.partition_name(i) for i in range(count)]
    async for some in sliced(parts):
        if not all(_is_there(call, part) for part in some):
            raise rest_refusals.TOPIC_OF_PRODUCE_UNKNOWN.error(topic=name)
    return await _published(call, body, parts)


@routes.post(TOPIC + "/partitions/{partition}", TOPIC_PRODUCE, most_body=None)
async def produce_to_partition(call: Call) -> Response:
    """Produce to one partition, or with -1 to a plain topic. A missing partition is an error of each message."""
    partition = call.number("partition", bits=32)
    body = await _body(call)
    name = _topic(call)
    if name.is_partition:
        raise rest_refusals.TOPIC_NAME_OF_PARTITION.error()
    if call.topics.partition_count(name) is None and not call.topics.exists(name):
        raise rest_refusals.TOPIC_OF_PRODUCE_UNKNOWN.error(topic=name)
    part = name if partition == -1 else name.partition_name(partition) if partition >= 0 else None
    if part is None or not _is_there(call, part):
        known = name if call.topics.partition_count(name) is None else name.partition_name(0)
        codec = await _codec(call, known, _required(body).head)
        why = f"{name}: there is no partition {partition}"
        results = [_result(str(partition), why) async for part in _required(body).slices() for _ in part]
        return json_response({"messagePublishResults": results, "schemaVersion": codec.version})
    return await _published(call, body, [part])


def _topic(call: Call) -> TopicName:
    name = topic_of(call.request.path_params)
    if name is None:
        raise rest_refusals.TOPIC_NAME_INVALID.error()
    if not call.namespaces.exists(name.namespace):
        raise rest_refusals.NAMESPACE_OF_PRODUCE_UNKNOWN.error()
    try:
        call.namespaces.require_local(name.namespace)
    except ForeignNamespaceError as refusal:
        raise rest_refusals.PUBLISH_FAILED.error(problem=refusal) from refusal
    return name


def _is_there(call: Call, name: TopicName) -> bool:
    """Whether the topic exists, or its first message creates it, as for a partition of a non-persistent topic."""
    count = call.topics.partition_count(name.base) if name.is_partition and not name.persistent else None
    return call.topics.exists(name) or (count is not None and name.partition < count)


async def _body(call: Call) -> ProduceBody | None:
    """The body; raises 415 for another media type than JSON, unlike the admin routes of topics."""
    raw = await call.raw_body()
    if media_type(call.request.headers.get("content-type")) not in ("", JSON) and raw:
        raise RestError(415, f"the body must be {JSON}")
    return await produce_body(raw)


def _required(body: ProduceBody | None) -> ProduceBody:
    if body is None:
        raise RestError(500, "a body is required")
    return body


async def _published(call: Call, body: ProduceBody | None, parts: list[TopicName]) -> Response:
    body = _required(body)
    codec = await _codec(call, parts[0], body.head)
    entries: list[tuple[TopicName, bytes]] = []
    refused: dict[int, str] = {}
    index = 0
    async for messages in body.slices():
        for message in messages:
            metadata = _metadata(message, body.head.producer_name or "RestProducer", call.publishing.now_ms())
            metadata.schema_version = codec.version.to_bytes(8, "big", signed=True)
            try:
                entries.append((parts[index % len(parts)], await _entry(call, metadata, message, codec)))
            except PayloadTextError as e:
                refused[index] = str(e)
            index += 1
    outcomes = iter(await call.publishing.publish(entries))
    results = []
    for at in range(index):
        partition = parts[at % len(parts)].partition
        outcome = refused[at] if at in refused else next(outcomes)
        if isinstance(outcome, (str, BrokerError)):
            results.append(_result(str(partition), str(outcome)))
        else:
            results.append(_result(f"{outcome.ledger_id}:{outcome.entry_id}:{partition}"))
    return json_response({"messagePublishResults": results, "schemaVersion": codec.version})


def _result(message_id: str, error: str | None = None) -> dict[str, object]:
    """ProducerAck: the id of the message; the partition alone for a message that the broker did not store."""
    told: dict[str, object] = {} if error is None else {"errorMsg": error}
    return told | {"messageId": message_id, "errorCode": 0 if error is None else _FAILED, "schemaVersion": 0}


def _metadata(message: ProducerMessage, producer: str, now_ms: int) -> pb.MessageMetadata:
    """Build the metadata without key and payload; raises 500 for an event time that is not a number, or for a property
    without value.
    """
    metadata = pb.MessageMetadata(
        producer_name=producer, sequence_id=message.sequence_id & _UNSIGNED, publish_time=now_ms
    )
    metadata.replicate_to.extend(["__local__"] if message.disable_replication else message.replication_clusters or ())
    for key, value in (message.properties or {}).items():
        if value is None:
            raise RestError(500, f"property {key} has no value")
        metadata.properties.add(key=key, value=value)
    event_time = _number(message.event_time) if message.event_time else None
    if event_time is not None:
        metadata.event_time = event_time & _UNSIGNED
    # As in Apache Pulsar: deliverAt needs an event time; deliverAfterMs counts from the event time on.
    if message.deliver_at and event_time is not None:
        metadata.deliver_at_time = message.deliver_at
    elif message.deliver_after_ms:
        metadata.deliver_at_time = signed(((event_time or 0) + message.deliver_after_ms) & _UNSIGNED)
    return metadata


def _number(text: str) -> int:
    try:
        return java_numbers.parsed(text)
    except ValueError as e:
        raise RestError(500, str(e)) from e


async def _entry(call: Call, metadata: pb.MessageMetadata, message: ProducerMessage, codec: Codec) -> bytes:
    """Headers and payload; raises PayloadTextError. Converts a long text that needs parsing outside the event loop."""
    size = len(message.payload or "") + len(message.key or "")
    if not codec.walks or size <= INLINE_BYTES:
        return _encoded(metadata, message, codec)
    if size > _MAX_WALKED_CHARACTERS:
        raise PayloadTextError(f"a text of a schema may have {_MAX_WALKED_CHARACTERS} characters, not {size}")
    return await call.api.schemas.examine(size, lambda _: _encoded(metadata, message, codec))


def _encoded(metadata: pb.MessageMetadata, message: ProducerMessage, codec: Codec) -> bytes:
    if message.key is not None:
        key = message.key
        metadata.partition_key = key if codec.key is None else base64.b64encode(codec.key(key)).decode()
        metadata.partition_key_b64_encoded = codec.key is not None
    payload = codec.payload(message.payload or "")
    metadata.compression = pb.NONE
    metadata.uncompressed_size = len(payload)
    return build_entry(metadata.SerializeToString(), payload)


async def _codec(call: Call, name: TopicName, body: ProducerMessages) -> Codec:
    """Find or add the schema of the request, and return its codec; raises 500 when the schema cannot be found or
    added.
    """
    try:
        if body.schema_version != -1:
            stored = await call.api.schemas.get(name, body.schema_version)
            if stored is None:
                raise RestError(500, f"there is no schema version {body.schema_version}")
        else:
            stored = await call.publishing.schema(name, _schema(name, body.key_schema, body.value_schema))
        return await call.api.schemas.examine(len(stored.data), lambda work: _codec_of(stored, work))
    except (BrokerError, ValueError) as e:
        raise rest_refusals.PUBLISH_FAILED.error(problem=e) from e


def _codec_of(schema: StoredSchema, work: SchemaWork) -> Codec:
    walked = (pb.Schema.Avro, pb.Schema.Json)
    if schema.type != pb.Schema.KeyValue:
        return Codec(schema.version, encoder(schema.type, schema.data, work), walks=schema.type in walked)
    key, value = parts_of(schema.data)
    kinds = [type_named(schema.properties.get(f"{part}.schema.type", "BYTES")) for part in ("key", "value")]
    none = pb.Schema.Type.Value("None")
    encoders = encoder(kinds[1] or none, value, work), encoder(kinds[0] or none, key, work)
    return Codec(schema.version, *encoders, walks=not set(walked).isdisjoint(kinds))


def _schema(name: TopicName, key_text: str | None, value_text: str | None) -> pb.Schema:
    value = _parsed(value_text) if value_text else SchemaText("STRING", "", "String", {"__charset": "UTF-8"})
    if not key_text:
        return _proto(str(name.base), _type(value), value.definition(), value.properties or {})
    key = _parsed(key_text)
    properties = {"kv.encoding.type": "SEPARATED"}
    data = b""
    for part, schema in (("key", key), ("value", value)):
        _type(schema)
        properties[f"{part}.schema.name"] = schema.name or schema.type or ""
        properties[f"{part}.schema.type"] = schema.type or ""
        properties[f"{part}.schema.properties"] = compact(schema.properties or {})
        data += len(schema.definition()).to_bytes(4, "big") + schema.definition()
    return _proto(str(name.base), pb.Schema.KeyValue, data, properties)


def _parsed(text: str) -> SchemaText:
    try:
        found = decode_body(text.encode(), SchemaText)
    except msgspec.DecodeError as e:
        raise RestError(500, f"a schema is a JSON object: {e}") from e
    if found is None:
        raise RestError(500, "a schema is a JSON object")
    return found


def _type(schema: SchemaText) -> int:
    kind = schema.type or ""
    found = pb.Schema.Type.Value("None") if kind == "BYTES" else type_named(kind)
    if found is None or kind.startswith("AUTO"):
        raise RestError(500, f"there is no schema type {kind}")
    return found


def _proto(name: str, schema_type: int, data: bytes, properties: dict[str, str]) -> pb.Schema:
    schema = pb.Schema(name=name, type=schema_type, schema_data=data)  # type: ignore[arg-type]
    for key, value in properties.items():
        schema.properties.add(key=key, value=value)
    return schema
