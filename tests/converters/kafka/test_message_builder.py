import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import (
    InvalidRecordError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from magnetar.converters.kafka.message import Message
from magnetar.converters.kafka.message_builder import build_message_set, encode_message, patch_message, stamp_message
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record, TimestampType

FIELD = st.none() | st.binary(max_size=40)
ROWS = st.lists(st.tuples(st.integers(1, 500), st.integers(-1, 1 << 45), FIELD, FIELD), min_size=1, max_size=6)
LEGACY = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@given(ROWS, st.integers(0, 1 << 50), st.sampled_from(LEGACY), st.sampled_from([0, 1]))
def test_round_trip_with_gaps(rows, first, codec, magic):
    offset, records = first, []
    for gap, timestamp, key, value in rows:
        records.append(Record(offset, timestamp if magic else -1, key, value))
        offset += gap
    data = build_message_set(records, magic, codec=codec)
    assert list(RecordSet(data, check_inner_crcs=True)) == records
    assert len(list(RecordSet(data).batches())) == (len(records) if codec is Codec.NONE else 1)


@pytest.mark.parametrize("codec", LEGACY)
def test_log_append_time(codec):
    data = build_message_set([Record(5, 1, None, b"a"), Record(6, 2, None, b"b")], 1, codec=codec, append_time=99)
    assert [record.timestamp for record in RecordSet(data)] == [99, 99]
    assert all(b.timestamp_type is TimestampType.LOG_APPEND_TIME for b in RecordSet(data).batches())


def test_fields_that_old_magics_cannot_carry():
    with pytest.raises(UnsupportedForMessageFormatError, match="timestamps"):
        build_message_set([Record(0, 0, None, None)], 0, append_time=5)
    with pytest.raises(UnsupportedForMessageFormatError, match="headers"):
        build_message_set([Record(0, 0, None, None, (Header("h", b""),))], 1)
    with pytest.raises(UnsupportedCompressionError):
        build_message_set([Record(0, 0, None, None)], 1, codec=Codec.ZSTD)
    with pytest.raises(InvalidRecordError):
        build_message_set([Record(1, 0, None, None), Record(1, 0, None, None)], 1)
    assert build_message_set([], 1, codec=Codec.GZIP) == b""


def test_known_bytes():
    assert (
        encode_message(0, 0, -1, b"k", b"v").hex()
        == "0000000000000000" + "00000010" + "1fecd70a" + "0000" + "000000016b" + "0000000176"
    )
    assert (
        encode_message(1, 0, 1700000000000, b"k", b"v").hex()
        == "0000000000000000" + "00000018" + "39268c33" + "0100" + "0000018bcfe56800" + "000000016b" + "0000000176"
    )


def test_patching_in_place():
    data = bytearray(encode_message(1, 0, 5, None, b"x"))
    patch_message(data, 0, 1 << 40)
    Message(data).ensure_valid()
    assert Message(data).offset == 1 << 40
    stamp_message(data, 0, len(data), 6, log_append=False)
    assert (Message(data).max_timestamp, Message(data).timestamp_type) == (6, TimestampType.CREATE_TIME)
    stamp_message(data, 0, len(data), 7, log_append=True)
    Message(data).ensure_valid()
    assert (Message(data).max_timestamp, Message(data).timestamp_type) == (7, TimestampType.LOG_APPEND_TIME)
