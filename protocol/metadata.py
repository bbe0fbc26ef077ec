"""MessageMetadata of a stored entry."""

from __future__ import annotations

from struct import Struct

from google.protobuf.message import DecodeError

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import speed
from magnetar.protocol._pure import RECORD_HEADER, Facts, after_prefix
from magnetar.protocol._pure_looks import MAGIC_CHECKSUM, metadata_of

_ENDS = Struct("=qq")


def parse_metadata(body: memoryview | bytes) -> pb.MessageMetadata | None:
    """The metadata of an entry as it is stored (with or without broker entry metadata); None when it is unreadable."""
    return split_entry(body)[0]


def split_entry(body: memoryview | bytes) -> tuple[pb.MessageMetadata | None, memoryview]:
    """Metadata and payload of an entry as it is stored; (None, empty) when the metadata is unreadable."""
    view = memoryview(body)
    at = after_prefix(view)
    if bytes(view[at : at + 2]) == MAGIC_CHECKSUM:
        at += 6
    metadata = metadata_of(view, at)
    if metadata is None:
        return None, view[:0]
    size = int.from_bytes(view[at : at + 4], "big")
    return metadata, view[at + 4 + size :]


def metadata_bytes(body: memoryview | bytes) -> int:
    """Return the size of the metadata of an entry as it is stored: the cost of `split_entry`, which takes a tenth of a
    second for some megabytes of short properties. 0 when the entry has no metadata.
    """
    at = after_prefix(body)
    if bytes(body[at : at + 2]) == MAGIC_CHECKSUM:
        at += 6
    size = int.from_bytes(body[at : at + 4], "big")
    return size if size <= len(body) - at - 4 else 0


def counted_messages(body: memoryview | bytes) -> int:
    """Return how many messages an entry counts as, and so how many permits it uses: the number that it declares, or 1
    when its bytes cannot hold so many messages.
    """
    return facts_of(body).total_messages


def facts_of(body: memoryview | bytes) -> Facts:
    """Return the facts of a single entry as it is stored; compiled, so that they are cheap for any metadata."""
    record = bytes(RECORD_HEADER.size) + body
    return speed.entry_facts(record, _ENDS.pack(0, len(record)), 0, 1, False)


def parse_entry_metadata(body: memoryview | bytes) -> pb.BrokerEntryMetadata | None:
    """Return the broker entry metadata of an entry; None when absent, or unreadable (a client may send such bytes)."""
    end = after_prefix(body)
    try:
        return pb.BrokerEntryMetadata.FromString(bytes(body[6:end])) if end else None
    except DecodeError:
        return None


__all__ = ["counted_messages", "facts_of", "metadata_bytes", "parse_entry_metadata", "parse_metadata", "split_entry"]
