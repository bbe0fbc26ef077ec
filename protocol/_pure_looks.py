"""The fields of a SEND and its entry, in Python: the part of `_pure` that reads commands and metadata."""

from __future__ import annotations

import struct
from itertools import islice
from operator import attrgetter
from typing import Any

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.runs import EntryFlag

MAGIC_CHECKSUM = b"\x0e\x01"
PROPERTIES_LOOKED_AT = 4096
"""An entry names its format in one of its first properties: an object for each of a million takes 0.3 s."""
_KEY = attrgetter("key")
_U32 = struct.Struct(">I")
_MOST_BYTES = 1 << 20
_MOST_SEND_BYTES = 1 << 16
"""Larger commands are invalid: beside a SEND, or in front of the type, a frame of 5 MB has room for 800,000 ids of
messages, which take the parser 0.1 s.
"""
_HAS_CHECKSUM = int(EntryFlag.HAS_CHECKSUM)
_BAD_CHECKSUM = int(EntryFlag.BAD_CHECKSUM)


def signed(value: int) -> int:
    """Return a u64 of the wire as int64."""
    return value - (1 << 64) if value >> 63 else value


def command_type(command: bytes) -> int:
    """Return BaseCommand.type, nearly always the first field, in one byte or two; -1 when the field is missing."""
    if len(command) >= 2 and command[0] == 8 and command[1] < 128:
        return command[1]
    if len(command) > _MOST_BYTES:
        return -1
    try:
        base = pb.BaseCommand.FromString(command)
    except DecodeError:
        return -1
    return base.type if base.HasField("type") else -1


def parse_send(command: bytes) -> pb.CommandSend | None:
    if len(command) > _MOST_SEND_BYTES:
        return None
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
    if send.HasField("txnid_least_bits") and send.HasField("txnid_most_bits"):
        flags |= EntryFlag.TXN
    if send.HasField("highest_sequence_id"):
        flags |= EntryFlag.HAS_HIGHEST
    if send.HasField("message_id"):
        flags |= EntryFlag.SHADOW
    return int(flags)


def send_fields(command: bytes) -> tuple[int, int, int, int, int] | None:
    """Return producer id, sequence id, highest sequence id, messages and flags of a SEND; None when the SEND does not
    parse.
    """
    send = parse_send(command)
    if send is None:
        return None
    return send.producer_id, send.sequence_id, send.highest_sequence_id, send.num_messages, _send_flags(send)


def look_at_metadata(data: bytes) -> tuple[int, int]:
    """Return flags and deliver_at_time of a MessageMetadata."""
    metadata = parse_metadata(data)
    if metadata is None:
        return int(EntryFlag.UNREADABLE), 0
    return metadata_flags(metadata), metadata.deliver_at_time


def look_at(send: pb.CommandSend, entry: bytes | memoryview) -> tuple[int, int]:
    """Return flags and deliver_at_time of an entry."""
    flags = _send_flags(send)
    at = 0
    if entry[:2] == MAGIC_CHECKSUM:
        if len(entry) < 6:
            return flags | EntryFlag.NO_ENTRY, 0
        flags |= _HAS_CHECKSUM
        at = 6
        if crc32c(memoryview(entry)[6:]) != _U32.unpack_from(entry, 2)[0]:
            return flags | _BAD_CHECKSUM, 0
    elif len(entry) < 2:  # too short for a magic number
        return flags | EntryFlag.NO_ENTRY, 0
    metadata = metadata_of(entry, at)
    if metadata is None:
        return flags | EntryFlag.UNREADABLE, 0
    return flags | metadata_flags(metadata), metadata.deliver_at_time


def metadata_of(entry: Any, at: int) -> pb.MessageMetadata | None:
    if len(entry) < at + 4:
        return None
    (size,) = _U32.unpack_from(entry, at)
    if size > len(entry) - at - 4:
        return None
    return parse_metadata(bytes(entry[at + 4 : at + 4 + size]))


def parse_metadata(data: bytes) -> pb.MessageMetadata | None:
    try:
        metadata = pb.MessageMetadata.FromString(data)
    except DecodeError:
        return None
    return metadata if metadata.IsInitialized() else None  # FromString does not check required fields


def metadata_flags(metadata: pb.MessageMetadata) -> int:
    flags = 0
    if metadata.HasField("marker_type"):
        flags |= EntryFlag.MARKER
    if metadata.HasField("num_messages_in_batch"):
        flags |= EntryFlag.BATCHED
    if metadata.HasField("deliver_at_time"):
        flags |= EntryFlag.HAS_DELIVER_AT
    if "entry.format" in map(_KEY, islice(metadata.properties, PROPERTIES_LOOKED_AT)):
        flags |= EntryFlag.NAMES_FORMAT
    if metadata.encryption_keys:
        flags |= EntryFlag.ENCRYPTED
    if metadata.HasField("chunk_id") and metadata.chunk_id not in (-1, metadata.num_chunks_from_msg - 1):
        flags |= EntryFlag.NOT_LAST_CHUNK
    return int(flags)
