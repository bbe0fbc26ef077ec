"""From Kafka record sets to Pulsar entries, for protocol handlers and for imports.

    plan_entry(record_set, ...) -> PlannedEntry(data, messages, sequence ids)   the bytes to append as they are

The record set is stored byte for byte behind MessageMetadata{entry.format=kafka, num_messages_in_batch=span}; nothing
is decompressed for magic 2. The append must count `messages`, so that indexes and Kafka offsets agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from magnetar.converters.entry import ENTRY_FORMAT, build_entry
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import InvalidRecordError
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.record_set import Batch, RecordSet
from magnetar.converters.kafka_entry.slots import record_count, span_of
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

if TYPE_CHECKING:
    from magnetar.converters.kafka.framing import Buffer


@dataclass(frozen=True, slots=True)
class PlannedEntry:
    """One entry to append: headers-and-payload bytes, its message count and the sequence ids for deduplication."""

    data: bytes
    messages: int
    producer_name: str
    sequence_id: int
    highest_sequence_id: int


def message_count(batch: Batch, *, gaps: bool = True) -> int:
    """Return the message count of a record set's entry: with `gaps` its span of offsets, else its number of records."""
    if isinstance(batch, RecordBatch):
        return span_of(batch) if gaps else record_count(batch)
    if batch.codec is Codec.NONE:
        return 1
    offsets = batch.inner_offsets(batch.inner_set())
    if not gaps or any(left >= right for left, right in pairwise(offsets)):
        return len(offsets)
    return offsets[-1] - offsets[0] + 1


def plan_entry(
    record_set: Buffer,
    *,
    publish_time: int,
    producer_name: str = "",
    sequence_id: int = 0,
    highest_sequence_id: int | None = None,
    gaps: bool = True,
) -> PlannedEntry:
    """Wrap a whole record set; checksums of its entries are verified.

    Args:    publish_time in ms, from the caller's clock.
             gaps: count offsets without a record, too, so that index arithmetic gives Kafka offsets; such offsets
             become holes. False counts records only: no holes, so all clients acknowledge alike.
    Raises:  InvalidRecordError when the set is cut, empty or spans no offset; CrcMismatchError; KafkaFormatError.
    """
    view = RecordSet(record_set)
    view.ensure_whole()
    messages = 0
    for batch in view.batches():
        batch.ensure_valid()
        messages += message_count(batch, gaps=gaps)
    if messages == 0:
        raise InvalidRecordError("the record set holds no messages")
    return frame_entry(
        record_set,
        messages,
        publish_time=publish_time,
        producer_name=producer_name,
        sequence_id=sequence_id,
        highest_sequence_id=highest_sequence_id,
    )


def frame_entry(
    record_set: Buffer,
    messages: int,
    *,
    publish_time: int,
    producer_name: str = "",
    sequence_id: int = 0,
    highest_sequence_id: int | None = None,
) -> PlannedEntry:
    """Make the entry as `plan_entry` does, from a record set that has been checked and counted."""
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        num_messages_in_batch=messages,
    )
    metadata.properties.add(key=ENTRY_FORMAT, value="kafka")
    highest = sequence_id if highest_sequence_id is None else highest_sequence_id
    if highest != sequence_id:
        metadata.highest_sequence_id = highest
    data = build_entry(metadata.SerializeToString(), record_set)
    return PlannedEntry(data, messages, producer_name, sequence_id, highest)
