"""Kafka batches read and written here against kafka-python and aiokafka, on generated batches."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioLegacyBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.kafka.assignment import assign_offsets
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.magic_conversion import convert_magic
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka.validation import validate

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python loads its schemas with a deprecated function
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaLegacyBuilder
    from kafka.record.memory_records import MemoryRecords as KafkaRecords

FIELD = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.builds(Header, st.text(max_size=6), FIELD), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(0, 1 << 44), FIELD, FIELD, HEADERS), min_size=1, max_size=8)
LEGACY_ROWS = st.lists(st.tuples(st.integers(0, 1 << 44), FIELD, FIELD), min_size=1, max_size=8)
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def read_by(peer, data):
    memory = peer(data)
    got = []
    while (batch := memory.next_batch()) is not None:
        assert batch.validate_crc()
        for r in batch:
            headers = tuple(Header(name, None if value is None else bytes(value)) for name, value in r.headers or ())
            key, value = (None if f is None else bytes(f) for f in (r.key, r.value))
            got.append(Record(r.offset, -1 if r.timestamp is None else r.timestamp, key, value, headers))
    return got


@pytest.mark.parametrize("peer", [AioRecords, KafkaRecords])
@given(rows=ROWS, codec=st.sampled_from(Codec), first=st.integers(0, 1 << 40))
@settings(max_examples=40, deadline=None)
def test_peers_read_our_batches(peer, rows, codec, first):
    records = [Record(first + n, *row) for n, row in enumerate(rows)]
    assert read_by(peer, build_record_batch(records, BatchOptions(codec=codec))) == records


PRODUCER = st.sampled_from([(-1, -1, -1), (7, 3, 5), (1 << 40, 32767, 2**31 - 2)])


@pytest.mark.parametrize("builder", [AioBuilder, KafkaBuilder])
@given(rows=ROWS, codec=st.sampled_from(Codec), producer=PRODUCER, transactional=st.booleans())
@settings(max_examples=40, deadline=None)
def test_their_batches_are_validated_assigned_converted_and_read_again(builder, rows, codec, producer, transactional):
    """A produced batch on its way through a broker, judged by the peers' own readers at its end."""
    producer_id, epoch, sequence = producer
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional and producer_id >= 0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for n, (timestamp, key, value, headers) in enumerate(rows):
        made.append(n, timestamp=timestamp, key=key, value=value, headers=[tuple(h) for h in headers])
    produced = bytes(made.build())
    [entry] = validate(produced).entries
    assert (entry.message_count, entry.rebuild) == (len(rows), False)
    stored = bytes(assign_offsets(validate(produced), 1_000, leader_epoch=4).buffer)
    [batch] = RecordSet(stored).batches()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert batch.last_sequence == (-1 if sequence < 0 else (sequence + len(rows) - 1) % 2**31)
    expected = [Record(1_000 + n, *row) for n, row in enumerate(rows)]
    assert read_by(AioRecords, stored) == read_by(KafkaRecords, stored) == list(RecordSet(stored)) == expected
    older = convert_magic(stored, 1 if codec is not Codec.ZSTD else 2).buffer
    if codec is not Codec.ZSTD:
        bare = [record._replace(headers=()) for record in expected]
        assert read_by(AioRecords, older) == read_by(KafkaRecords, older) == list(RecordSet(older)) == bare


@pytest.mark.parametrize("builder", [AioBuilder, KafkaBuilder])
@given(rows=ROWS, codec=st.sampled_from(Codec))
@settings(max_examples=40, deadline=None)
def test_we_read_their_batches(builder, rows, codec):
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for n, (timestamp, key, value, headers) in enumerate(rows):
        made.append(n, timestamp=timestamp, key=key, value=value, headers=[tuple(h) for h in headers])
    assert list(RecordSet(bytes(made.build()))) == [Record(n, *row) for n, row in enumerate(rows)]


@pytest.mark.parametrize("peer", [AioRecords, KafkaRecords])
@pytest.mark.parametrize("magic", [0, 1])
@given(rows=LEGACY_ROWS, codec=st.sampled_from(LEGACY_CODECS), first=st.integers(1, 1 << 40))
@settings(max_examples=30, deadline=None)
def test_peers_read_our_message_sets(peer, magic, rows, codec, first):
    if magic == 0 and codec is Codec.LZ4 and peer is AioRecords:
        return  # aiokafka refuses the historic header checksum; kafka-python computes it (with xxhash)
    records = [Record(first + n, timestamp if magic else -1, *row) for n, (timestamp, *row) in enumerate(rows)]
    assert read_by(peer, build_message_set(records, magic, codec=codec)) == records


@pytest.mark.parametrize("builder", [AioLegacyBuilder, KafkaLegacyBuilder])
@pytest.mark.parametrize("magic", [0, 1])
@given(rows=LEGACY_ROWS, codec=st.sampled_from(LEGACY_CODECS))
@settings(max_examples=30, deadline=None)
def test_we_read_their_message_sets(builder, magic, rows, codec):
    if magic == 0 and codec is Codec.LZ4 and builder is AioLegacyBuilder:
        return
    made = builder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for n, (timestamp, key, value) in enumerate(rows):
        made.append(n, timestamp=timestamp, key=key, value=value)
    records = [Record(n, timestamp if magic else -1, *row) for n, (timestamp, *row) in enumerate(rows)]
    assert list(RecordSet(bytes(made.build()), check_inner_crcs=True)) == records
