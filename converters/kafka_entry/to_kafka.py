"""The Kafka view of a Pulsar entry: the answer of a FETCH for entries without Kafka bytes.

The exact reverse of the converter's faithful mode, and KoP's rules for native Pulsar messages:

| Pulsar                              | Kafka                                                                   |
|-------------------------------------|-------------------------------------------------------------------------|
| ordering_key, else partition_key    | key (partition_key base64-decoded if flagged, else its UTF-8 bytes)     |
| null_value                          | null value                                                              |
| event_time, else publish_time       | timestamp; a converted Kafka record without event_time has -1           |
| properties                          | headers; companions are read and stripped                               |
| compacted_out                       | no record, the offset stays empty                                       |
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.converters import outer_compression
from magnetar.converters.entry import ENTRY_FORMAT_ORIGIN, Entry, entry_format
from magnetar.converters.errors import ConversionError
from magnetar.converters.kafka.codecs import MAX_DECOMPRESSED_BYTES
from magnetar.converters.kafka.records import NO_TIMESTAMP, Record
from magnetar.converters.kafka_entry.properties import decode_properties
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator

_ORIGIN = "kafka"


def to_kafka_records(
    data: bytes, base_offset: int, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yield the records of one entry whose first message has `base_offset`.

    Raises: EntryError; ConversionError for encrypted, chunked or still unconverted entries and for broken batches.
    """
    entry = Entry(data)
    metadata = entry.metadata
    if metadata.encryption_keys or metadata.HasField("chunk_id") or entry_format(metadata) is not None:
        raise ConversionError("an encrypted, chunked or foreign entry has no Kafka view")
    if not outer_compression.is_known(metadata):
        raise ConversionError("the payload is compressed with an unknown codec")
    payload = bytes(outer_compression.decompress(metadata, entry.payload, max_decompressed_bytes))
    pairs = [(pair.key, pair.value) for pair in metadata.properties]
    origin = next((i for i, pair in enumerate(pairs) if pair == (ENTRY_FORMAT_ORIGIN, _ORIGIN)), None)
    default_time = NO_TIMESTAMP if origin is not None else int(metadata.publish_time)
    if not metadata.HasField("num_messages_in_batch"):
        # Properties before the origin belong to the entry; properties behind it are the record's headers.
        yield _record(metadata, pairs[0 if origin is None else origin + 1 :], payload, base_offset, default_time)
        return
    for index, (single, value) in enumerate(_messages(payload, metadata.num_messages_in_batch)):
        if not single.compacted_out:
            own = [(pair.key, pair.value) for pair in single.properties]
            yield _record(single, own, value, base_offset + index, default_time)


def _messages(payload: bytes, count: int) -> Iterator[tuple[SingleMessageMetadata, bytes]]:
    pos = 0
    for index in range(count):
        start = pos + 4
        end = start + int.from_bytes(payload[pos:start], "big")
        try:
            single = SingleMessageMetadata.FromString(payload[start:end])
        except DecodeError as error:
            raise ConversionError(f"message {index} cannot be parsed: {error}") from error
        pos = end + single.payload_size
        if single.payload_size < 0 or pos > len(payload):
            raise ConversionError(f"message {index} of {count} leaves the payload")
        yield single, payload[end:pos]


def _record(
    message: MessageMetadata | SingleMessageMetadata,
    pairs: list[tuple[str, str]],
    value: bytes,
    offset: int,
    default_time: int,
) -> Record:
    decoded = decode_properties(pairs)
    timestamp = message.event_time if message.HasField("event_time") else default_time
    if decoded.timestamp is not None:
        timestamp = decoded.timestamp
    return Record(offset, timestamp, _key(message), None if message.null_value else value, decoded.headers)


def _key(message: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if message.HasField("ordering_key"):
        return message.ordering_key
    if not message.HasField("partition_key"):
        return None
    if not message.partition_key_b64_encoded:
        return message.partition_key.encode()
    try:
        return b64decode(message.partition_key, validate=True)
    except ValueError as error:
        raise ConversionError("partition_key is flagged as base64 and is not") from error
