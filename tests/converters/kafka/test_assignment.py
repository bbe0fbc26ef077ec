import pytest

from magnetar.converters.kafka.assignment import assign_offsets
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import UnsupportedForMessageFormatError
from magnetar.converters.kafka.message_builder import build_message_set, encode_message
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka.validation import validate

RECORDS = [Record(n, 100 + n, b"k%d" % n, b"v") for n in range(3)]
LEGAL = [(m, c) for m in (0, 1, 2) for c in Codec if m == 2 or c is not Codec.ZSTD]


def build(magic, codec, records=RECORDS):
    if magic == 2:
        return build_record_batch(records, BatchOptions(codec=codec))
    return build_message_set(records, magic, codec=codec)


def expected(magic, first, time=None):
    stamp = (lambda r: -1) if magic == 0 else (lambda r: r.timestamp) if time is None else (lambda r: time)
    return [Record(first + n, stamp(r), r.key, r.value) for n, r in enumerate(RECORDS)]


@pytest.mark.parametrize(("magic", "codec"), LEGAL)
def test_offsets_are_consecutive_and_checksums_hold(magic, codec):
    data = bytearray(build(magic, codec))
    assigned = assign_offsets(validate(data), 1_000)
    assert list(RecordSet(assigned.buffer, check_inner_crcs=True)) == expected(magic, 1_000)
    assert (assigned.first_offset, assigned.last_offset) == (1_000, 1_002)
    assert assigned.rebuilt is (magic == 0 and codec is not Codec.NONE)
    assert (assigned.buffer is data) is not assigned.rebuilt


@pytest.mark.parametrize(("magic", "codec"), LEGAL)
def test_a_buffer_that_cannot_change_is_copied(magic, codec):
    data = build(magic, codec)
    before = bytes(data)
    assigned = assign_offsets(validate(data), 7)
    assert data == before
    assert [r.offset for r in RecordSet(assigned.buffer)] == [7, 8, 9]


@pytest.mark.parametrize(("magic", "codec"), [case for case in LEGAL if case[0]])
def test_log_append_time(magic, codec):
    assigned = assign_offsets(validate(bytearray(build(magic, codec))), 0, append_time=555)
    assert list(RecordSet(assigned.buffer)) == expected(magic, 0, 555)
    assert assigned.max_timestamp == 555


def test_log_append_time_needs_timestamps():
    with pytest.raises(UnsupportedForMessageFormatError):
        assign_offsets(validate(build(0, Codec.NONE)), 0, append_time=5)


def test_mixed_sets_are_rebuilt_where_needed():
    data = build(2, Codec.LZ4) + build(0, Codec.GZIP) + build(1, Codec.NONE)
    assigned = assign_offsets(validate(bytearray(data)), 50, leader_epoch=4)
    assert [r.offset for r in RecordSet(assigned.buffer, check_inner_crcs=True)] == list(range(50, 59))
    assert assigned.rebuilt
    assert assigned.last_offset == 58
    first = next(RecordSet(assigned.buffer).batches())
    assert first.leader_epoch == 4


@pytest.mark.parametrize("offsets", [[0, 0, 0], [0, 5, 9]])
def test_careless_inner_offsets_are_rewritten(offsets):
    inner = b"".join(encode_message(1, o, 100 + n, b"k%d" % n, b"v") for n, o in enumerate(offsets))
    data = encode_message(1, 0, 0, None, compress(Codec.SNAPPY, inner, magic=1), attributes=Codec.SNAPPY)
    assigned = assign_offsets(validate(bytearray(data)), 20)
    assert list(RecordSet(assigned.buffer, check_inner_crcs=True)) == expected(1, 20)
    assert next(RecordSet(assigned.buffer).batches()).max_timestamp == 102


def test_a_wrong_newest_timestamp_is_put_right():
    inner = build_message_set(RECORDS, 1)
    data = encode_message(1, 0, 0, None, compress(Codec.GZIP, inner, magic=1), attributes=1)
    assigned = assign_offsets(validate(bytearray(data)), 20)
    assert not assigned.rebuilt
    (batch,) = RecordSet(assigned.buffer).batches()
    batch.ensure_valid()
    assert (batch.max_timestamp, batch.offset) == (102, 22)
    data = build_record_batch(RECORDS, BatchOptions(max_timestamp=5))
    (batch,) = RecordSet(assign_offsets(validate(data), 0).buffer).batches()
    batch.ensure_valid()
    assert batch.max_timestamp == 102
