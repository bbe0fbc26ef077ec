"""The compiled path for Kafka batches against the Python loop."""

import random

import pytest

from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry import fast_slots
from tests.converters.kafka_entry.slot_twins import check_slots

compiled = pytest.mark.skipif(not fast_slots.COMPILED, reason="the helper is not built, or MAGNETAR_PURE is set")


@compiled
def test_equal_to_the_python_loop_on_random_and_damaged_batches():
    before = check_slots.taken
    for seed in range(1500):
        check_slots(fast_slots, random.Random(seed))
    assert check_slots.taken - before > 300, "the compiled path must have been taken"


@compiled
def test_ordinary_batches_take_the_compiled_path():
    records = [Record(i, 1_700_000_000_000 + i, b"k%d" % i, b"v", (Header("h", b"x"),)) for i in range(9)]
    batch = RecordBatch(build_record_batch(records))
    data = batch.counted_bytes()
    assert fast_slots.plain_slots(data, 9, batch.base_timestamp, None, True, True, 1 << 20)
    assert fast_slots.plain_slots(data, 8, batch.base_timestamp, None, True, True, 1 << 20) is None
    assert fast_slots.plain_slots(data, 9, batch.base_timestamp, None, True, True, 100) is None
    assert fast_slots.plain_slots(data, 9, -(1 << 62), 5, False, True, 1 << 20)
    assert fast_slots.plain_slots(b"", 0, 0, None, True, True, 0) == b""
