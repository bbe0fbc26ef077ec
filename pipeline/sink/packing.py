"""Messages of one producer into entries, in order.

The end of an entry follows from the messages alone: neither clocks nor receipts decide. A repetition of the same
messages gives entries with the same sequence ids, which deduplication compares. Only the publish time differs.

Entry, batched:   MessageMetadata{sequence_id = first, highest_sequence_id = last, num_messages_in_batch}
                  | (u32 size | SingleMessageMetadata | payload) for each message
Entry, single:    MessageMetadata with key, properties and times | payload
Entry, chunk:     as single, with uuid, chunk_id, num_chunks_from_msg, total_chunk_msg_size | a part of the payload
Messages with a delivery time stand alone, since a broker delays entries; so do messages that are too large for an
entry. All chunks of a message have its sequence id; the uuid is new whenever they are sent, so that the chunks of an
attempt that broke off are never joined with the chunks of the next attempt. With encryption the payload of each entry
is encrypted last.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING

from magnetar.client.encryption import TAG_BYTES
from magnetar.pipeline.encryption_keys import open_encryption
from magnetar.pipeline.sink.message import Chunks, Entry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from magnetar.protocol.compression import compress
from magnetar.protocol.message_id import unsigned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.pipeline.sink.message import Message
    from magnetar.pipeline.sink.options import SinkOptions

_METADATA_ROOM = 64
"""Bytes a message needs in a batch beside its payload, key and properties, at most."""
_LEAST_CHUNK_BYTES = 1024
"""Key and properties stand in every chunk; where they leave less than this, the message is refused."""


class MessageTooLargeError(ValueError):
    """A message that the broker refuses in any entry."""


class Packer:
    """Packs the messages of one producer. `now_ms` gives the publish time."""

    def __init__(
        self,
        producer_name: str,
        options: SinkOptions,
        now_ms: Callable[[], int],
        *,
        max_bytes: int,
        schema_version: bytes = b"",
    ) -> None:
        self._name = producer_name
        self._limit, self._limit_bytes = options.batch_messages, min(options.batch_bytes, max_bytes)
        self._by_key, self._compression = options.batch_by_key, options.compression
        self._encryption = open_encryption(options.encryption_keys)
        self._max_bytes = max_bytes - (TAG_BYTES if self._encryption else 0)
        self._now_ms, self._schema_version = now_ms, schema_version
        self._chunking = options.chunking
        self._waiting: list[tuple[int, Message]] = []
        self._waiting_bytes = 0

    def add(self, sequence_id: int, message: Message) -> Iterator[Entry | Chunks]:
        """The complete entries. Raises: MessageTooLargeError."""
        size = _size(message)
        if size > self._max_bytes:
            yield from self.flush()
            yield self._large(sequence_id, message, size)
            return
        if self._limit == 0 or message.deliver_at_ms:
            yield from self.flush()
            yield self._single(sequence_id, message)
            return
        if self._waiting and (self._waiting_bytes + size > self._limit_bytes or self._differs(message)):
            yield from self.flush()
        self._waiting.append((sequence_id, message))
        self._waiting_bytes += size
        if len(self._waiting) >= self._limit:
            yield from self.flush()

    def flush(self) -> Iterator[Entry]:
        """The entry of the waiting messages; nothing when no message waits."""
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            yield self._batch(waiting)

    def _differs(self, message: Message) -> bool:
        """Whether the message differs from the waiting messages in a field that all messages of an entry share."""
        last = self._waiting[-1][1]
        if message.schema_version != last.schema_version:
            return True
        return self._by_key and (message.ordering_key or message.key) != (last.ordering_key or last.key)

    def _batch(self, messages: list[tuple[int, Message]]) -> Entry:
        first, last = messages[0][0], messages[-1][0]
        parts: list[bytes] = []
        for sequence_id, message in messages:
            single = _single_metadata(sequence_id, message)
            parts += (len(single).to_bytes(4, "big"), single, message.value or b"")
        metadata = self._metadata(first, messages[0][1])
        metadata.highest_sequence_id, metadata.num_messages_in_batch = last, len(messages)
        if self._by_key:
            _set_key(metadata, messages[0][1])
        return Entry(first, last, len(messages), self._entry(metadata, b"".join(parts)))

    def _large(self, sequence_id: int, message: Message, size: int) -> Entry | Chunks:
        """A message that does not fit an entry, unless compression makes it small. Raises: MessageTooLargeError."""
        payload = message.value or b""
        room = self._max_bytes - (size - len(payload))
        if not self._chunking or room < _LEAST_CHUNK_BYTES:
            way = "raise maxMessageSize of the broker" + ("" if self._chunking else ", or set chunkingEnabled")
            raise MessageTooLargeError(f"a message of {size} bytes, and the broker takes {self._max_bytes}: {way}")
        metadata = self._single_metadata(sequence_id, message)
        payload = self._compressed(metadata, payload)
        if len(payload) <= room:
            return Entry(sequence_id, sequence_id, 1, self._encrypted(metadata, payload))
        return Chunks(metadata, payload, room, self._encrypted)

    def _single(self, sequence_id: int, message: Message) -> Entry:
        metadata = self._single_metadata(sequence_id, message)
        return Entry(sequence_id, sequence_id, 1, self._entry(metadata, message.value or b""))

    def _single_metadata(self, sequence_id: int, message: Message) -> pb.MessageMetadata:
        metadata = self._metadata(sequence_id, message)
        _set_key(metadata, message)
        for key, value in message.properties:
            metadata.properties.add(key=key, value=value)
        if message.event_time_ms:
            metadata.event_time = unsigned(message.event_time_ms)
        if message.deliver_at_ms:
            metadata.deliver_at_time = message.deliver_at_ms
        if message.value is None:
            metadata.null_value = True
        return metadata

    def _metadata(self, sequence_id: int, message: Message) -> pb.MessageMetadata:
        metadata = pb.MessageMetadata(producer_name=self._name, sequence_id=sequence_id, publish_time=self._now_ms())
        version = self._schema_version if message.schema_version is None else message.schema_version
        if version:
            metadata.schema_version = version
        return metadata

    def _entry(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        return self._encrypted(metadata, self._compressed(metadata, payload))

    def _encrypted(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        if self._encryption is not None:
            payload = self._encryption.encrypt(metadata, payload)
        return encode_entry(metadata, payload)

    def _compressed(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        if self._compression == pb.NONE:
            return payload
        metadata.compression, metadata.uncompressed_size = self._compression, len(payload)
        return compress(self._compression, payload)


def _size(message: Message) -> int:
    size = len(message.value or b"") + len(message.ordering_key or b"") + _METADATA_ROOM
    if message.key is not None:
        size += len(message.key) * 4 // 3 + 4
    for key, value in message.properties:
        size += (len(key) + len(value)) * 4 + 16  # a character takes up to four bytes
    return size


def _set_key(metadata: pb.MessageMetadata | pb.SingleMessageMetadata, message: Message) -> None:
    if message.key is not None:
        metadata.partition_key, encoded = key_text(message.key)
        if encoded:
            metadata.partition_key_b64_encoded = True
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key


def key_text(key: bytes) -> tuple[str, bool]:
    """A key as `partition_key`, and whether that is base64: keys that are no UTF-8 text are."""
    try:
        return key.decode(), False
    except UnicodeDecodeError:
        return b2a_base64(key, newline=False).decode(), True


def _single_metadata(sequence_id: int, message: Message) -> bytes:
    value = message.value
    single = pb.SingleMessageMetadata(payload_size=len(value) if value else 0, sequence_id=sequence_id)
    _set_key(single, message)
    for key, text in message.properties:
        single.properties.add(key=key, value=text)
    if message.event_time_ms:
        single.event_time = unsigned(message.event_time_ms)
    if value is None:
        single.null_value = True
    return single.SerializeToString()
