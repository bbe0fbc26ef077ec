import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import CrcMismatchError, UnsupportedCompressionError, UnsupportedMagicError
from magnetar.converters.kafka.magic_conversion import convert_magic
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record

FIELD = st.none() | st.binary(max_size=20)
ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 1 << 45), FIELD, FIELD), min_size=1, max_size=5)
LEGACY = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
HEADERS = (Header("a", b"1"), Header("a", None))


def build(magic, records, codec, append_time=None):
    if magic == 2:
        return build_record_batch(records, BatchOptions(codec=codec, append_time=append_time))
    return build_message_set(records, magic, codec=codec, append_time=append_time)


@given(ROWS, st.sampled_from(LEGACY), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=80)
def test_offsets_keys_and_values_survive(rows, codec, source, target):
    offset, records = 3, []
    for gap, timestamp, key, value in rows:
        records.append(Record(offset, timestamp if source else -1, key, value))
        offset += gap
    converted = convert_magic(build(source, records, codec), target)
    got = list(RecordSet(converted.buffer, check_inner_crcs=True))
    assert got == [r._replace(timestamp=r.timestamp if target else -1) for r in records]
    assert {(b.magic, b.codec) for b in RecordSet(converted.buffer).batches()} == {(target, codec)}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_log_append_time_survives(codec):
    records = [Record(0, 1, None, b""), Record(1, 2, None, b"")]
    for source, target in ((1, 2), (2, 1)):
        converted = convert_magic(build(source, records, codec, append_time=9), target).buffer
        assert [r.timestamp for r in RecordSet(converted)] == [9, 9]


def test_dropped_headers_and_batches_are_counted():
    control = build_record_batch([Record(2, 0, b"\0\0\0\1", b"")], BatchOptions(control=True, transactional=True))
    data = build_record_batch([Record(0, 5, b"k", b"v", HEADERS), Record(1, 6, b"k", None)]) + control
    converted = convert_magic(data, 1)
    assert (converted.dropped_headers, converted.dropped_control_batches) == (2, 1)
    assert list(RecordSet(converted.buffer)) == [Record(0, 5, b"k", b"v"), Record(1, 6, b"k", None)]
    assert convert_magic(data, 2).buffer == data


def test_plain_messages_join_into_batches_where_they_can():
    plain = build_message_set([Record(0, 1, None, b"a"), Record(1, 2, None, b"b")], 1)
    far = build_message_set([Record(1 << 40, 3, None, b"c")], 1)
    packed = build_message_set([Record((1 << 40) + 1, 3, None, b"d")], 1, codec=Codec.GZIP)
    stamped = build_message_set([Record((1 << 40) + n, 3, None, b"e") for n in (2, 3)], 1, append_time=8)
    other = build_message_set([Record((1 << 40) + 4, 3, None, b"f")], 1, append_time=9)
    converted = convert_magic(plain + far + packed + stamped + other, 2).buffer
    assert [batch.count for batch in RecordSet(converted).batches()] == [2, 1, 1, 2, 1]
    assert [r.value for r in RecordSet(converted)] == [b"a", b"b", b"c", b"d", b"e", b"e", b"f"]
    assert [r.timestamp for r in RecordSet(converted)][-3:] == [8, 8, 9]


def test_refusals():
    with pytest.raises(UnsupportedMagicError):
        convert_magic(b"", 3)
    with pytest.raises(UnsupportedCompressionError):
        convert_magic(build(2, [Record(0, 0, None, b"")], Codec.ZSTD), 1)
    broken = bytearray(build(2, [Record(0, 0, None, b"x")], Codec.NONE))
    broken[-2] ^= 1
    with pytest.raises(CrcMismatchError):
        convert_magic(broken, 1)
    assert convert_magic(b"", 1).buffer == b""
