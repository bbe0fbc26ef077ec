"""The decoder in plain Python, message by message with the protobuf library: the reference that tests compare with.

It keeps nothing bounded and knows no chunks of earlier calls; use `Decoder`.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from magnetar.converters.errors import ConverterError
from magnetar.converters.kafka.errors import KafkaFormatError
from magnetar.pipeline.columns import FIRST_MS, LAST_MS
from magnetar.pipeline.decode.decryption import encryption_context
from magnetar.pipeline.decode.kafka_entries import KafkaEntries
from magnetar.pipeline.decode.message_ids import message_id
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import walk_batch
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import CompressionError, MalformedEntryError
from magnetar.protocol.message_id import signed
from magnetar.protocol.metadata import parse_entry_metadata, split_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.pipeline.entry_chunk import EntryChunk

    Row = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def reference_rows(chunk: EntryChunk, first_index: int | None = None, end_index: int | None = None) -> Iterator[Row]:
    """Rows by column (style pulsar with `__encryptionContext`); without unreadable messages."""
    chunks: dict[str, list[tuple[int, bytes]]] = {}
    for i in range(len(chunk)):
        try:
            for row in _rows_of(chunk, i, chunks):
                index = row["__index"]
                if index is None or ((first_index or 0) <= index and (end_index is None or index < end_index)):
                    yield row
        except (MalformedEntryError, CompressionError, ConverterError, KafkaFormatError):
            continue


def _rows_of(chunk: EntryChunk, i: int, chunks: dict[str, list[tuple[int, bytes]]]) -> Iterator[Row]:
    body = chunk.entry(i)
    metadata, payload = split_entry(body)
    if metadata is None:
        raise MalformedEntryError("the metadata does not parse")
    common = _common(chunk, i, metadata)
    if metadata.HasField("marker_type"):
        return
    if metadata.num_chunks_from_msg > 1 and metadata.HasField("chunk_id"):
        yield from _chunked(chunk, i, metadata, bytes(payload), common, chunks)
    elif metadata.encryption_keys:
        yield _single(chunk, i, metadata, bytes(payload), common)
    elif any(pair.key == "entry.format" for pair in metadata.properties):
        yield from _converted(chunk, i, metadata, payload, common)
    elif metadata.HasField("num_messages_in_batch"):
        yield from _batch(chunk, i, metadata, payload, common)
    else:
        yield _single(chunk, i, metadata, _plain(metadata, payload), common)


def _plain(metadata: pb.MessageMetadata, payload: memoryview | bytes) -> bytes:
    return decompress(metadata.compression, payload, metadata.uncompressed_size)


def _common(chunk: EntryChunk, i: int, metadata: pb.MessageMetadata) -> Row:
    """The columns that all messages of an entry share; `__index` is that of the first."""
    broker = parse_entry_metadata(chunk.entry(i))
    index = None
    if broker is not None and broker.HasField("index"):
        index = signed(broker.index) - max(metadata.num_messages_in_batch, 1) + 1
    txn = metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")
    has_time = broker is not None and broker.HasField("broker_timestamp")
    return {
        "__topic": chunk.topic,
        "__publishTime": _time(metadata.publish_time),
        "__index": index,
        "__brokerPublishTime": _time(broker.broker_timestamp) if has_time and broker is not None else None,
        "__partition": chunk.partition,
        "__ledgerId": chunk.ledger_id,
        "__entryId": int(chunk.entry_ids[i]),
        "__producerName": metadata.producer_name,
        "__schemaVersion": metadata.schema_version if metadata.HasField("schema_version") else None,
        "__replicatedFrom": metadata.replicated_from if metadata.HasField("replicated_from") else None,
        "__txnId": f"({signed(metadata.txnid_most_bits)},{signed(metadata.txnid_least_bits)})" if txn else None,
        "__encryptionContext": encryption_context(metadata.SerializeToString()) if metadata.encryption_keys else None,
    }


def _own(message: pb.MessageMetadata | pb.SingleMessageMetadata, payload: bytes) -> Row:
    """The columns of one message alone."""
    properties: dict[str, str] = {}
    for pair in message.properties:
        properties.pop(pair.key, None)
        properties[pair.key] = pair.value
    return {
        "value": None if message.null_value else payload,
        "__key": _key(message),
        "__eventTime": _time(message.event_time) if message.event_time else None,
        "__messageProperties": list(properties.items()),
        "__sequenceId": signed(message.sequence_id),
        "__orderingKey": message.ordering_key if message.HasField("ordering_key") else None,
        "__nullValue": message.null_value,
        "__size": len(payload),
    }


def _single(
    chunk: EntryChunk,
    i: int,
    metadata: pb.MessageMetadata,
    payload: bytes,
    common: Row,
    first_chunk: tuple[int, int] | None = None,
) -> Row:
    identity = message_id(chunk.ledger_id, int(chunk.entry_ids[i]), chunk.partition, first_chunk=first_chunk)
    return {**common, **_own(metadata, payload), "__batchIndex": None, "__messageId": identity}


def _batch(
    chunk: EntryChunk, i: int, metadata: pb.MessageMetadata, payload: memoryview | bytes, common: Row
) -> Iterator[Row]:
    count = metadata.num_messages_in_batch
    for message in walk_batch(metadata, payload):
        single, index = message.metadata, message.batch_index
        if single.compacted_out:
            continue
        row = {**common, **_own(single, bytes(message.payload)), "__batchIndex": index}
        row["__messageId"] = message_id(chunk.ledger_id, int(chunk.entry_ids[i]), chunk.partition, index, count)
        if common["__index"] is not None:
            row["__index"] = common["__index"] + index
        if not single.HasField("sequence_id"):
            row["__sequenceId"] = signed(metadata.sequence_id)
        if not single.HasField("event_time") and metadata.event_time:
            row["__eventTime"] = _time(metadata.event_time)
        yield row


def _converted(
    chunk: EntryChunk, i: int, metadata: pb.MessageMetadata, payload: memoryview, common: Row
) -> Iterator[Row]:
    encoded = metadata.SerializeToString()
    found = KafkaEntries().convert(len(encoded).to_bytes(4, "big") + encoded + bytes(payload))
    if found is None and not metadata.HasField("num_messages_in_batch"):
        yield _single(chunk, i, metadata, _plain(metadata, payload), common)
    elif found is None:
        yield from _batch(chunk, i, metadata, payload, common)
    elif found.batched:
        new = pb.MessageMetadata.FromString(found.metadata)
        new.compression = pb.NONE
        yield from _batch(chunk, i, new, found.payload, common)
    else:
        yield _single(chunk, i, pb.MessageMetadata.FromString(found.metadata), found.payload, common)


def _chunked(
    chunk: EntryChunk,
    i: int,
    metadata: pb.MessageMetadata,
    payload: bytes,
    common: Row,
    chunks: dict[str, list[tuple[int, bytes]]],
) -> Iterator[Row]:
    seen = chunks.setdefault(metadata.uuid, [])
    if metadata.chunk_id == 0:
        seen.clear()
    if metadata.chunk_id == len(seen):
        seen.append((int(chunk.entry_ids[i]), payload))
    if len(seen) != metadata.num_chunks_from_msg:
        return
    del chunks[metadata.uuid]
    whole = b"".join(part for _, part in seen)
    plain = whole if metadata.encryption_keys else _plain(metadata, whole)
    yield _single(chunk, i, metadata, plain, common, (chunk.ledger_id, seen[0][0]))


def _key(message: pb.MessageMetadata | pb.SingleMessageMetadata) -> bytes | None:
    if not message.HasField("partition_key") or message.null_partition_key:
        return None
    if message.partition_key_b64_encoded:
        return base64.b64decode(message.partition_key)
    return message.partition_key.encode()


def _time(ms: int) -> datetime | None:
    if not FIRST_MS <= signed(ms) <= LAST_MS:
        return None
    return _EPOCH + timedelta(milliseconds=signed(ms))
