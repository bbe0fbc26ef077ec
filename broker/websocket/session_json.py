"""The JSON of sessions: decoding of clients' texts, encoding of answers. Pure.

Decoding is as loose as under Apache Pulsar (`compat/jackson_fields.py`).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import msgspec

from magnetar.broker.compat.jackson_fields import FieldError, Fields
from magnetar.broker.compat.java_texts import base64_decoded
from magnetar.broker.compat.java_times import parsed_offset_date_time
from magnetar.protocol import pulsar_api_pb2 as pb

__all__ = [
    "ConsumerCommand",
    "ConsumerText",
    "MessageTextError",
    "ProducerMessage",
    "ack_text",
    "decode_command",
    "decode_message",
    "decode_message_id",
    "encode_message_id",
    "end_of_topic_text",
    "error_text",
    "is_base64",
]

NOT_JSON: Final = 3
BAD_PAYLOAD: Final = 7
UNKNOWN: Final = 8
"""Numbers of Apache Pulsar's WebSocketError in `result` ("send-error:7")."""
_MOST_I64: Final = 1 << 63
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


class MessageTextError(ValueError):
    """A text of a producer is no valid message. `error`: the number in the answer."""

    def __init__(self, error: int, reason: str, context: str | None = None) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.context = context


class MissingValueError(ValueError):
    """A property has no value; Apache Pulsar closes the session with 1011."""


@dataclass(slots=True)
class ProducerMessage:
    """One message to publish. Times in ms; `deliver_at_ms` is absolute."""

    payload: bytes
    context: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    key: str | None = None
    replicate_to: list[str] = field(default_factory=list)
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    encryption_param: bytes = b""
    compression: int | None = None
    uncompressed_bytes: int | None = None


class ConsumerCommand(NamedTuple):
    """A command of a consumer or reader; `message_id` is the text as it came."""

    kind: str | None
    message_id: object
    permits: int | None


def decode_message(text: str, now_ms: int) -> ProducerMessage:
    """Raises MessageTextError, MissingValueError. `now_ms`: for deliverAfterMs."""
    try:
        return _message(Fields.of(text), now_ms)
    except FieldError as e:
        raise MessageTextError(NOT_JSON, str(e)) from e


def _message(fields: Fields | None, now_ms: int) -> ProducerMessage:
    if fields is None:
        raise MessageTextError(BAD_PAYLOAD, "the message is null")
    context = fields.text("context")
    found = ProducerMessage(_payload(fields, context), context)
    found.key = fields.text("key")
    found.properties = _properties(fields)
    found.replicate_to = fields.texts("replicationClusters")
    at, after = fields.number("deliverAt"), fields.number("deliverAfterMs")
    if at > 0:
        found.deliver_at_ms = at
    if after > 0:
        found.deliver_at_ms = min(now_ms + after, _MOST_I64 - 1)
    event_time = fields.text("eventTime")
    if event_time is not None:
        found.event_time_ms = _time_ms(event_time, context)
    param = fields.text("encryptionParam")
    if param and param.strip():
        found.encryption_param = _base64(param, context)
    codec = fields.text("compressionType")
    if codec is not None and codec in pb.CompressionType.keys():  # noqa: SIM118 - an enum wrapper is no mapping
        found.compression = pb.CompressionType.Value(codec)  # as in Apache Pulsar, any other text is no codec
    if fields.value("uncompressedMessageSize") is not None:
        found.uncompressed_bytes = fields.number("uncompressedMessageSize")
    return found


def decode_command(text: str) -> ConsumerCommand | None:
    """Decode a command; None for JSON's null. Raises MessageTextError."""
    try:
        fields = Fields.of(text)
        if fields is None:
            return None
        permits = None if fields.value("permitMessages") is None else fields.number("permitMessages")
        return ConsumerCommand(fields.text("type"), fields.value("messageId"), permits)
    except FieldError as e:
        raise MessageTextError(NOT_JSON, str(e)) from e


def decode_message_id(text: object) -> pb.MessageIdData:
    """Decode the base64 text of a message id. Raises ValueError when the text holds no complete message id."""
    if not isinstance(text, str):
        raise ValueError("messageId is no text")  # noqa: TRY004 - one error for all that a peer may send
    data = base64.b64decode(text, validate=True)
    try:
        found = pb.MessageIdData.FromString(data)
    except Exception as e:
        raise ValueError("messageId is no message id") from e
    if not found.IsInitialized():
        raise ValueError("messageId lacks ledger or entry")
    return found


def is_base64(text: str) -> bool:
    """Whether the text decodes without its last bits: a single character is no byte."""
    return not set(text) - _BASE64 and len(text.rstrip("=")) % 4 != 1


def encode_message_id(message_id: pb.MessageIdData) -> str:
    return base64.b64encode(message_id.SerializeToString()).decode()


class _Ack(msgspec.Struct, omit_defaults=True, rename="camel"):
    result: str
    error_msg: str | None = None
    message_id: str | None = None
    context: str | None = None


class ConsumerText(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One message for a consumer or reader; its JSON names are in Apache Pulsar's order."""

    message_id: str
    payload: str
    properties: dict[str, str]
    publish_time: str
    redelivery_count: int
    event_time: str | None = None
    encryption_context: dict[str, Any] | None = None
    key: str | None = None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


_TAIL: Final = b',"errorCode":0,"schemaVersion":0}'


def ack_text(message_id: pb.MessageIdData, context: str | None) -> bytes:
    """Return the answer to a stored message."""
    ack = _Ack("ok", message_id=encode_message_id(message_id), context=context)
    return msgspec.json.encode(ack)[:-1] + _TAIL


def error_text(error: int, reason: str, context: str | None) -> bytes:
    """Return the answer to a message that could not be stored."""
    return msgspec.json.encode(_Ack(f"send-error:{error}", error_msg=reason, context=context))[:-1] + _TAIL


def end_of_topic_text(*, ended: bool) -> bytes:
    return b'{"endOfTopic":true}' if ended else b'{"endOfTopic":false}'


def _properties(fields: Fields) -> dict[str, str]:
    found = fields.map_of_texts("properties")
    if None in found.values():
        key = next(key for key, value in found.items() if value is None)
        raise MissingValueError(f"Need Non-Null value for key: {key}"[:100])
    return cast("dict[str, str]", found)


def _payload(fields: Fields, context: str | None) -> bytes:
    payload = fields.text("payload")
    if payload is None:
        raise MessageTextError(BAD_PAYLOAD, "payload is missing", context)
    return _base64(payload, context)


def _base64(text: str, context: str | None) -> bytes:
    try:
        return base64_decoded(text)
    except ValueError as e:
        raise MessageTextError(BAD_PAYLOAD, f"Invalid Base64 message-payload error={e}", context) from e


def _time_ms(text: str, context: str | None) -> int:
    try:
        return parsed_offset_date_time(text)
    except (ValueError, OverflowError) as e:
        raise MessageTextError(BAD_PAYLOAD, str(e), context) from e
