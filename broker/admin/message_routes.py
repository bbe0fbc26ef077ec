"""Single messages: peek, read by position, find by time. The body of an answer is the payload; the rest is in headers.

Message converters apply as for consumers; `X-Magnetar-Conversion` names the converter. `?raw=true` returns the stored
bytes.
"""

import asyncio
import base64
import json
import re
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import JSON, json_response
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import loadable, shown_position, single_topic, topic_unloadable
from magnetar.broker.auth.table import TOPIC_CONSUME
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.java_order import collected_order
from magnetar.broker.compat.java_times import instant
from magnetar.broker.errors import BrokerError, RestError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import CompressionError, TooManyPartsError
from magnetar.protocol.message_id import signed
from magnetar.protocol.metadata import metadata_bytes, parse_entry_metadata, split_entry
from magnetar.protocol.texts import repair_texts

if TYPE_CHECKING:
    from magnetar.broker.admin.api import Start, StoredMessage
    from magnetar.protocol.topic_name import TopicName


routes = RouteTable()
MOST_PLAIN_BYTES: Final = 16 * 1024 * 1024
"""Largest decompressed payload; a larger payload is shown only as stored (?raw=true)."""
MOST_METADATA_BYTES: Final = 64 * 1024
"""Largest metadata that is shown in headers: HTTP clients do not accept more."""
_BEYOND_LATIN_1: Final = re.compile(r"[^\x00-\xff]")
_ESCAPED_BY_GSON: Final = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&='"})
"""Letters of texts that Apache Pulsar's library of JSON escapes for pages of HTML."""
_NOT_IN_HEADERS: Final = re.compile(r"[^\t\x20-\xff]")
_OF_FIELDS: Final = {
    "chunk_id": "X-Pulsar-chunk-id",
    "encryption_algo": "X-Pulsar-encryption-algo",
    "encryption_param": "X-Pulsar-Base64-encryption-param",
    "highest_sequence_id": "X-Pulsar-highest-sequence-id",
    "marker_type": "X-Pulsar-marker-type",
    "null_partition_key": "X-Pulsar-null-partition-key",
    "null_value": "X-Pulsar-null-value",
    "num_chunks_from_msg": "X-Pulsar-num-chunks-from-msg",
    "ordering_key": "X-Pulsar-Base64-ordering-key",
    "partition_key_b64_encoded": "X-Pulsar-partition-key-b64-encoded",
    "schema_version": "X-Pulsar-Base64-schema-version",
    "total_chunk_msg_size": "X-Pulsar-total-chunk-msg-size",
    "txnid_least_bits": "X-Pulsar-txnid-least-bits",
    "txnid_most_bits": "X-Pulsar-txnid-most-bits",
    "uuid": "X-Pulsar-uuid",
}


@routes.get(TOPIC + "/subscription/{subscription}/position/{number}", TOPIC_CONSUME)
async def peek(call: Call) -> Response:
    number = call.number("number", bits=32)
    name = call.topic_name()
    if not name.persistent and name.is_partition and not loadable(call, name):
        raise topic_unloadable(call, name)
    name = single_topic(call, rest_refusals.NO_PEEK_OF_PARTITIONED.error())
    _require_persistent(name, rest_refusals.NO_PEEK_OF_NON_PERSISTENT.error())
    message = await call.subscriptions.peek(name, call.param("subscription"), number)
    if number <= 0:
        raise RestError(500, "the position of a message is counted from 1")
    if message is None:
        raise rest_refusals.MESSAGE_UNKNOWN.error()
    return await _shown(call, name, message)


@routes.get(TOPIC + "/ledger/{ledger}/entry/{entry}", TOPIC_CONSUME)
async def by_position(call: Call) -> Response:
    ledger, entry = call.number("ledger"), call.number("entry")
    name = single_topic(call, rest_refusals.NO_MESSAGE_OF_PARTITIONED.error())
    if not name.persistent:
        raise RestError(500, f"{name}: a non-persistent topic keeps no messages")
    message = await call.logs.read_message(name, ledger, entry)
    if message is None:
        if await call.logs.has_ledger(name, ledger):
            raise RestError(500, "the ledger has no such entry")
        raise rest_refusals.MESSAGE_ID_UNKNOWN.error()
    return await _shown(call, name, message)


@routes.get(TOPIC + "/examinemessage", TOPIC_CONSUME)
async def examine(call: Call) -> Response:
    """Show an entry: ?initialPosition=earliest|latest (default latest), ?messagePosition=n, counted from 1."""
    start, number = call.query("initialPosition") or "latest", call.query_number("messagePosition") or 1
    name = single_topic(call, rest_refusals.NO_EXAMINATION_OF_PARTITIONED.error())
    _require_persistent(name, rest_refusals.NO_EXAMINATION_OF_NON_PERSISTENT.error())
    end: Start = "earliest" if start == "earliest" else "latest"
    try:
        message = await call.logs.examine_message(name, end, max(1, number))
    except BrokerError as e:
        raise RestError(500, str(e)) from e
    if message is None:
        raise rest_refusals.NO_MESSAGES_TO_EXAMINE.error()
    return await _shown(call, name, message)


@routes.get(TOPIC + "/messageid/{timestamp}", TOPIC_CONSUME)
async def at_time(call: Call) -> Response:
    timestamp_ms = call.number("timestamp")
    name = single_topic(call, rest_refusals.NO_TIME_OF_PARTITIONED.error())
    _require_persistent(name, rest_refusals.NO_TIME_OF_NON_PERSISTENT.error())
    if timestamp_ms < 0:
        raise RestError(500, "there is no time before 1970")
    if timestamp_ms == 0:  # before all messages
        return json_response(shown_position(MessagePosition(-1, -1, name.partition)))
    return json_response(shown_position(await call.logs.message_at_time(name, timestamp_ms)))


@routes.get(TOPIC + "/lastMessageId", TOPIC_CONSUME)
async def last(call: Call) -> Response:
    name = call.topic_name()
    if not loadable(call, name):
        raise topic_unloadable(call, name)
    call.namespaces.require_local(name.namespace)
    _require_persistent(name, rest_refusals.NO_LAST_MESSAGE_OF_NON_PERSISTENT.error())
    return json_response(shown_position(await call.logs.last_message(name)))


def _require_persistent(name: "TopicName", refusal: RestError) -> None:
    if not name.persistent:
        raise refusal


async def _shown(call: Call, name: "TopicName", message: "StoredMessage") -> Response:
    """The answer with the message; `?raw=true`: without conversion and decompression."""
    raw = call.flag("raw")
    shown = message if raw else await call.logs.as_delivered(name, message)
    size = metadata_bytes(shown.entry)
    if size > MOST_METADATA_BYTES:
        raise RestError(500, f"the metadata has {size} bytes, more than the {MOST_METADATA_BYTES} of all headers")
    metadata, payload = split_entry(shown.entry)
    if metadata is not None:
        _repair(metadata)
    if not raw and metadata is not None:
        payload = await _plain(metadata, payload)
    return _message_response(shown, metadata, payload)


def _repair(metadata: pb.MessageMetadata) -> None:
    """Repair texts of the metadata that are not UTF-8. Raises RestError for very many texts."""
    try:
        repair_texts(metadata)
    except TooManyPartsError as e:
        raise RestError(500, f"the metadata {e}") from e


async def _plain(metadata: pb.MessageMetadata, payload: memoryview) -> memoryview:
    """The payload, decompressed in a thread; an encrypted payload as stored.

    Raises: RestError for a damaged payload, or for a payload of more than MOST_PLAIN_BYTES.
    """
    if metadata.compression == pb.NONE or metadata.encryption_keys:
        return payload
    if metadata.uncompressed_size > MOST_PLAIN_BYTES:
        text = f"the payload has {metadata.uncompressed_size} bytes without compression, more than {MOST_PLAIN_BYTES}"
        raise RestError(500, f"{text}: with ?raw=true it is shown as it is stored")
    try:
        plain = await asyncio.to_thread(decompress, metadata.compression, payload, metadata.uncompressed_size)
    except CompressionError as e:
        raise RestError(500, f"the payload is damaged: {e}; with ?raw=true it is shown as it is stored") from e
    return memoryview(plain)


def _message_response(message: "StoredMessage", metadata: pb.MessageMetadata | None, payload: memoryview) -> Response:
    headers = {"X-Pulsar-Message-ID": f"{message.position.ledger_id}:{message.position.entry_id}"}
    if message.conversion:
        headers["X-Magnetar-Conversion"] = message.conversion
    if metadata is not None:
        headers |= _metadata_headers(metadata, len(message.entry)) | option_headers(metadata)
    stored = parse_entry_metadata(message.entry)
    if stored is not None and stored.HasField("broker_timestamp"):
        headers["X-Pulsar-Broker-Entry-METADATA-timestamp"] = instant(stored.broker_timestamp)
    if stored is not None and stored.HasField("index"):
        headers["X-Pulsar-Broker-Entry-METADATA-index"] = str(stored.index)
    answer = Response(bytes(payload), media_type=JSON)
    for name, value in (*headers.items(), *(() if metadata is None else list_headers(metadata))):
        answer.raw_headers.append((name.encode("latin-1"), _header_value(value)))  # keeps the case of the name
    return answer


def _metadata_headers(metadata: pb.MessageMetadata, entry_bytes: int) -> dict[str, str]:
    """The headers by which Pulsar's REST describes a message; absent fields have no header."""
    headers = {"X-Pulsar-publish-time": instant(metadata.publish_time)}
    if metadata.event_time:
        headers["X-Pulsar-event-time"] = instant(metadata.event_time)
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(entry_bytes - metadata.ByteSize())
    properties = {each.key: each.value for each in metadata.properties}
    ordered = {key: properties[key] for key in collected_order(properties)}
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).translate(_ESCAPED_BY_GSON)
    headers["X-Pulsar-PROPERTY"] = _BEYOND_LATIN_1.sub(lambda found: json.dumps(found[0])[1:-1], text)
    headers["X-Pulsar-producer-name"] = metadata.producer_name
    headers["X-Pulsar-sequence-id"] = str(signed(metadata.sequence_id))
    for field, header in (
        ("partition_key", "X-Pulsar-partition-key"),
        ("replicated_from", "X-Pulsar-replicated-from"),
        ("uncompressed_size", "X-Pulsar-uncompressed-size"),
    ):
        if metadata.HasField(field):
            headers[header] = str(getattr(metadata, field))
    if metadata.HasField("deliver_at_time"):
        headers["X-Pulsar-deliver-at-time"] = instant(metadata.deliver_at_time)
    if metadata.HasField("compression"):
        headers["X-Pulsar-compression"] = pb.CompressionType.Name(metadata.compression)
    return headers


def _header_value(value: str) -> bytes:
    """The value in Latin-1; as in Apache Pulsar, a space replaces each other letter and each control character."""
    return _NOT_IN_HEADERS.sub(" ", value).strip().encode("latin-1")


def option_headers(metadata: pb.MessageMetadata) -> dict[str, str]:
    """The headers of encryption, chunks, keys and schema; absent fields have no header."""
    headers = {"X-Pulsar-Is-Encrypted": _text(bool(metadata.encryption_keys)), "X-Pulsar-txn-uncommitted": "false"}
    if metadata.HasField("txnid_least_bits") and metadata.HasField("txnid_most_bits"):
        headers["X-Pulsar-txn-aborted"] = "false"
    if metadata.HasField("chunk_id"):
        headers["X-Pulsar-PROPERTY-CHUNK-ID"] = str(metadata.chunk_id)
        headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] = str(metadata.num_chunks_from_msg)
    found = {header: _text(getattr(metadata, name)) for name, header in _OF_FIELDS.items() if metadata.HasField(name)}
    return headers | found


def list_headers(metadata: pb.MessageMetadata) -> list[tuple[str, str]]:
    """One header for each encryption key, and one for each cluster that the message is replicated to."""
    keys = [("X-Pulsar-Base64-encryption-keys", _text(each.SerializeToString())) for each in metadata.encryption_keys]
    return [*keys, *(("X-Pulsar-replicated-to", each) for each in metadata.replicate_to)]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
