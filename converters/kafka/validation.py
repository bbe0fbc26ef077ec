"""The checks of a broker before it stores a produced record set. Assigning offsets is a separate step
(`assignment.py`).

| rule                                                                      | refusal                        |
|---------------------------------------------------------------------------|--------------------------------|
| no cut-off tail, at least one entry, one batch if `single_batch`          | InvalidRecordError             |
| entry and inner checksums                                                 | CrcMismatchError               |
| magic allowed for this topic                                              | UnsupportedMagicError          |
| codec allowed for this request                                            | UnsupportedCompressionError    |
| batch: last offset delta + 1 == record count > 0, deltas are 0, 1, 2, ... | InvalidRecordError             |
| batch: no control bit; a producer id comes with a base sequence           | InvalidRecordError             |
| message: inner magic = wrapper's, inner set whole                         | InvalidRecordError             |
| compacted topic: every record has a key                                   | InvalidRecordError             |
| timestamps: CreateTime from clients, inside the allowed window            | InvalidTimestampError          |

Source: the behaviour of Apache Kafka's LogValidator.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.converters.kafka.codecs import MAX_DECOMPRESSED_BYTES, Codec
from magnetar.converters.kafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from magnetar.converters.kafka.framing import Buffer, frames, valid_bytes
from magnetar.converters.kafka.message import Message, inner_messages
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.record_set import Batch, RecordSet
from magnetar.converters.kafka.records import NO_TIMESTAMP, TimestampType, checked_timestamp


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """The rules of this request and this topic.

    compacted: keys are required.   single_batch: Produce version 3 and later.   zstd: Produce version 7 and later.
    not_before, not_after: allowed CreateTime window in ms, absolute (the caller owns the clock); None = no limit.
    """

    magics: frozenset[int] = frozenset((0, 1, 2))
    compacted: bool = False
    single_batch: bool = False
    zstd: bool = True
    not_before: int | None = None
    not_after: int | None = None
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES


DEFAULT_RULES = ProduceRules()


@dataclass(frozen=True, slots=True)
class ValidatedEntry:
    """A valid entry.

    max_timestamp: the newest timestamp of its records.   restamp: the entry states another max timestamp (some
    producers write 0).   rebuild: its inner offsets must be rewritten before it can be stored.
    """

    start: int
    end: int
    magic: int
    codec: Codec
    message_count: int
    max_timestamp: int
    restamp: bool
    rebuild: bool


@dataclass(frozen=True, slots=True)
class ValidatedSet:
    """A record set that has passed all checks, with the facts that assignment needs."""

    buffer: Buffer
    entries: tuple[ValidatedEntry, ...]

    @property
    def message_count(self) -> int:
        return sum(entry.message_count for entry in self.entries)

    @property
    def max_timestamp(self) -> int:
        return max(entry.max_timestamp for entry in self.entries)

    @property
    def in_place(self) -> bool:
        """Whether assignment only patches bytes and decompresses no entry."""
        return not any(entry.rebuild for entry in self.entries)


def validate(buffer: Buffer, rules: ProduceRules = DEFAULT_RULES) -> ValidatedSet:
    """Check a produced record set completely; its bytes are not changed.

    Raises: KafkaFormatError subclasses as in the table above; `kafka_code` is the code of the answer.
    """
    RecordSet(buffer).ensure_whole()
    view = memoryview(buffer)
    entries: list[ValidatedEntry] = []
    for frame in frames(view):
        part = view[frame.start : frame.end]
        batch: Batch = RecordBatch(part) if frame.magic == 2 else Message(part)
        _check_entry(batch, rules)
        if isinstance(batch, RecordBatch):
            newest, count, rebuild = _check_batch(batch, rules), batch.count, False
        else:
            newest, count, rebuild = _check_message(batch, rules)
        restamp = newest != batch.max_timestamp
        entries.append(
            ValidatedEntry(frame.start, frame.end, frame.magic, batch.codec, count, newest, restamp, rebuild)
        )
    if not entries:
        raise InvalidRecordError("the record set is empty")
    if rules.single_batch and (len(entries) != 1 or entries[0].magic != 2):
        raise InvalidRecordError(f"exactly one record batch is expected, got {len(entries)} entries")
    return ValidatedSet(buffer, tuple(entries))


def _check_entry(batch: Batch, rules: ProduceRules) -> None:
    batch.ensure_valid()
    if batch.magic not in rules.magics:
        raise UnsupportedMagicError(batch.magic)
    if batch.codec is Codec.ZSTD and not rules.zstd:
        raise UnsupportedCompressionError("zstd needs Produce version 7")
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("clients must not send LogAppendTime")


def _check_batch(batch: RecordBatch, rules: ProduceRules) -> int:
    """Returns: the newest timestamp."""
    if batch.is_control:
        raise InvalidRecordError("clients must not write control batches")
    if batch.count <= 0 or batch.last_offset_delta + 1 != batch.count:
        raise InvalidRecordError(f"{batch.count} records do not match last offset delta {batch.last_offset_delta}")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecordError(f"producer id {batch.producer_id} without a sequence")
    base, newest = batch.base_timestamp, NO_TIMESTAMP
    records = batch.raw_records(rules.max_decompressed_bytes)
    for expected, (time_delta, delta, key, _value, _headers) in enumerate(records):
        if delta != expected:
            raise InvalidRecordError(f"offset delta {delta} where {expected} is expected")
        timestamp = checked_timestamp(base, time_delta)
        _check_record(key, timestamp, rules)
        newest = max(newest, timestamp)
    return newest


def _check_message(message: Message, rules: ProduceRules) -> tuple[int, int, bool]:
    """Returns: the newest timestamp, the number of messages, whether inner offsets must be rewritten."""
    if message.codec is Codec.NONE:
        _check_record(message.key_and_value()[0], message.max_timestamp, rules)
        return message.max_timestamp, 1, False
    inner_bytes = message.inner_set(rules.max_decompressed_bytes)
    if valid_bytes(inner_bytes) != len(inner_bytes):
        raise InvalidRecordError("the compressed message set is cut")
    offsets = message.inner_offsets(inner_bytes)
    message.inner_base(offsets[-1])
    newest = NO_TIMESTAMP
    for each in inner_messages(inner_bytes):
        each.ensure_valid()
        if each.magic != message.magic:
            raise InvalidRecordError(f"magic {each.magic} inside a magic {message.magic} message")
        _check_record(each.key_and_value()[0], each.max_timestamp, rules)
        newest = max(newest, each.max_timestamp)
    # Magic 0 keeps absolute offsets inside; some magic 1 producers write zeros: both must be rewritten.
    rebuild = message.magic == 0 or any(offset != expected for expected, offset in enumerate(offsets))
    return newest, len(offsets), rebuild


def _check_record(key: bytes | None, timestamp: int, rules: ProduceRules) -> None:
    if rules.compacted and key is None:
        raise InvalidRecordError("a compacted topic needs a key in every record")
    if timestamp == NO_TIMESTAMP:
        return
    if rules.not_before is not None and timestamp < rules.not_before:
        raise InvalidTimestampError(f"timestamp {timestamp} is before {rules.not_before}")
    if rules.not_after is not None and timestamp > rules.not_after:
        raise InvalidTimestampError(f"timestamp {timestamp} is after {rules.not_after}")
