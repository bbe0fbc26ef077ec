"""Writing magic 2 record batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.converters.kafka import record_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import InvalidRecordError, InvalidTimestampError
from magnetar.converters.kafka.framing import LOG_OVERHEAD
from magnetar.converters.kafka.records import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Record, encode_record
from magnetar.protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT32_MAX = 0x7FFFFFFF
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The fields of a batch beside its records.

    append_time: LogAppendTime in ms; None = CreateTime. The deltas keep the records' own timestamps, which readers
        then ignore.
    delete_horizon: sets attribute bit 6 and takes the place of the base timestamp (stored logs only, KIP-534).
    last_offset_delta, max_timestamp: None = the values of the records; compaction keeps the old values.
    """

    codec: Codec = Codec.NONE
    append_time: int | None = None
    leader_epoch: int = -1
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    delete_horizon: int | None = None
    base_offset: int | None = None
    last_offset_delta: int | None = None
    max_timestamp: int | None = None

    def attributes(self) -> int:
        bits = int(self.codec)
        bits |= record_batch.LOG_APPEND_TIME_BIT if self.append_time is not None else 0
        bits |= record_batch.TRANSACTIONAL_BIT if self.transactional else 0
        bits |= record_batch.CONTROL_BIT if self.control else 0
        return bits | (record_batch.DELETE_HORIZON_BIT if self.delete_horizon is not None else 0)


DEFAULT_OPTIONS = BatchOptions()


def build_record_batch(records: Sequence[Record], options: BatchOptions = DEFAULT_OPTIONS) -> bytes:
    """Return one batch of `records`, whose offsets must ascend; gaps between offsets stay.

    The base offset is the offset of the first record unless `options` gives another; without records, `options` must
    give it.
    Raises: InvalidRecordError for offsets that do not ascend or span more than int32; InvalidTimestampError for
            timestamps whose difference needs more than 64 bits.
    """
    base_offset = options.base_offset
    if base_offset is None:
        if not records:
            raise InvalidRecordError("a batch without records needs a base offset")
        base_offset = records[0].offset
    base_timestamp = options.delete_horizon
    if base_timestamp is None:
        base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    parts: list[bytes] = []
    delta = -1
    for offset, timestamp, key, value, headers in records:
        if not delta < offset - base_offset <= _INT32_MAX:
            raise InvalidRecordError(f"offset {offset} does not follow {base_offset + delta} in one batch")
        delta = offset - base_offset
        time_delta = timestamp - base_timestamp
        if not -_INT64 <= time_delta < _INT64:
            raise InvalidTimestampError(f"timestamps {base_timestamp} and {timestamp} are too far apart for one batch")
        parts.append(encode_record(time_delta, delta, key, value, headers))
    if options.last_offset_delta is not None:
        delta = max(delta, options.last_offset_delta)
    max_timestamp = options.max_timestamp if options.append_time is None else options.append_time
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    body = b"".join(parts)
    if records:
        body = compress(options.codec, body)
    return _frame(body, options, (base_offset, delta, base_timestamp, max_timestamp, len(records)))


def _frame(body: bytes, options: BatchOptions, span: tuple[int, int, int, int, int]) -> bytes:
    """Put the header in front; `span` is (base offset, last offset delta, base and max timestamp, record count)."""
    base_offset, delta, base_timestamp, max_timestamp, count = span
    size = record_batch.HEADER_BYTES + len(body)
    batch = bytearray(size)
    record_batch.HEADER.pack_into(
        batch,
        0,
        base_offset,
        size - LOG_OVERHEAD,
        options.leader_epoch,
        2,
        0,
        options.attributes(),
        delta,
        base_timestamp,
        max_timestamp,
        options.producer_id,
        options.producer_epoch,
        options.base_sequence,
        count,
    )
    batch[record_batch.HEADER_BYTES :] = body
    seal_batch(batch, 0, size)
    return bytes(batch)


def seal_batch(buffer: bytearray | memoryview, start: int, end: int) -> None:
    """Compute and store the CRC-32C of the batch at buffer[start:end]."""
    crc = crc32c(memoryview(buffer)[start + record_batch.CHECKED_FROM : end])
    buffer[start + record_batch.CRC_FIELD : start + record_batch.CRC_FIELD + 4] = crc.to_bytes(4, "big")


def patch_batch(buffer: bytearray, start: int, base_offset: int, leader_epoch: int | None) -> None:
    """Set base offset and leader epoch in place. Neither is covered by the CRC, so nothing else changes."""
    buffer[start : start + 8] = base_offset.to_bytes(8, "big", signed=True)
    if leader_epoch is not None:
        buffer[start + 12 : start + 16] = leader_epoch.to_bytes(4, "big", signed=True)


def stamp_batch(buffer: bytearray, start: int, end: int, max_timestamp: int, *, log_append: bool) -> None:
    """Set the max timestamp in place, turn the batch into LogAppendTime on request, and compute the new CRC."""
    if log_append:
        buffer[start + 22] |= record_batch.LOG_APPEND_TIME_BIT
    buffer[start + 35 : start + 43] = max_timestamp.to_bytes(8, "big", signed=True)
    seal_batch(buffer, start, end)
