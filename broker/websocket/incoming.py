"""Splits the entries that a consumer session gets into messages. Pure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magnetar.broker.compat.java_times import offset_date_time
from magnetar.broker.websocket.session_json import ConsumerText, encode_message_id
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import CompressionError, MalformedEntryError, TooManyPartsError
from magnetar.protocol.metadata import counted_messages, metadata_bytes, property_count, split_entry
from magnetar.protocol.texts import TextRepair

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from magnetar.protocol.answers import Answer


_WORD: Final = (1 << 64) - 1
MOST_IN_BATCH: Final = 10_000
"""Limit of the messages of a batch: the session splits it in one turn of the event loop, with 1 KiB of memory for each.
"""
_MOST_PARTS: Final = 1 << 16
"""Limit of the properties of an entry and of its messages, which the session reads in the same turn."""

_UNIT_BYTES: Final = 1 << 14
"""Uncompressed bytes of an entry that count in a turn like one message."""
_UNIT_PROPERTIES: Final = 256
_LEAST_BYTES: Final = 6
"""The fewest bytes of a message in a batch: the length of its metadata, and metadata with the size of its payload."""


class LargeEntryError(Exception):
    """An entry has more messages than MOST_IN_BATCH or too many properties; it may be intact."""

    def __init__(self, entry: tuple[int, int], reason: str) -> None:
        super().__init__(f"entry {entry[0]}:{entry[1]} {reason}")


class UnreadableEntryError(Exception):
    """An entry is damaged. `validation`: the error that the session sends to the broker with the acknowledgement."""

    def __init__(self, validation: int) -> None:
        super().__init__(pb.CommandAck.ValidationError.Name(validation))
        self.validation = validation


class Incoming(NamedTuple):
    """One message, not yet written. `entry`: ledger id and entry id; `batch_size` is 0 outside a batch."""

    part: int
    entry: tuple[int, int]
    batch_index: int
    batch_size: int
    redelivery_count: int
    metadata: pb.MessageMetadata
    single: pb.SingleMessageMetadata | None
    payload: bytes | memoryview

    @property
    def weight(self) -> int:
        """The approximate bytes of memory that the message occupies besides the metadata of its entry."""
        return len(self.payload) + 256 + (0 if self.single is None else self.single.ByteSize())

    @property
    def key(self) -> str | None:
        source = self.metadata if self.single is None else self.single
        return source.partition_key if source.HasField("partition_key") else None

    @property
    def properties(self) -> dict[str, str]:
        source = self.metadata if self.single is None else self.single
        return {pair.key: pair.value for pair in source.properties}

    def message_id(self, partition: int) -> pb.MessageIdData:
        found = pb.MessageIdData(ledgerId=self.entry[0], entryId=self.entry[1])
        if partition >= 0:
            found.partition = partition
        if self.batch_size:
            found.batch_index = self.batch_index
        found.batch_size = self.batch_size
        return found

    def text(self, partition: int) -> bytes:
        """Return the JSON text for the client."""
        event_time = (self.metadata if self.single is None else self.single).event_time
        return ConsumerText(
            message_id=encode_message_id(self.message_id(partition)),
            payload=base64.b64encode(self.payload).decode(),
            properties=self.properties,
            publish_time=offset_date_time(self.metadata.publish_time),
            redelivery_count=self.redelivery_count,
            event_time=offset_date_time(event_time) if event_time else None,
            encryption_context=_encryption(self.metadata),
            key=self.key,
        ).encode()


def _encryption(metadata: pb.MessageMetadata) -> dict[str, Any] | None:
    """Return the data with which the client itself decrypts the message; None for a message that is not encrypted."""
    if not metadata.encryption_keys:
        return None
    keys = {
        key.key: {
            "keyValue": base64.b64encode(key.value).decode(),
            "metadata": {pair.key: pair.value for pair in key.metadata} or None,
        }
        for key in metadata.encryption_keys
    }
    batch = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else None
    return {
        "keys": keys,
        "param": base64.b64encode(metadata.encryption_param).decode(),
        "algorithm": metadata.encryption_algo,
        "compressionType": pb.CompressionType.Name(metadata.compression),
        "uncompressedMessageSize": metadata.uncompressed_size,
        "batchSize": batch,
        "encrypted": True,
    }


def permits_of(answer: Answer) -> int:
    """Return how many permits the broker counted for a MESSAGE command: one per unacknowledged message of its entry."""
    words = answer.command.message.ack_set
    if words:
        return sum((word & _WORD).bit_count() for word in words)
    return counted_messages(answer.entry)


class Opened(NamedTuple):
    """An entry whose metadata are parsed. `metadata` is None when they cannot be read, `reason` says why they are not
    read: the entry may be intact.
    """

    metadata: pb.MessageMetadata | None
    payload: memoryview
    reason: str | None = None

    def plain_bytes(self, entry_bytes: int, most_bytes: int) -> int:
        """Return the bytes that `take_apart` handles: the larger of the entry and its uncompressed payload."""
        metadata = self.metadata
        if metadata is None or metadata.compression == pb.NONE or metadata.uncompressed_size > most_bytes:
            return entry_bytes
        return max(entry_bytes, metadata.uncompressed_size)

    def units(self, entry_bytes: int, most_bytes: int) -> int:
        """Return as how many messages the bytes and properties count in a turn of the event loop."""
        properties = 0 if self.metadata is None else len(self.metadata.properties)
        return self.plain_bytes(entry_bytes, most_bytes) // _UNIT_BYTES + properties // _UNIT_PROPERTIES


def opened(entry: bytes | memoryview) -> Opened:
    """Parse the metadata of an entry, unless they have too many properties."""
    properties = property_count(entry)
    if properties is None or properties > _MOST_PARTS:
        return Opened(None, memoryview(b""), f"has metadata of {metadata_bytes(entry)} bytes with too many parts")
    return Opened(*split_entry(entry))


def take_apart(answer: Answer, part: int, most_bytes: int, parsed: Opened | None = None) -> Iterator[Incoming]:
    """Yield the messages of a MESSAGE command, except acknowledged and compacted messages of a batch. `most_bytes`:
    limit of the uncompressed payload; `parsed`: the entry of the command, if the caller has opened it.

    Raises UnreadableEntryError or LargeEntryError; also after some messages of a damaged batch.
    """
    try:
        yield from _messages(answer, part, most_bytes, opened(answer.entry) if parsed is None else parsed)
    except TooManyPartsError as e:
        raise LargeEntryError(_place(answer), str(e)) from e


def _place(answer: Answer) -> tuple[int, int]:
    message_id = answer.command.message.message_id
    return message_id.ledgerId, message_id.entryId


def _messages(answer: Answer, part: int, most_bytes: int, parsed: Opened) -> Iterator[Incoming]:
    command = answer.command.message
    entry = _place(answer)
    metadata, payload, reason = parsed
    if reason is not None:
        raise LargeEntryError(entry, reason)
    if metadata is None:
        raise UnreadableEntryError(pb.CommandAck.ChecksumMismatch)
    texts = TextRepair(_MOST_PARTS)
    texts.apply(metadata)
    count = command.redelivery_count
    if metadata.encryption_keys:
        yield Incoming(part, entry, 0, 0, count, metadata, None, bytes(payload))
        return
    if metadata.uncompressed_size > most_bytes:
        raise UnreadableEntryError(pb.CommandAck.UncompressedSizeCorruption)
    if not metadata.HasField("num_messages_in_batch"):
        yield Incoming(part, entry, 0, 0, count, metadata, None, _plain(metadata, payload))
        return
    open_indexes = _open_indexes(command.ack_set)
    size = metadata.num_messages_in_batch
    if size > MOST_IN_BATCH:
        plain_bytes = len(payload) if metadata.compression == pb.NONE else metadata.uncompressed_size
        if size * _LEAST_BYTES > plain_bytes:
            raise UnreadableEntryError(pb.CommandAck.BatchDeSerializeError)
        raise LargeEntryError(entry, f"is a batch of {size} messages, at most {MOST_IN_BATCH} fit here")
    try:
        for message in walk_batch(metadata, payload):
            index = message.batch_index
            if message.metadata.compacted_out or (open_indexes is not None and index not in open_indexes):
                continue
            texts.apply(message.metadata)
            yield Incoming(part, entry, index, size, count, metadata, message.metadata, message.payload)
    except CompressionError as e:
        raise UnreadableEntryError(pb.CommandAck.DecompressionError) from e
    except MalformedEntryError as e:
        raise UnreadableEntryError(pb.CommandAck.BatchDeSerializeError) from e


def _plain(metadata: pb.MessageMetadata, payload: memoryview) -> bytes:
    try:
        return decompress(metadata.compression, payload, metadata.uncompressed_size)
    except CompressionError as e:
        raise UnreadableEntryError(pb.CommandAck.DecompressionError) from e


def _open_indexes(words: Sequence[int]) -> set[int] | None:
    """Return the batch indexes whose bit is set, which are not acknowledged; None when the ack set is empty: all."""
    if not words:
        return None
    return {64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1}
