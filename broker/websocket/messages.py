"""The JSON of sessions: decoding of clients' texts, encoding of answers. Pure.

Decoding is as loose as Jackson under Apache Pulsar: unknown names and bytes behind the object are ignored, numbers and
booleans stand for texts.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

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
    "format_time",
]

NOT_JSON: Final = 3
BAD_PAYLOAD: Final = 7
UNKNOWN: Final = 8
"""Numbers of WebSocketError in `result` ("send-error:7")."""
_MOST_I64: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DECODER: Final = json.JSONDecoder()


class MessageTextError(ValueError):
    """A message of a producer that cannot be published: `error` is the number in the answer."""

    def __init__(self, error: int, reason: str, context: str | None = None) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.context = context


class MissingValueError(ValueError):
    """A property without a value; Apache Pulsar closes the session with 1011."""


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
    fields = _object(text)
    if fields is None:
        raise MessageTextError(BAD_PAYLOAD, "the message is null")
    context = _text(fields, "context")
    found = ProducerMessage(_payload(fields, context), context)
    found.key = _text(fields, "key")
    found.properties = _properties(fields)
    found.replicate_to = _texts(fields, "replicationClusters")
    at, after = _number(fields, "deliverAt"), _number(fields, "deliverAfterMs")
    if at > 0:
        found.deliver_at_ms = at
    if after > 0:
        found.deliver_at_ms = min(now_ms + after, _MOST_I64 - 1)
    event_time = _text(fields, "eventTime")
    if event_time is not None:
        found.event_time_ms = _time_ms(event_time, context)
    param = _text(fields, "encryptionParam")
    if param and param.strip():
        found.encryption_param = _base64(param, context)
    codec = _text(fields, "compressionType")
    if codec is not None:
        if codec not in pb.CompressionType.keys():  # noqa: SIM118 - an enum wrapper is no mapping
            raise MessageTextError(NOT_JSON, f"there is no compressionType {codec[:20]}")
        found.compression = pb.CompressionType.Value(codec)
    if fields.get("uncompressedMessageSize") is not None:
        found.uncompressed_bytes = _number(fields, "uncompressedMessageSize")
    return found


def decode_command(text: str) -> ConsumerCommand | None:
    """Decode a command; None for JSON's null. Raises MessageTextError."""
    fields = _object(text)
    if fields is None:
        return None
    permits = fields.get("permitMessages")
    return ConsumerCommand(
        _text(fields, "type"), fields.get("messageId"), None if permits is None else _number(fields, "permitMessages")
    )


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


def encode_message_id(message_id: pb.MessageIdData) -> str:
    return base64.b64encode(message_id.SerializeToString()).decode()


def format_time(time_ms: int) -> str:
    """Java's ISO_OFFSET_DATE_TIME in UTC: the fraction without zeros at its end."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    whole = f"{moment:%Y-%m-%dT%H:%M:%S}"
    fraction = f"{moment.microsecond // 1000:03}".rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


class _Ack(msgspec.Struct, omit_defaults=True, rename="camel"):
    result: str
    error_msg: str | None = None
    message_id: str | None = None
    context: str | None = None


class ConsumerText(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One message for a consumer or reader, in Apache Pulsar's order of names."""

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
    """The answer to a message that is stored."""
    ack = _Ack("ok", message_id=encode_message_id(message_id), context=context)
    return msgspec.json.encode(ack)[:-1] + _TAIL


def error_text(error: int, reason: str, context: str | None) -> bytes:
    """The answer to a message that is not."""
    return msgspec.json.encode(_Ack(f"send-error:{error}", error_msg=reason, context=context))[:-1] + _TAIL


def end_of_topic_text(*, ended: bool) -> bytes:
    return b'{"endOfTopic":true}' if ended else b'{"endOfTopic":false}'


def _object(text: str) -> dict[str, Any] | None:
    try:
        found, _ = _DECODER.raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError) as e:
        raise MessageTextError(NOT_JSON, f"the message is no JSON object: {e}"[:200]) from e
    if found is not None and not isinstance(found, dict):
        raise MessageTextError(NOT_JSON, "the message is no JSON object")
    return found


def _whole(text: str) -> str:
    """Return the text without lone surrogates, which JSON allows and UTF-8 does not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _as_text(value: object, name: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        raise MessageTextError(NOT_JSON, f"{name} is no text")
    return _whole(value)


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else _as_text(value, name)


def _texts(fields: dict[str, Any], name: str) -> list[str]:
    value = fields.get(name) or []
    if not isinstance(value, list):
        raise MessageTextError(NOT_JSON, f"{name} is no list")
    return [_as_text(each, name) for each in value]


def _properties(fields: dict[str, Any]) -> dict[str, str]:
    value = fields.get("properties")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MessageTextError(NOT_JSON, "properties is no object")
    for key, content in value.items():
        if content is None:
            raise MissingValueError(f"Need Non-Null value for key: {key}"[:100])
    return {_whole(key): _as_text(content, key) for key, content in value.items()}


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    try:
        number = 0 if value is None else int(value)
    except (ValueError, TypeError, OverflowError) as e:
        raise MessageTextError(NOT_JSON, f"{name} is no number") from e
    if not -_MOST_I64 <= number < _MOST_I64:
        raise MessageTextError(NOT_JSON, f"{name} is out of range")
    return number


def _payload(fields: dict[str, Any], context: str | None) -> bytes:
    payload = _text(fields, "payload")
    if payload is None:
        raise MessageTextError(BAD_PAYLOAD, "payload is missing", context)
    return _base64(payload, context)


def _base64(text: str, context: str | None) -> bytes:
    """Decode as Java's decoder does, which accepts a text without padding."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4) if "=" not in text else text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise MessageTextError(BAD_PAYLOAD, f"Invalid Base64 message-payload error={e}", context) from e


def _time_ms(text: str, context: str | None) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None or "T" not in text.upper():
            raise ValueError(f"Text '{text[:40]}' could not be parsed: an offset date-time is wanted")  # noqa: TRY301 - the same answer
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as e:
        raise MessageTextError(BAD_PAYLOAD, str(e), context) from e
