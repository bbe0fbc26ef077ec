import pytest

from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import (
    CorruptRecordError,
    CrcMismatchError,
    DecompressedTooLargeError,
    InvalidRecordError,
    UnsupportedCompressionError,
)
from magnetar.converters.kafka.message import Message
from magnetar.converters.kafka.message_builder import build_message_set, encode_message, seal_message
from magnetar.converters.kafka.records import Record, TimestampType

THREE = [Record(100, 7, b"a", b"1"), Record(103, 9, None, b""), Record(107, 8, b"", None)]


def wrapper(inner, *, magic=1, offset=107, codec=Codec.GZIP, attributes=0, timestamp=9):
    value = compress(codec, inner, magic=magic)
    return Message(encode_message(magic, offset, timestamp, None, value, attributes=attributes | codec))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_nested_sets_keep_offsets_with_holes(magic, codec):
    records = THREE if magic else [r._replace(timestamp=-1) for r in THREE]
    data = build_message_set(records, magic, codec=codec)
    if codec is Codec.NONE:
        return
    message = Message(data)
    assert (message.offset, message.base_offset, message.last_offset) == (107, 100, 107)
    assert message.codec is codec
    assert list(message.records()) == records
    assert list(message.inner_offsets(message.inner_set())) == ([100, 103, 107] if magic == 0 else [0, 3, 7])


def test_plain_message():
    message = Message(encode_message(1, 5, 70, b"k", None))
    assert list(message.records()) == [Record(5, 70, b"k", None)]
    assert message.base_offset == 5
    assert message.timestamp_type is TimestampType.CREATE_TIME
    assert Message(encode_message(0, 5, 70, b"k", None)).timestamp_type is TimestampType.NO_TIMESTAMP_TYPE
    assert Message(encode_message(0, 5, 70, b"k", None)).max_timestamp == -1


def test_wrapper_offset_zero_means_base_zero():
    inner = build_message_set([Record(n, 1, None, b"x") for n in range(4)], 1)
    assert [r.offset for r in wrapper(inner, offset=0).records()] == [0, 1, 2, 3]
    assert [r.offset for r in wrapper(inner, offset=3).records()] == [0, 1, 2, 3]
    assert [r.offset for r in wrapper(inner, offset=10).records()] == [7, 8, 9, 10]
    with pytest.raises(InvalidRecordError, match="wrapper offset 2"):
        list(wrapper(inner, offset=2).records())


def test_log_append_time_of_the_wrapper_wins():
    inner = build_message_set(THREE, 1)
    message = wrapper(inner, attributes=0x08, timestamp=999)
    assert message.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in message.records()} == {999}


def test_the_inner_set_may_be_cut():
    inner = build_message_set([Record(n, 1, None, b"x") for n in range(4)], 1)
    assert [r.offset for r in wrapper(inner[:-1], offset=1002).records()] == [1000, 1001, 1002]


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        (b"", "no messages"),
        (b"\x00" * 11, "no messages"),
        (build_message_set(THREE, 1, codec=Codec.GZIP), "compressed message inside"),
        (build_record_batch(THREE), "magic 2 inside"),
    ],
)
def test_inner_sets_that_are_refused(inner, why):
    with pytest.raises(InvalidRecordError, match=why):
        list(wrapper(inner).records())


def test_null_value_zstd_and_unknown_codecs():
    with pytest.raises(InvalidRecordError, match="null value"):
        list(Message(encode_message(1, 0, 0, None, None, attributes=1)).records())
    for attributes in (4, 5):
        with pytest.raises(UnsupportedCompressionError):
            list(Message(encode_message(1, 0, 0, None, b"", attributes=attributes)).records())


def test_checksums():
    data = bytearray(encode_message(1, 5, 70, b"k", b"v"))
    data[0:8] = (99).to_bytes(8, "big")
    Message(bytes(data)).ensure_valid()
    data[-1] ^= 1
    with pytest.raises(CrcMismatchError):
        Message(bytes(data)).ensure_valid()
    inner = bytearray(build_message_set(THREE, 1))
    inner[-1] ^= 1
    assert len(list(wrapper(bytes(inner[:-4]) + b"\xff" * 4).records())) == 3
    with pytest.raises(CrcMismatchError):
        list(wrapper(bytes(inner[:30]) + b"A" + bytes(inner[31:])).records(check_inner_crcs=True))


@pytest.mark.parametrize(
    ("start", "data"),
    [(26, b"\x00\x00\x00\x09"), (26, b"\xff\xff\xff\xfe"), (26, b"\x00\x00\x00\x00"), (31, b"\x7f\xff\xff\xff")],
)
def test_fields_must_fill_the_message(start, data):
    message = bytearray(encode_message(1, 5, 70, b"k", b"v"))
    message[start : start + 4] = data
    seal_message(message, 0, len(message))
    with pytest.raises(CorruptRecordError):
        list(Message(bytes(message)).records())


def test_offsets_stay_in_64_bits():
    inner = encode_message(1, (1 << 63) - 1, 0, None, None) + encode_message(1, 0, 0, None, None)
    with pytest.raises(CorruptRecordError, match="64 bits"):
        list(wrapper(inner, offset=5).records())


def test_the_limit():
    data = build_message_set([Record(0, 0, None, bytes(5000))], 1, codec=Codec.SNAPPY)
    with pytest.raises(DecompressedTooLargeError):
        list(Message(data).records(4000))
