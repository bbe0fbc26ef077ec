"""Batches: the messages inside an entry's payload, and an entry rewritten with some of them.

An uncompressed batch is num_messages_in_batch times ``{ u32 size | SingleMessageMetadata | payload_size bytes }``. The
batch is compressed as a whole; an encrypted batch cannot be read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure import after_prefix
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.compression import compress, decompress
from magnetar.protocol.errors import MalformedEntryError
from magnetar.protocol.metadata import split_entry

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_U32 = struct.Struct(">I")
_MAGIC_CHECKSUM = b"\x0e\x01"


class SingleMessage(NamedTuple):
    """One message of a batch."""

    batch_index: int
    metadata: pb.SingleMessageMetadata
    payload: memoryview


def encode_entry(metadata: pb.MessageMetadata, payload: bytes | memoryview) -> bytes:
    """Return headers and payload with checksum: ``0x0e01 | crc32c | u32 size | MessageMetadata | payload``."""
    encoded = metadata.SerializeToString()
    body = b"".join((_U32.pack(len(encoded)), encoded, payload))
    return _MAGIC_CHECKSUM + _U32.pack(crc32c(body)) + body


def walk_batch(metadata: pb.MessageMetadata, payload: bytes | memoryview) -> Iterator[SingleMessage]:
    """Decompress the payload of an entry and yield its messages in order. Raises MalformedEntryError or
    CompressionError.
    """
    if metadata.encryption_keys:
        raise MalformedEntryError("the batch is encrypted")
    plain = memoryview(payload)
    if metadata.compression != pb.NONE:
        plain = memoryview(decompress(metadata.compression, payload, metadata.uncompressed_size))
    at = 0
    for index in range(metadata.num_messages_in_batch):
        if len(plain) - at < 4:
            raise MalformedEntryError(f"the batch ends before message {index}")
        (size,) = _U32.unpack_from(plain, at)
        at += 4
        try:
            single = pb.SingleMessageMetadata.FromString(bytes(plain[at : at + size]))
        except DecodeError as e:
            raise MalformedEntryError(f"metadata of message {index} does not parse") from e
        at += size
        if not single.IsInitialized() or not 0 <= single.payload_size <= len(plain) - at:
            raise MalformedEntryError(f"message {index} does not fit its batch")
        yield SingleMessage(index, single, plain[at : at + single.payload_size])
        at += single.payload_size


def encode_batch(messages: list[tuple[pb.SingleMessageMetadata, bytes | memoryview]]) -> bytes:
    """Return the uncompressed payload of a batch; set payload_size of each message."""
    parts: list[bytes | memoryview] = []
    for single, payload in messages:
        single.payload_size = len(payload)
        encoded = single.SerializeToString()
        parts += [_U32.pack(len(encoded)), encoded, payload]
    return b"".join(parts)


def keep_messages(body: bytes | memoryview, keep: Container[int]) -> bytes | None:
    """Return a batch entry that keeps only the messages whose index is in `keep`; None when no message is kept.

    Indexes and count stay the same: a removed message stays as metadata with compacted_out and no payload, so a
    consumer's batch indexes still fit; compacted_batch_indexes names the kept messages (the same bytes as Apache Pulsar
    4.2.4 makes of a batch). Broker entry metadata in front stay. Raises MalformedEntryError, CompressionError.
    """
    metadata, payload = split_entry(body)
    if metadata is None:
        raise MalformedEntryError("the entry's metadata does not parse")
    messages: list[tuple[pb.SingleMessageMetadata, bytes | memoryview]] = []
    kept = []
    for message in walk_batch(metadata, payload):
        if message.batch_index in keep:
            kept.append(message.batch_index)
            messages.append((message.metadata, message.payload))
        else:
            messages.append((pb.SingleMessageMetadata(compacted_out=True, payload_size=0), b""))
    if not kept:
        return None
    plain = encode_batch(messages)
    metadata.uncompressed_size = len(plain)
    del metadata.compacted_batch_indexes[:]
    metadata.compacted_batch_indexes.extend(kept)
    prefix = bytes(body[: after_prefix(body)])
    return prefix + encode_entry(metadata, compress(metadata.compression, plain))
