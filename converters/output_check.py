"""Checks that an output is readable for every Pulsar client and keeps message count and identity (G3, G4, G5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from magnetar.converters.entry import ENTRY_FORMAT, declared_messages
from magnetar.protocol.pulsar_api_pb2 import NONE, MessageMetadata, SingleMessageMetadata

if TYPE_CHECKING:
    from magnetar.converters.interface import Conversion

KEPT_FIELDS = (
    "producer_name",
    "sequence_id",
    "highest_sequence_id",
    "publish_time",
    "deliver_at_time",
    "txnid_least_bits",
    "txnid_most_bits",
    "schema_version",
    "replicated_from",
)
"""The fields that identify and time a message; a converter copies them (guarantee G5)."""


class InvalidOutputError(Exception):
    """The output breaks a rule. The chain turns this error into a ConversionFailure."""


def check_output(stored: MessageMetadata, conversion: Conversion) -> None:
    """Raises: InvalidOutputError with the first rule that `conversion` of `stored` breaks."""
    metadata, payload = conversion.metadata, conversion.payload
    if not isinstance(metadata, MessageMetadata) or not isinstance(payload, bytes | bytearray | memoryview):
        raise InvalidOutputError("convert returned neither metadata nor payload")
    _check_metadata(stored, metadata)
    count = declared_messages(metadata)
    if count != declared_messages(stored):
        raise InvalidOutputError(f"{count} messages out, {declared_messages(stored)} in")
    if metadata.HasField("num_messages_in_batch"):
        _check_batch(bytes(payload), count, conversion.holes)
    elif conversion.holes:
        raise InvalidOutputError("holes in an entry that is no batch")


def _check_metadata(stored: MessageMetadata, metadata: MessageMetadata) -> None:
    if not metadata.IsInitialized():
        raise InvalidOutputError("required metadata fields are missing")
    for field in KEPT_FIELDS:
        if getattr(metadata, field) != getattr(stored, field) or metadata.HasField(field) != stored.HasField(field):
            raise InvalidOutputError(f"{field} was changed")
    if metadata.compression != NONE or metadata.encryption_keys or metadata.HasField("chunk_id"):
        raise InvalidOutputError("the output must be plain: no compression, encryption or chunk")
    if any(pair.key == ENTRY_FORMAT for pair in metadata.properties):
        raise InvalidOutputError(f"property {ENTRY_FORMAT} must be removed")


def _check_batch(payload: bytes, count: int, holes: tuple[int, ...]) -> None:
    pos, size = 0, len(payload)
    found: list[int] = []
    parse = SingleMessageMetadata.FromString
    try:
        for index in range(count):
            start = pos + 4
            pos = start + int.from_bytes(payload[pos:start], "big")
            single = parse(payload[start:pos])
            if single.compacted_out:
                found.append(index)
            if single.payload_size <= 0 and (single.payload_size or not single.HasField("payload_size")):
                raise InvalidOutputError(f"message {index} has no payload size or a negative one")
            pos += single.payload_size
            if pos > size:
                raise InvalidOutputError(f"message {index} of {count} leaves the payload")
    except DecodeError as error:
        raise InvalidOutputError(f"SingleMessageMetadata cannot be parsed: {error}") from error
    if pos != size:
        raise InvalidOutputError(f"{size - pos} bytes follow the last message")
    if tuple(found) != holes:
        raise InvalidOutputError(f"compacted_out at {found[:8]}, declared holes {list(holes[:8])}")
