import pytest

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, seal_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import (
    CorruptRecordError,
    CrcMismatchError,
    DecompressedTooLargeError,
    InvalidRecordError,
    UnsupportedCompressionError,
)
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.records import Header, Record, TimestampType

RECORDS = [Record(100, 50, b"a", b"1", (Header("h", b"x"),)), Record(103, 40, None, None)]


def patched(batch, start, data):
    out = bytearray(batch)
    out[start : start + len(data)] = data
    seal_batch(out, 0, len(out))
    return RecordBatch(bytes(out))


def test_header_and_records():
    batch = RecordBatch(build_record_batch(RECORDS, BatchOptions(codec=Codec.GZIP, leader_epoch=3)))
    assert (batch.base_offset, batch.last_offset, batch.count, batch.leader_epoch) == (100, 103, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (50, 50)
    assert batch.codec is Codec.GZIP
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.is_control, batch.is_transactional, batch.delete_horizon) == (False, False, None)
    assert batch.last_sequence == -1
    assert list(batch.records()) == RECORDS
    assert list(batch.records()) == RECORDS, "every iteration has its own position"


def test_log_append_time_hides_the_deltas():
    batch = RecordBatch(build_record_batch(RECORDS, BatchOptions(append_time=999)))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [999, 999]
    assert [raw[0] for raw in batch.raw_records()] == [0, -10]


def test_sequences_wrap_to_zero():
    options = BatchOptions(producer_id=1, producer_epoch=0, base_sequence=2147483646)
    batch = RecordBatch(build_record_batch([Record(n, 0, None, b"") for n in range(3)], options))
    assert batch.last_sequence == 0


def test_the_checksum_covers_attributes_but_not_offset_and_epoch():
    data = bytearray(build_record_batch(RECORDS))
    data[0:8] = (7).to_bytes(8, "big")
    data[12:16] = (7).to_bytes(4, "big")
    RecordBatch(bytes(data)).ensure_valid()
    data[22] ^= 0x10
    batch = RecordBatch(bytes(data))
    assert not batch.is_valid
    with pytest.raises(CrcMismatchError) as raised:
        batch.ensure_valid()
    assert (raised.value.offset, raised.value.stored) == (7, batch.crc)


def test_counts_that_cannot_be():
    data = build_record_batch(RECORDS)
    for count, error in ((-1, InvalidRecordError), (1, InvalidRecordError), (3, InvalidRecordError)):
        with pytest.raises(error):
            list(patched(data, 57, count.to_bytes(4, "big", signed=True)).records())
    with pytest.raises(InvalidRecordError):
        list(patched(data, 57, bytes(4)).records())


def test_an_empty_batch_of_the_cleaner_has_no_records():
    data = build_record_batch([], BatchOptions(codec=Codec.LZ4, base_offset=500, last_offset_delta=4))
    batch = RecordBatch(data)
    assert (batch.base_offset, batch.last_offset, batch.count) == (500, 504, 0)
    assert list(batch.records()) == []


def test_offsets_stay_in_64_bits():
    for base in ((1 << 63) - 5, -(1 << 63)):
        with pytest.raises(CorruptRecordError, match="64 bits"):
            list(patched(build_record_batch(RECORDS), 0, base.to_bytes(8, "big", signed=True)).records())


def test_unknown_codec_and_the_limit():
    with pytest.raises(UnsupportedCompressionError):
        list(patched(build_record_batch(RECORDS), 22, b"\x05").records())
    big = RecordBatch(build_record_batch([Record(0, 0, None, bytes(10_000))], BatchOptions(codec=Codec.ZSTD)))
    with pytest.raises(DecompressedTooLargeError):
        list(big.records(5_000))
