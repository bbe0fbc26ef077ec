"""MessageMetadata of a stored entry."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.protocol import entry_columns, speed
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol._pure import RECORD_HEADER, Facts, after_prefix
from magnetar.protocol._pure_looks import MAGIC_CHECKSUM, metadata_of
from magnetar.protocol.entry_columns import ColumnFlag, EntryColumn, EntryStatus
from magnetar.protocol.message_id import signed

_ENDS = Struct("=qq")
_END = Struct("=q")
_MANY_BYTES = 64 * 1024


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


class Sequence(NamedTuple):
    """The fields of an entry by which deduplication judges. The ids are signed, as the broker compares them."""

    producer_name: str
    sequence_id: int
    highest_sequence_id: int
    is_marker: bool
    chunks: int
    chunk_id: int


def sequence_of(body: memoryview | bytes) -> Sequence | None:
    """Read a stored entry; None when its metadata are unreadable. Megabytes of metadata are read by the compiled
    helper, without an object for each property; unlike the parser it reads no metadata with groups, which no client
    writes.
    """
    if (row := _row_of_many_bytes(body)) is not None:
        if row[EntryColumn.STATUS] != EntryStatus.FINE:
            return None
        start, length = row[EntryColumn.PRODUCER_START], row[EntryColumn.PRODUCER_LENGTH]
        return Sequence(
            bytes(body[start : start + length]).decode("utf-8", "replace"),
            row[EntryColumn.SEQUENCE_ID],
            row[EntryColumn.HIGHEST_SEQUENCE_ID],
            bool(row[EntryColumn.FLAGS] & ColumnFlag.MARKER),
            row[EntryColumn.CHUNKS],
            row[EntryColumn.CHUNK_ID],
        )
    metadata = parse_metadata(body)
    if metadata is None:
        return None
    name: str | bytes = metadata.producer_name  # bytes for a text that is not UTF-8
    return Sequence(
        name if isinstance(name, str) else name.decode("utf-8", "replace"),
        signed(metadata.sequence_id),
        signed(metadata.highest_sequence_id),
        metadata.HasField("marker_type"),
        metadata.num_chunks_from_msg,
        metadata.chunk_id,
    )


def property_count(body: memoryview | bytes) -> int | None:
    """Return the number of properties of a stored entry with many bytes of metadata, to compare it with a bound before
    the parser makes an object for each; 0 for other entries, and without the compiled helper. None for many bytes of
    metadata that cannot be read so.
    """
    row = _row_of_many_bytes(body)
    if row is None:
        return 0
    return row[EntryColumn.PROPERTIES] if row[EntryColumn.STATUS] == EntryStatus.FINE else None


def _row_of_many_bytes(body: memoryview | bytes) -> memoryview | None:
    """The columns of an entry with many bytes of metadata; None for others, and without the compiled helper."""
    if not entry_columns.COMPILED or metadata_bytes(body) <= _MANY_BYTES:
        return None
    table = entry_columns.entry_columns(body, _END.pack(0), _END.pack(len(body)), False)
    return memoryview(table).cast("q")


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


__all__ = [
    "Sequence",
    "counted_messages",
    "facts_of",
    "metadata_bytes",
    "parse_entry_metadata",
    "parse_metadata",
    "property_count",
    "sequence_of",
    "split_entry",
]
