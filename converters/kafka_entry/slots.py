"""Placing the records of a record set at the batch indexes of a Pulsar entry.

The index of a record is its offset relative to the first batch; a later batch continues where the span of its
predecessor ends. Offsets without a record (removed by compaction, control records) become holes, so the count of
messages still equals num_messages_in_batch (guarantee G4), and index arithmetic on the broker entry metadata gives
Kafka offsets.

An entry may also declare the number of its records instead of the span of their offsets: then the records take
consecutive indexes (`dense`) and there are no holes. Imports of files use this form, because clients differ in their
treatment of holes.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

from magnetar.converters.errors import ConversionCountError, ConversionError, ConversionTooLargeError
from magnetar.converters.interface import DEFAULT_LIMITS
from magnetar.converters.kafka.codecs import CODEC_BITS
from magnetar.converters.kafka.message import read_messages
from magnetar.converters.kafka.record_batch import LOG_APPEND_TIME_BIT, RecordBatch
from magnetar.converters.kafka.records import RawRecord, checked_offset, checked_timestamp, read_records
from magnetar.converters.kafka_entry.fast_slots import plain_slots
from magnetar.converters.kafka_entry.options import KeyText, Mode
from magnetar.converters.kafka_entry.single_message import HOLE, SingleMessageEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.converters.kafka.message import Message
    from magnetar.converters.kafka.record_set import Batch
    from magnetar.converters.kafka_entry.options import KafkaOptions

_INFLATION = 4
"""Decompressed bytes of all batches together, in multiples of the largest output: the framing of a message of the
oldest format is about four times that of its output.
"""
_FAR = 1 << 62  # within these bounds, no timestamp can have left int64


def span_of(batch: RecordBatch) -> int:
    """Return the number of offsets that a batch takes. Raises: ConversionError for a negative span."""
    span = batch.last_offset_delta + 1
    if span < 0:
        raise ConversionError(f"batch at offset {batch.base_offset} spans {span} offsets")
    return span


def record_count(batch: RecordBatch) -> int:
    """Return the number of messages of a batch without its gaps. Raises: ConversionError for a negative count."""
    if batch.count < 0:
        raise ConversionError(f"batch at offset {batch.base_offset} declares {batch.count} records")
    return 0 if batch.is_control else batch.count


class SlotWriter:
    """Collects the payload of one converted entry.

    Args:    declared: num_messages_in_batch.   max_bytes: bound of the payload, and of every decompression.
             dense: records at consecutive indexes instead of at their offsets.
             max_headers: bound of the headers that are encoded one by one.
    """

    def __init__(
        self,
        options: KafkaOptions,
        declared: int,
        max_bytes: int,
        *,
        dense: bool = False,
        max_headers: int = DEFAULT_LIMITS.max_headers,
    ) -> None:
        self._dense = dense
        self._inflatable = _INFLATION * max_bytes
        self._headers = max_headers
        self.payload = bytearray()
        self.holes: list[int] = []
        self._next = 0
        self._start = 0
        self._declared = declared
        self._max_bytes = max_bytes
        self._encode = SingleMessageEncoder(options).encode
        self._may_be_plain = options.mode is Mode.FAITHFUL and not options.offset_property
        self._text_keys = options.key is KeyText.UTF8

    def add(self, batch: Batch) -> None:
        """Append the records of one valid entry of the set.

        Raises: ConversionCountError beyond the declared count, ConversionTooLargeError beyond `max_bytes`,
            ConversionError for offsets out of order, KafkaFormatError.
        """
        if isinstance(batch, RecordBatch):
            self._add_batch(batch)
        elif not batch.attributes & CODEC_BITS:
            self._add_message(batch)
        else:
            self._add_wrapper(batch)

    def _add_batch(self, batch: RecordBatch) -> None:
        span = record_count(batch) if self._dense else span_of(batch)
        end = self._start + span
        self._expect(end)
        if not batch.is_control:
            room = self._max_bytes - len(self.payload)
            records = batch.counted_bytes(min(room, self._inflatable))
            self._inflatable -= len(records)
            if not self._write_plain(batch, records, end, room):
                self._write(batch, read_records(records, batch.count, self._headers), end)
        self._fill(end)
        self._start = end

    def _write_plain(self, batch: RecordBatch, records: bytes, end: int, room: int) -> bool:
        """Write all records at once if none of them needs a special form; else write nothing and return False."""
        following = self._next + batch.count
        if not self._may_be_plain or self._next != self._start or following > end:
            return False
        append_time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
        written = plain_slots(
            records, batch.count, batch.base_timestamp, append_time, self._text_keys, not self._dense, room
        )
        if written is None:
            return False
        self.payload += written
        self._next = following
        return True

    def _write(self, batch: RecordBatch, records: Iterator[RawRecord], end: int) -> None:
        payload, encode, start, limit = self.payload, self._encode, self._start, self._max_bytes
        base_offset, base_time = batch.base_offset, batch.base_timestamp
        append_time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
        following, dense = self._next, self._dense
        timestamp = 0 if append_time is None else append_time
        for time_delta, delta, key, value, headers in records:
            slot = following if dense else start + delta
            if slot != following:
                if not following < slot < end:
                    raise ConversionError(f"offset delta {delta} is out of order or beyond {end - start - 1}")
                self._fill(slot)
            following = self._next = slot + 1
            if append_time is None:
                timestamp = base_time + time_delta
                if not -_FAR <= timestamp <= _FAR:
                    checked_timestamp(base_time, time_delta)
            if headers is not None:
                self._headers -= len(headers)
                if self._headers < 0:
                    raise ConversionTooLargeError("the records have too many headers")
            payload += encode(base_offset + delta, timestamp, key, value, headers)
            if value:
                payload += value
            if len(payload) > limit:
                raise ConversionTooLargeError(f"the output passes {limit} bytes")
        if following > end:
            raise ConversionError(f"a record stands beyond the last offset delta {end - start - 1}")

    def _add_message(self, message: Message) -> None:
        end = self._start + 1
        self._expect(end)
        self._fill(self._start)
        key, value = message.key_and_value()
        self._put(message.offset, message.max_timestamp, key, value)
        self._start = end

    def _add_wrapper(self, message: Message) -> None:
        data = message.inner_set(min(self._max_bytes - len(self.payload), self._inflatable))
        self._inflatable -= len(data)
        offsets = message.inner_offsets(data)
        last = offsets[-1]
        # Some producers write inner offsets that do not ascend; then only the order of the messages counts.
        if self._dense or any(left >= right for left, right in pairwise(offsets)):
            offsets = array("q", range(len(offsets)))
        end = self._start + offsets[-1] - offsets[0] + 1
        self._expect(end)
        shift = self._start - offsets[0]
        payload, encode, limit = self.payload, self._encode, self._max_bytes
        base = message.inner_base(last)
        append_time = message.max_timestamp if message.attributes & LOG_APPEND_TIME_BIT else None
        for slot, (offset, timestamp, key, value) in zip(offsets, read_messages(data), strict=True):
            if slot + shift != self._next:
                self._fill(slot + shift)
            self._next += 1
            payload += encode(
                checked_offset(base, offset), timestamp if append_time is None else append_time, key, value, None
            )
            if value:
                payload += value
            if len(payload) > limit:
                raise ConversionTooLargeError(f"the output passes {limit} bytes")
        self._start = end

    def _put(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        self._next += 1
        self.payload += self._encode(offset, timestamp, key, value, None)
        if value:
            self.payload += value
        if len(self.payload) > self._max_bytes:
            raise ConversionTooLargeError(f"the output passes {self._max_bytes} bytes")

    def _expect(self, end: int) -> None:
        if end > self._declared:
            raise ConversionCountError(f"offsets for {end} messages or more, {self._declared} are declared")

    def finish(self) -> None:
        """Fill the remaining slots with holes.

        Raises: ConversionTooLargeError; ConversionCountError when a dense writer got fewer records than declared.
        """
        if self._dense and self._next != self._declared:
            raise ConversionCountError(f"{self._next} records, {self._declared} messages are declared")
        self._fill(self._declared)

    def _fill(self, slot: int) -> None:
        missing = slot - self._next
        if missing <= 0:
            return
        if len(self.payload) + missing * len(HOLE) > self._max_bytes:
            raise ConversionTooLargeError(f"{missing} holes pass {self._max_bytes} bytes")
        self.payload += HOLE * missing
        self.holes += range(self._next, slot)
        self._next = slot
