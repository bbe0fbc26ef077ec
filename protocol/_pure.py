"""The pure-Python twin of `_speedups`: the same functions, the same results, slower. `speed` describes
each function.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure_cut import cut
from magnetar.protocol._pure_looks import (
    MAGIC_CHECKSUM,
    command_type,
    look_at_metadata,
    metadata_flags,
    metadata_of,
    send_fields,
    signed,
)
from magnetar.protocol._pure_records import (
    MAGIC_ENTRY_METADATA,
    RECORD_HEADER,
    entry_prefix,
    scan_records,
    stamp,
    stamp_in_place,
)
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.key_hash import murmur3_32
from magnetar.protocol.runs import EntryFlag
from magnetar.protocol.varints import varint, varints

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COMPILED",
    "MAGIC_CHECKSUM",
    "RECORD_HEADER",
    "Facts",
    "after_prefix",
    "as_sent",
    "crc32c",
    "cut",
    "encode_messages",
    "encode_receipts",
    "entry_fact",
    "entry_facts",
    "entry_prefix",
    "look_at_metadata",
    "scan_records",
    "send_fields",
    "stamp",
    "stamp_in_place",
]

COMPILED = False
_command_type = command_type  # under which `_speedups` finds it
_U32 = struct.Struct(">I")
_HEAD = struct.Struct(">II")

LEAST_MESSAGE_BYTES = 6
"""The fewest bytes of a message in a batch: its size, and SingleMessageMetadata with only payload_size."""
MOST_COMPRESSION = 1 << 15
"""No codec of Pulsar expands a byte to more bytes (zstd has the largest ratio)."""

_HAS_CHECKSUM = int(EntryFlag.HAS_CHECKSUM)
_NAMES_FORMAT = int(EntryFlag.NAMES_FORMAT)


class Facts(NamedTuple):
    """The result of `entry_facts`."""

    batch_sizes: bytes
    deliver_at: bytes | None
    publish_time: bytes
    broker_timestamp: bytes
    key_hashes: bytes | None
    flags: bytes
    any_flags: int
    total_messages: int


# --- replies -----------------------------------------------------------------------------------------------------


def encode_receipts(
    producer_id: int,
    sequence_ids: bytes,
    highest_sequence_ids: bytes,
    i: int,
    j: int,
    ledger_id: int,
    first_entry_id: int,
    step: int = 1,
    /,
) -> bytes:
    ids = varints(
        range(first_entry_id, first_entry_id + j - i)
        if step == 1
        else [first_entry_id + k * step for k in range(j - i)]
    )
    sequences = varints(memoryview(sequence_ids).cast("q")[i:j])
    highest = varints(memoryview(highest_sequence_ids).cast("q")[i:j])
    head = b"\x08" + varint(producer_id) + b"\x10"
    ledger = b"\x08" + varint(ledger_id) + b"\x10"
    before: dict[int, bytes] = {}  # bytes before the sequence id, by the size of the varying fields
    between: dict[int, bytes] = {}  # sequence id to entry id, by the size of the entry id
    out: list[bytes] = []
    for sequence, entry, high in zip(sequences, ids, highest, strict=True):
        varying = len(sequence) + len(entry) + len(high)
        start = before.get(varying)
        if start is None:
            size = len(head) + len(ledger) + varying + 3  # at most 61: one byte of length
            start = before[varying] = _HEAD.pack(size + 8, size + 4) + b"\x08\x07\x3a" + varint(size) + head
        middle = between.get(len(entry))
        if middle is None:
            middle = between[len(entry)] = b"\x1a" + varint(len(ledger) + len(entry)) + ledger
        out += (start, sequence, middle, entry, b"\x20", high)
    return b"".join(out)


def encode_messages(
    consumer_id: int,
    slab: bytes,
    record_offsets: bytes,
    i: int,
    j: int,
    partition: int,
    mode: int,
    consumer_epoch: int,
    redelivery_counts: Sequence[int] | None,
    /,
) -> bytes:
    where = memoryview(record_offsets).cast("q")
    view = memoryview(slab)
    head = b"\x08" + varint(consumer_id)
    tail = b"\x18" + varint(partition)
    epoch = b"\x28" + varint(consumer_epoch) if consumer_epoch >= 0 else b""
    out: list[bytes | memoryview] = []
    for k in range(i, j):
        _, _, ledger, entry, _ = RECORD_HEADER.unpack_from(view, where[k])
        body = view[where[k] + RECORD_HEADER.size : where[k + 1]]
        ident = b"\x08" + varint(ledger) + b"\x10" + varint(entry) + tail
        message = head + b"\x12" + varint(len(ident)) + ident
        if redelivery_counts is not None and redelivery_counts[k - i] > 0:
            message += b"\x18" + varint(redelivery_counts[k - i])
        message += epoch
        command = b"\x08\x09\x4a" + varint(len(message)) + message
        payload = as_sent(body, mode)
        out += [_HEAD.pack(4 + len(command) + len(payload), len(command)), command, payload]
    return b"".join(out)


def send_messages(
    fd: int,
    consumer_id: int,
    slab: bytes,
    record_offsets: bytes,
    i: int,
    j: int,
    partition: int,
    mode: int,
    consumer_epoch: int,
    /,
) -> bytes:
    frames = encode_messages(consumer_id, slab, record_offsets, i, j, partition, mode, consumer_epoch, None)
    try:
        return frames[os.write(fd, frames) :]
    except OSError:
        return frames


def encode_picked(
    consumer_id: int,
    slab: bytes,
    record_offsets: bytes,
    picks: bytes,
    partition: int,
    mode: int,
    consumer_epoch: int,
    /,
) -> tuple[bytes, int]:
    where, indexes = memoryview(record_offsets).cast("q"), memoryview(picks).cast("q")
    frames = [
        encode_messages(consumer_id, slab, record_offsets, k, k + 1, partition, mode, consumer_epoch, None)
        for k in indexes
    ]
    return b"".join(frames), sum(where[k + 1] - where[k] for k in indexes)


def as_sent(body: memoryview, mode: int) -> memoryview:
    """Return the part of an entry that a peer gets.

    mode: 0 without broker entry metadata, 1 as stored, 2 also without checksum.
    """
    if mode != 1:
        body = body[after_prefix(body) :]
    if mode == 2 and body[:2] == MAGIC_CHECKSUM:
        body = body[6:]
    return body


def after_prefix(body: Any) -> int:
    """Return the offset of headers and payload in an entry: behind a valid 0x0e02 part, if any."""
    if len(body) >= 6 and bytes(body[:2]) == MAGIC_ENTRY_METADATA:
        end = 6 + int(_U32.unpack_from(body, 2)[0])
        if end <= len(body):
            return end
    return 0


def entry_facts(slab: bytes, record_offsets: bytes, i: int, j: int, want_hash: bool, /) -> Facts:
    where = memoryview(record_offsets).cast("q")
    view = memoryview(slab)
    sizes, deliver, published, stamped, hashes, flags = (
        array("q"),
        array("q"),
        array("q"),
        array("q"),
        array("q"),
        array("I"),
    )
    any_flags = 0
    for k in range(i, j):
        body = view[where[k] + RECORD_HEADER.size : where[k + 1]]
        size, due, publish_time, timestamp, key_hash, flag = entry_fact(body, want_hash)
        sizes.append(size)
        deliver.append(due)
        published.append(publish_time)
        stamped.append(timestamp)
        hashes.append(key_hash)
        flags.append(flag)
        any_flags |= flag
    return Facts(
        sizes.tobytes(),
        deliver.tobytes() if any_flags & EntryFlag.HAS_DELIVER_AT else None,
        published.tobytes(),
        stamped.tobytes(),
        hashes.tobytes() if want_hash else None,
        flags.tobytes(),
        int(any_flags),
        sum(sizes),
    )


def entry_fact(body: bytes | memoryview, want_hash: int) -> tuple[int, int, int, int, int, int]:
    """Return message count, deliver_at, publish time, broker timestamp (-1: none), key hash (0: not wanted) and flags
    of a stored entry.
    """
    at = after_prefix(body)
    timestamp = _broker_timestamp(body, at)
    flag = 0
    if bytes(body[at : at + 2]) == MAGIC_CHECKSUM:
        flag |= _HAS_CHECKSUM
        at += 6
    metadata = metadata_of(body, at)
    if metadata is None:
        return 1, 0, 0, timestamp, 1 if want_hash else 0, flag | int(EntryFlag.UNREADABLE)
    flag |= metadata_flags(metadata)
    payload_bytes = len(body) - at - 4 - int(_U32.unpack_from(body, at)[0])
    return (
        messages_claimed(metadata, payload_bytes, packed=metadata.compression != 0 or bool(flag & _NAMES_FORMAT)),
        metadata.deliver_at_time,
        signed(metadata.publish_time),
        timestamp,
        murmur3_32(_sticky_key(metadata)) if want_hash else 0,
        flag,
    )


def messages_claimed(metadata: pb.MessageMetadata, payload_bytes: int, *, packed: bool) -> int:
    """Return the message count of an entry: num_messages_in_batch, or 1 when the bytes cannot hold so many messages.

    Permits and unacknowledged messages are counted with this number: an unchecked claim of 2^31-1 messages would use
    up all permits that a consumer ever gives.
    """
    claim = metadata.num_messages_in_batch
    room = payload_bytes * (MOST_COMPRESSION if packed else 1)
    return claim if claim > 1 and claim * LEAST_MESSAGE_BYTES <= room else 1


def _broker_timestamp(body: bytes | memoryview, prefix_bytes: int) -> int:
    if not prefix_bytes:
        return -1
    try:
        metadata = pb.BrokerEntryMetadata.FromString(bytes(body[6:prefix_bytes]))
    except DecodeError:
        return -1
    return signed(metadata.broker_timestamp) if metadata.HasField("broker_timestamp") else -1


def _sticky_key(metadata: pb.MessageMetadata) -> bytes:
    """Return the ordering key, else the partition key, else producer name and sequence id."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = _raw(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key, validate=True)
            except binascii.Error:
                return key
        return key
    return _raw(metadata.producer_name) + b"-%d" % metadata.sequence_id


def _raw(text: str | bytes) -> bytes:
    """Return the received bytes of a string field; for invalid UTF-8 the protobuf runtime gives bytes already."""
    return text if isinstance(text, bytes) else text.encode()
