import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, patch_batch, stamp_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import InvalidRecordError, InvalidTimestampError
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.records import Header, Record, TimestampType

FIELD = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 500),
        st.integers(-1, 1 << 45),
        FIELD,
        FIELD,
        st.lists(st.builds(Header, st.text(max_size=5), FIELD), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def with_offsets(rows, first):
    offset, records = first, []
    for gap, *rest in rows:
        records.append(Record(offset, *rest))
        offset += gap
    return records


@given(RECORDS, st.integers(0, 1 << 50), st.sampled_from(Codec))
def test_round_trip_with_gaps(rows, first, codec):
    records = with_offsets(rows, first)
    batch = RecordBatch(build_record_batch(records, BatchOptions(codec=codec)))
    batch.ensure_valid()
    assert list(batch.records()) == records
    assert batch.max_timestamp == max(r.timestamp for r in records)
    assert batch.last_offset == records[-1].offset


def test_every_option_reaches_the_header():
    options = BatchOptions(
        codec=Codec.LZ4,
        append_time=9,
        leader_epoch=1,
        producer_id=2,
        producer_epoch=3,
        base_sequence=4,
        transactional=True,
        control=True,
        delete_horizon=50,
        base_offset=6,
        last_offset_delta=8,
    )
    batch = RecordBatch(build_record_batch([Record(7, 60, None, b"")], options))
    assert batch.attributes == 3 | 0x08 | 0x10 | 0x20 | 0x40
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 2, 3, 4)
    assert (batch.base_offset, batch.last_offset, batch.delete_horizon) == (6, 14, 50)
    assert next(batch.raw_records())[0] == 10
    assert batch.is_control
    assert batch.is_transactional
    assert batch.max_timestamp == 9


@pytest.mark.parametrize("offsets", [(5, 5), (5, 4), (0, 1 << 31)])
def test_offsets_must_ascend_within_int32(offsets):
    with pytest.raises(InvalidRecordError):
        build_record_batch([Record(offset, 0, None, None) for offset in offsets])


def test_timestamps_too_far_apart():
    with pytest.raises(InvalidTimestampError):
        build_record_batch([Record(0, -(1 << 62), None, None), Record(1, 1 << 62, None, None)])


def test_no_records_need_a_base_offset():
    with pytest.raises(InvalidRecordError):
        build_record_batch([])
    batch = RecordBatch(build_record_batch([], BatchOptions(base_offset=3, last_offset_delta=1, max_timestamp=7)))
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp, batch.base_timestamp) == (3, 4, 7, -1)


def test_patching_in_place():
    data = bytearray(build_record_batch([Record(0, 5, None, b"x")]))
    patch_batch(data, 0, 1 << 40, None)
    batch = RecordBatch(data)
    batch.ensure_valid()
    assert (batch.base_offset, batch.leader_epoch) == (1 << 40, -1)
    patch_batch(data, 0, 1, 12)
    assert RecordBatch(data).leader_epoch == 12
    stamp_batch(data, 0, len(data), 77, log_append=False)
    assert RecordBatch(data).timestamp_type is TimestampType.CREATE_TIME
    stamp_batch(data, 0, len(data), 78, log_append=True)
    batch = RecordBatch(data)
    batch.ensure_valid()
    assert [r.timestamp for r in batch.records()] == [78]
