"""Rewrites a record set in another magic; offsets do not change.

| from -> to  | lost or added                                                                                     |
|-------------|---------------------------------------------------------------------------------------------------|
| 2 -> 1, 0   | headers, producer id, epoch and sequence, leader epoch; control batches (unknown to old clients)   |
| 1 -> 0      | timestamps                                                                                        |
| 0 -> 1, 2   | nothing; records get timestamp -1                                                                 |
| 1 -> 2      | nothing                                                                                           |

Every entry keeps its codec; runs of plain messages become one batch. Source: the down-conversion of Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import MAX_DECOMPRESSED_BYTES, Codec
from magnetar.converters.kafka.errors import UnsupportedMagicError
from magnetar.converters.kafka.message import Message
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.record_set import Batch, RecordSet
from magnetar.converters.kafka.records import NO_TIMESTAMP, Record, TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.converters.kafka.framing import Buffer


@dataclass(frozen=True, slots=True)
class MagicConversion:
    """A converted set, and the numbers of headers and control batches that the new magic cannot carry."""

    buffer: bytes
    dropped_headers: int = 0
    dropped_control_batches: int = 0


def convert_magic(
    buffer: Buffer, magic: int, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> MagicConversion:
    """Rewrite the complete entries of `buffer` in `magic`; copy entries that already have this magic.

    Raises: UnsupportedMagicError; UnsupportedCompressionError for zstd below magic 2; errors of reading.
    """
    if magic not in (0, 1, 2):
        raise UnsupportedMagicError(magic)
    parts: list[bytes] = []
    headers = controls = 0
    for group in _groups(RecordSet(buffer), magic):
        head = group[0]
        if head.magic == magic:
            parts += [bytes(batch.buffer) for batch in group]
        elif isinstance(head, RecordBatch) and head.is_control:
            controls += 1
        else:
            records = [record for batch in group for record in _valid_records(batch, max_decompressed_bytes)]
            if magic < 2:
                headers += sum(len(record.headers) for record in records)
                records = [record._replace(headers=()) for record in records]
            parts.append(_write(records, head, magic))
    return MagicConversion(b"".join(parts), headers, controls)


def _groups(record_set: RecordSet, magic: int) -> Iterator[list[Batch]]:
    """Yield groups of entries: plain messages that may share a batch, or a single entry."""
    group: list[Batch] = []
    for batch in record_set.batches():
        if group and not (magic == 2 and _joinable(group[-1], batch)):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _joinable(left: Batch, right: Batch) -> bool:
    return (
        isinstance(left, Message)
        and isinstance(right, Message)
        and left.codec is right.codec is Codec.NONE
        and left.magic == right.magic
        and left.timestamp_type is right.timestamp_type
        # One batch has one append time.
        and (left.timestamp_type is not TimestampType.LOG_APPEND_TIME or left.max_timestamp == right.max_timestamp)
        and 0 < right.offset - left.offset < 1 << 20
    )


def _valid_records(batch: Batch, max_decompressed_bytes: int) -> Iterator[Record]:
    batch.ensure_valid()
    return batch.records(max_decompressed_bytes)


def _write(records: list[Record], head: Batch, magic: int) -> bytes:
    append_time = head.max_timestamp if head.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    if magic == 2:
        return build_record_batch(records, BatchOptions(codec=head.codec, append_time=append_time))
    if magic == 0:
        records = [record._replace(timestamp=NO_TIMESTAMP) for record in records]
        append_time = None
    return build_message_set(records, magic, codec=head.codec, append_time=append_time)
