"""The pure-Python twin of `_speedups`: the same functions, the same results, slower.
See `speed` for what each one does.
"""

from __future__ import annotations

import base64
import binascii
import operator
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure_records import (
    MAGIC_ENTRY_METADATA,
    RECORD_HEADER,
    entry_prefix,
    scan_records,
    stamp,
    varint,
)
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.key_hash import murmur3_32
from magnetar.protocol.runs import EntryFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COMPILED",
    "MAGIC_CHECKSUM",
    "RECORD_HEADER",
    "Facts",
    "after_prefix",
    "as_sent",
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
]

COMPILED = False
MAGIC_CHECKSUM = b"\x0e\x01"
_U32 = struct.Struct(">I")
_HEAD = struct.Struct(">II")
_SEND = pb.BaseCommand.SEND

_HAS_CHECKSUM = int(EntryFlag.HAS_CHECKSUM)
_BAD_CHECKSUM = int(EntryFlag.BAD_CHECKSUM)


class Facts(NamedTuple):
    """What `entry_facts` returns."""

    batch_sizes: bytes
    deliver_at: bytes | None
    publish_time: bytes
    broker_timestamp: bytes
    key_hashes: bytes | None
    flags: bytes
    any_flags: int
    total_messages: int


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


# --- cut ---------------------------------------------------------------------------------------------------------


class _Run:
    """A run being collected."""

    __slots__ = ("counts", "deliver_at", "flags", "highest", "offsets", "parts", "producer_id", "sequences", "size")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.parts: list[bytes] = []
        self.size = 0
        self.offsets = array("q", [0])
        self.sequences = array("q")
        self.highest = array("q")
        self.counts = array("q")
        self.deliver_at = array("q")
        self.flags = array("I")

    def add(self, send: pb.CommandSend, entry: bytes, flags: int, deliver_at: int) -> None:
        self.parts.append(entry)
        self.size += len(entry)
        self.offsets.append(self.size)
        self.sequences.append(_signed(send.sequence_id))
        highest = send.highest_sequence_id
        self.highest.append(_signed(highest) if highest >= send.sequence_id else 0)  # below it means there is none
        self.counts.append(send.num_messages)
        self.deliver_at.append(deliver_at)
        self.flags.append(flags)

    def done(self) -> tuple[Any, ...]:
        any_flags, all_flags = 0, 0xFFFFFFFF
        for flag in set(self.flags):
            any_flags |= flag
            all_flags &= flag
        sequences = self.sequences
        return (
            self.producer_id,
            len(self.flags),
            b"".join(self.parts),
            self.offsets.tobytes(),
            sequences.tobytes(),
            self.highest.tobytes(),
            self.counts.tobytes(),
            self.deliver_at.tobytes() if any_flags & EntryFlag.HAS_DELIVER_AT else None,
            self.flags.tobytes(),
            any_flags,
            all_flags,
            sum(n for n in self.counts if n > 0),
            all(map(operator.lt, sequences, sequences[1:])),
        )


def cut(buffer: Any, start: int, end: int, max_frame_bytes: int, /) -> tuple[int, list[tuple[Any, ...]], str | None]:
    items: list[tuple[Any, ...]] = []
    run: _Run | None = None
    view = memoryview(buffer)
    at = start
    error: str | None = None
    while end - at >= 4:
        (total,) = _U32.unpack_from(view, at)
        if total + 4 > max_frame_bytes:
            error = f"frame of {total} bytes is larger than the limit"
            break
        if total < 4:
            error = f"frame of {total} bytes holds no command"
            break
        if end - at < 4 + total:
            break
        (size,) = _U32.unpack_from(view, at + 4)
        if size == 0 or size > total - 4:
            error = f"command of {size} bytes in a frame of {total}"
            break
        command = bytes(view[at + 8 : at + 8 + size])
        kind = _command_type(command)
        if kind < 0:
            error = "command without a known type"
            break
        if kind == _SEND:
            send = _parse_send(command)
            if send is None:
                error = "SEND does not parse"
                break
            if run is None or run.producer_id != send.producer_id:
                if run is not None:
                    items.append(run.done())
                run = _Run(send.producer_id)
            entry = bytes(view[at + 8 + size : at + 4 + total])
            run.add(send, entry, *_look_at(send, entry))
        else:
            if run is not None:
                items.append(run.done())
                run = None
            items.append((kind, command))
        at += 4 + total
    if run is not None:
        items.append(run.done())
    return at, items, error


def _command_type(command: bytes) -> int:
    """BaseCommand.type: nearly always the first field, in one byte or two; -1 when there is none."""
    if len(command) >= 2 and command[0] == 8 and command[1] < 128:
        return command[1]
    try:
        base = pb.BaseCommand.FromString(command)
    except DecodeError:
        return -1
    return base.type if base.HasField("type") else -1


def _parse_send(command: bytes) -> pb.CommandSend | None:
    try:
        base = pb.BaseCommand.FromString(command)
    except DecodeError:
        return None
    return base.send if base.HasField("send") and base.IsInitialized() else None


def _send_flags(send: pb.CommandSend) -> int:
    flags = 0
    if send.is_chunk:
        flags |= EntryFlag.CHUNK
    if send.marker:
        flags |= EntryFlag.MARKER
    if send.HasField("txnid_least_bits") or send.HasField("txnid_most_bits"):
        flags |= EntryFlag.TXN
    if send.HasField("highest_sequence_id"):
        flags |= EntryFlag.HAS_HIGHEST
    if send.HasField("message_id"):
        flags |= EntryFlag.SHADOW
    return int(flags)


def send_fields(command: bytes) -> tuple[int, int, int, int, int] | None:
    """Producer id, sequence id, highest sequence id, messages and flags of a SEND; None when it does not parse."""
    send = _parse_send(command)
    if send is None:
        return None
    return send.producer_id, send.sequence_id, send.highest_sequence_id, send.num_messages, _send_flags(send)


def look_at_metadata(data: bytes) -> tuple[int, int]:
    """Flags and deliver_at_time of a MessageMetadata."""
    metadata = _parse_metadata(data)
    if metadata is None:
        return int(EntryFlag.UNREADABLE), 0
    return _metadata_flags(metadata), metadata.deliver_at_time


def _look_at(send: pb.CommandSend, entry: bytes) -> tuple[int, int]:
    """Flags and deliver_at_time of an entry."""
    flags = _send_flags(send)
    at = 0
    if entry[:2] == MAGIC_CHECKSUM:
        if len(entry) < 6:
            return flags | EntryFlag.NO_ENTRY, 0
        flags |= _HAS_CHECKSUM
        at = 6
        if crc32c(memoryview(entry)[6:]) != _U32.unpack_from(entry, 2)[0]:
            return flags | _BAD_CHECKSUM, 0
    elif not entry:
        return flags | EntryFlag.NO_ENTRY, 0
    metadata = _metadata(entry, at)
    if metadata is None:
        return flags | EntryFlag.UNREADABLE, 0
    return flags | _metadata_flags(metadata), metadata.deliver_at_time


def _metadata(entry: Any, at: int) -> pb.MessageMetadata | None:
    if len(entry) < at + 4:
        return None
    (size,) = _U32.unpack_from(entry, at)
    if size > len(entry) - at - 4:
        return None
    return _parse_metadata(bytes(entry[at + 4 : at + 4 + size]))


def _parse_metadata(data: bytes) -> pb.MessageMetadata | None:
    try:
        metadata = pb.MessageMetadata.FromString(data)
    except DecodeError:
        return None
    return metadata if metadata.IsInitialized() else None  # the runtime parses without a look at required fields


def _metadata_flags(metadata: pb.MessageMetadata) -> int:
    flags = 0
    if metadata.HasField("marker_type"):
        flags |= EntryFlag.MARKER
    if metadata.HasField("num_messages_in_batch"):
        flags |= EntryFlag.BATCHED
    if metadata.HasField("deliver_at_time"):
        flags |= EntryFlag.HAS_DELIVER_AT
    if metadata.properties:
        flags |= EntryFlag.HAS_PROPERTIES
    if metadata.encryption_keys:
        flags |= EntryFlag.ENCRYPTED
    if metadata.HasField("chunk_id") and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
        flags |= EntryFlag.NOT_LAST_CHUNK
    return int(flags)


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
    sequences = memoryview(sequence_ids).cast("q")
    highest = memoryview(highest_sequence_ids).cast("q")
    head = b"\x08" + varint(producer_id) + b"\x10"
    ledger = b"\x08" + varint(ledger_id) + b"\x10"
    out: list[bytes] = []
    for k in range(i, j):
        ident = ledger + varint(first_entry_id + (k - i) * step)
        body = head + varint(sequences[k]) + b"\x1a" + varint(len(ident)) + ident + b"\x20" + varint(highest[k])
        command = b"\x08\x07\x3a" + varint(len(body)) + body
        out += [_HEAD.pack(len(command) + 4, len(command)), command]
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


def as_sent(body: memoryview, mode: int) -> memoryview:
    """An entry as a peer gets it: 0 without broker entry metadata, 1 as stored, 2 also without checksum."""
    if mode != 1:
        body = body[after_prefix(body) :]
    if mode == 2 and body[:2] == MAGIC_CHECKSUM:
        body = body[6:]
    return body


def after_prefix(body: Any) -> int:
    """Where headers and payload begin in an entry: behind the 0x0e02 part if there is one that fits."""
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
    """Batch size, deliver_at, publish time, broker timestamp, key hash (0: not wanted) and flags of a stored
    entry.
    """
    at = after_prefix(body)
    timestamp = _broker_timestamp(body, at)
    flag = 0
    if bytes(body[at : at + 2]) == MAGIC_CHECKSUM:
        flag |= _HAS_CHECKSUM
        at += 6
    metadata = _metadata(body, at)
    if metadata is None:
        return 1, 0, 0, timestamp, 1 if want_hash else 0, flag | int(EntryFlag.UNREADABLE)
    return (
        max(metadata.num_messages_in_batch, 1),
        metadata.deliver_at_time,
        _signed(metadata.publish_time),
        timestamp,
        murmur3_32(_sticky_key(metadata)) if want_hash else 0,
        flag | _metadata_flags(metadata),
    )


def _broker_timestamp(body: bytes | memoryview, prefix_bytes: int) -> int:
    if not prefix_bytes:
        return -1
    try:
        metadata = pb.BrokerEntryMetadata.FromString(bytes(body[6:prefix_bytes]))
    except DecodeError:
        return -1
    return _signed(metadata.broker_timestamp) if metadata.HasField("broker_timestamp") else -1


def _sticky_key(metadata: pb.MessageMetadata) -> bytes:
    """Ordering key, else partition key, else producer name and sequence id (reference F.2)."""
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
    """A string of the wire as it came: the runtime gives bytes for what is no UTF-8."""
    return text if isinstance(text, bytes) else text.encode()
