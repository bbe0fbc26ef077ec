"""The query parameters of sessions: names, defaults and refusals of Apache Pulsar 4.2; unknown parameters have no
effect.

Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.broker.compat import java_numbers
from magnetar.broker.websocket.errors import ParameterError, SessionRefusedError
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_WINDOW: Final = 1000
_BATCH_MESSAGES: Final = 1000
_NACK_DELAY_MS: Final = 60_000
_SEND_TIMEOUT_MS: Final = 30_000
_LEAST_ACK_TIMEOUT_MS: Final = 1000
_ROUTING: Final = ("SinglePartition", "RoundRobinPartition", "CustomPartition")
_HASHES: Final = ("JavaStringHash", "Murmur3_32Hash")
_TYPES: Final = {name: pb.CommandSubscribe.SubType.Value(name) for name in ("Exclusive", "Shared", "Failover")} | {
    "Key_Shared": pb.CommandSubscribe.Key_Shared
}


@dataclass(frozen=True, slots=True)
class ProducerParameters:
    """`initial_sequence_id`: the last sequence id that the client has used before; `encryption_keys`: the keys with
    which the client itself encrypts.
    """

    name: str | None
    initial_sequence_id: int | None
    hashing: str
    routing: str
    compression: int
    send_timeout_ms: int
    batching: bool
    batch_messages: int
    batch_delay_ms: int
    encryption_keys: tuple[pb.EncryptionKeys, ...]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ProducerParameters:
        """Raises ParameterError."""
        keys = _encryption_keys(query)
        batching = not keys and query.get("batchingEnabled", "").lower() == "true"
        delay = 1
        most = _BATCH_MESSAGES
        if batching:
            most = _int32(query, "batchingMaxMessages", _BATCH_MESSAGES)
            _int32(query, "maxPendingMessages", 0, least=0)
            delay = _int32(query, "batchingMaxPublishDelay", 1, least=1)
        codec = _choice(query, "compressionType", tuple(pb.CompressionType.keys()), "NONE")
        name = query.get("producerName")
        if name is not None and not name.strip():
            raise ParameterError("producerName cannot be blank")
        return cls(
            name=name,
            initial_sequence_id=_long(query, "initialSequenceId"),
            hashing=_choice(query, "hashingScheme", _HASHES, "JavaStringHash"),
            routing=_choice(query, "messageRoutingMode", _ROUTING, "SinglePartition"),
            compression=pb.NONE if keys else pb.CompressionType.Value(codec),
            send_timeout_ms=_int32(query, "sendTimeoutMillis", _SEND_TIMEOUT_MS, least=0),
            batching=batching,
            batch_messages=most if 0 < most <= _BATCH_MESSAGES else _BATCH_MESSAGES,
            batch_delay_ms=delay,
            encryption_keys=keys,
        )


@dataclass(frozen=True, slots=True)
class ConsumerParameters:
    """`window`: limit of unacknowledged messages with the client. 0 in `ack_timeout_ms` or `max_redeliver_count`:
    off. `no_queue`: the client chose a queue of no messages, which a session of several topics cannot have.
    """

    subscription_type: int
    durable: bool
    initial_position: int
    window: int
    name: str | None
    priority: int
    nack_delay_ms: int
    ack_timeout_ms: int
    max_redeliver_count: int
    dead_letter_topic: str | None
    crypto_failure: str
    pull: bool
    no_queue: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ConsumerParameters:
        """Raises ParameterError."""
        ack_timeout = _int32(query, "ackTimeoutMillis", 0, least=0)
        if 0 < ack_timeout < _LEAST_ACK_TIMEOUT_MS:
            raise ParameterError(f"ackTimeoutMillis must be at least {_LEAST_ACK_TIMEOUT_MS}")
        if "deadLetterTopic" in query and "maxRedeliverCount" not in query:
            raise ParameterError("deadLetterTopic needs maxRedeliverCount")
        name = query.get("consumerName")
        if name is not None and not name.strip():
            raise ParameterError("consumerName cannot be blank")
        position = _choice(query, "subscriptionInitialPosition", ("Latest", "Earliest"), "Latest")
        return cls(
            subscription_type=_TYPES[_choice(query, "subscriptionType", tuple(_TYPES), "Exclusive")],
            durable=_choice(query, "subscriptionMode", ("Durable", "NonDurable"), "Durable") == "Durable",
            initial_position=pb.CommandSubscribe.InitialPosition.Value(position),
            window=_window(query),
            name=name,
            priority=_int32(query, "priorityLevel", 0, least=0),
            nack_delay_ms=_int32(query, "negativeAckRedeliveryDelay", _NACK_DELAY_MS, least=0),
            ack_timeout_ms=ack_timeout,
            max_redeliver_count=_int32(query, "maxRedeliverCount", 0, least=1),
            dead_letter_topic=query.get("deadLetterTopic"),
            crypto_failure=_crypto_failure(query),
            pull=query.get("pullMode", "").lower() == "true",
            no_queue=_long(query, "receiverQueueSize") == 0,
        )


@dataclass(frozen=True, slots=True)
class ReaderParameters:
    """`start`: earliest, latest, or the id of the message after which the reader begins."""

    start: str | pb.MessageIdData
    window: int
    name: str | None
    crypto_failure: str

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ReaderParameters:
        """Raises ParameterError, and SessionRefusedError (500) for a queue size that is no number, as in Apache
        Pulsar.
        """
        try:
            window = _window(query)
        except ParameterError as e:
            if java_numbers.is_decimal(query["receiverQueueSize"]):
                raise
            raise SessionRefusedError(500, e.reason) from e
        start = query.get("messageId", "").strip()
        known = start in ("", "earliest", "latest")
        return cls(
            start=(start or "latest") if known else _message_id(start),
            window=window,
            name=query.get("readerName") or None,
            crypto_failure=_crypto_failure(query),
        )


def _message_id(text: str) -> pb.MessageIdData:
    try:
        found = pb.MessageIdData.FromString(base64.b64decode(text, validate=True))
    except Exception as e:
        raise ParameterError("Invalid messageId value") from e
    if not found.IsInitialized():
        raise ParameterError("Invalid messageId value")
    return found


def _window(query: Mapping[str, str]) -> int:
    return min(_int32(query, "receiverQueueSize", MOST_WINDOW, least=0), MOST_WINDOW) or 1


def _crypto_failure(query: Mapping[str, str]) -> str:
    action = query.get("cryptoFailureAction", "FAIL")
    return action if action in ("FAIL", "DISCARD", "CONSUME") else "FAIL"


def _int32(query: Mapping[str, str], name: str, default: int, *, least: int = -(1 << 31)) -> int:
    value = _long(query, name)
    if value is None:
        return default
    if not least <= value < 1 << 31:
        raise ParameterError(f"{name} must be a number from {least} to {(1 << 31) - 1}")
    return value


def _long(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    try:
        return java_numbers.parsed(text)
    except ValueError:
        raise ParameterError(f'For input string: "{text}": {name} is no number') from None


def _choice(query: Mapping[str, str], name: str, choices: tuple[str, ...], default: str) -> str:
    value = query.get(name, default)
    if value not in choices:
        raise ParameterError(f"Invalid {name} {value}; {name} is one of {', '.join(choices)}")
    return value


def _encryption_keys(query: Mapping[str, str]) -> tuple[pb.EncryptionKeys, ...]:
    """Parse the keys with which the client encrypts: base64 of {name: {"keyValue": base64, "metadata": {...}}}. A blank
    parameter and one without keys are refused.
    """
    if "encryptionKeys" not in query:
        return ()
    refusal = SessionRefusedError(
        500, "encryptionKeys must be base64 of JSON with the keys themselves: the broker has no keys to encrypt with"
    )
    keys = []
    try:
        found = json.loads(base64.b64decode(query["encryptionKeys"].strip(), validate=True))
        for name, value in found.items():
            key = pb.EncryptionKeys(key=name.strip(), value=base64.b64decode(value["keyValue"], validate=True))
            for more, content in (value.get("metadata") or {}).items():
                key.metadata.add(key=more, value=content)
            keys.append(key)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError) as e:
        raise refusal from e
    if not keys:
        raise refusal
    return tuple(keys)
