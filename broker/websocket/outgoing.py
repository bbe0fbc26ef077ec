"""Makes entries of the messages of a producer session, in batches where the session requests batches. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry
from magnetar.protocol.compression import compress

if TYPE_CHECKING:
    from magnetar.broker.websocket.parameters import ProducerParameters
    from magnetar.broker.websocket.session_json import ProducerMessage

BATCH_BYTES: Final = 128 * 1024
_LARGEST_PLAIN: Final = 4096
"""The most bytes of a payload that stays uncompressed whatever the compression, as with the client of Apache Pulsar."""
_U64: Final = (1 << 64) - 1
_MESSAGE_BYTES: Final = 512
"""The assumed memory of a message in a batch besides its content."""


@dataclass(slots=True)
class Outgoing:
    """An entry that the broker has not stored yet.

    contexts: the client's contexts of its messages, in order. frame: the SEND command, kept to send it again.
    """

    partition: int
    first_sequence_id: int
    last_sequence_id: int
    entry: bytes
    contexts: list[str | None]
    is_batch: bool
    sent_s: float = 0.0
    frame: bytes = b""

    @property
    def held_bytes(self) -> int:
        """The memory of the entry until its answer."""
        return len(self.frame) + sum(map(sys.getsizeof, self.contexts))


@dataclass(slots=True)
class Batch:
    """Messages of one partition that wait to become one entry. `held_bytes`: their memory, with their contexts."""

    partition: int
    messages: list[tuple[int, ProducerMessage]] = field(default_factory=list)
    size: int = 0
    held_bytes: int = 0

    def add(self, sequence_id: int, message: ProducerMessage) -> int:
        """Add a message; return the memory that it takes."""
        self.messages.append((sequence_id, message))
        size = weight(message)
        taken = size + sys.getsizeof(message.context) + _MESSAGE_BYTES
        self.size += size
        self.held_bytes += taken
        return taken


def weight(message: ProducerMessage) -> int:
    """Return the size of payload, key and properties."""
    texts = sum(map(len, message.properties)) + sum(map(len, message.properties.values()))
    return len(message.payload) + len(message.key or "") + texts


def entry_of(
    message: ProducerMessage, parameters: ProducerParameters, name: str, sequence_id: int, now_ms: int
) -> bytes:
    """Return the entry of a single message without a batch."""
    metadata = pb.MessageMetadata(producer_name=name, sequence_id=sequence_id & _U64, publish_time=now_ms)
    add = metadata.properties.add  # a text of a MiB has 100,000 properties
    for key, value in message.properties.items():
        add(key=key, value=value)
    if message.key is not None:
        metadata.partition_key, metadata.partition_key_b64_encoded = message.key, False
    if message.event_time_ms is not None:
        metadata.event_time = message.event_time_ms & _U64
    if message.deliver_at_ms is not None:
        metadata.deliver_at_time = message.deliver_at_ms
    metadata.replicate_to.extend(message.replicate_to)
    payload = message.payload
    metadata.uncompressed_size = len(payload) & 0xFFFFFFFF
    if parameters.encryption_keys:
        metadata.encryption_keys.extend(parameters.encryption_keys)
        metadata.encryption_param = message.encryption_param
        if message.compression is not None and message.uncompressed_bytes is not None:
            metadata.compression = message.compression  # type: ignore[assignment]
            metadata.uncompressed_size = message.uncompressed_bytes & 0xFFFFFFFF
    elif _is_compressed(parameters, payload):
        metadata.compression = parameters.compression  # type: ignore[assignment]
        payload = compress(parameters.compression, payload)
    return encode_entry(metadata, payload)


def _is_compressed(parameters: ProducerParameters, payload: bytes) -> bool:
    return parameters.compression != pb.NONE and len(payload) > _LARGEST_PLAIN


def batch_entry_of(batch: Batch, parameters: ProducerParameters, name: str, now_ms: int) -> bytes:
    """Return the entry of a batch. Metadata that exist once per entry come from the first message."""
    first, last = batch.messages[0][0], batch.messages[-1][0]
    metadata = pb.MessageMetadata(
        producer_name=name,
        sequence_id=first & _U64,
        publish_time=now_ms,
        num_messages_in_batch=len(batch.messages),
    )
    if last != first:
        metadata.highest_sequence_id = last & _U64
    singles: list[tuple[pb.SingleMessageMetadata, bytes | memoryview]] = []
    for sequence_id, message in batch.messages:
        single = pb.SingleMessageMetadata(payload_size=len(message.payload), sequence_id=sequence_id & _U64)
        for key, value in message.properties.items():
            single.properties.add(key=key, value=value)
        if message.key is not None:
            single.partition_key, single.partition_key_b64_encoded = message.key, False
        if message.event_time_ms is not None:
            single.event_time = message.event_time_ms & _U64
        singles.append((single, message.payload))
    plain = encode_batch(singles)
    opening = batch.messages[0][1]
    if opening.key is not None:
        metadata.partition_key, metadata.partition_key_b64_encoded = opening.key, False
    metadata.replicate_to.extend(opening.replicate_to)
    if _is_compressed(parameters, plain):
        metadata.uncompressed_size = len(plain)
        metadata.compression = parameters.compression  # type: ignore[assignment]
        plain = compress(parameters.compression, plain)
    return encode_entry(metadata, plain)
