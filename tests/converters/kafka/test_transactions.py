"""The transactions of a log: a real Kafka's log as its own consumers read it, and random histories beside a model."""

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, seal_batch
from magnetar.converters.kafka.log_file import LogFile
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka.transactions import Marker, Outcome, Transactions, TransactionSurvey, marker_of

FOLDER = pathlib.Path(__file__).parents[2] / "vectors" / "kafka_transactions"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


def log_batches():
    for path in sorted(FOLDER.glob("*.log")):
        data = path.read_bytes()
        yield from LogFile(lambda position, length, data=data: data[position : position + length], len(data)).batches()


def rows(batches):
    return [[r.offset, r.key.decode(), r.value.split(b":x")[0].decode()] for b in batches for r in b.records()]


def surveyed(batches):
    survey = TransactionSurvey()
    for batch in batches:
        survey.add(batch, batch.last_offset)
    return survey.result()


def data_batch(offset, producer, count=2):
    made = [Record(offset + n, 5, b"k", b"v") for n in range(count)]
    return RecordBatch(build_record_batch(made, BatchOptions(producer_id=producer, transactional=producer >= 0)))


def marker_batch(offset, producer, kind):
    key = b"\0\0" + kind.to_bytes(2, "big", signed=True)
    options = BatchOptions(producer_id=producer, transactional=True, control=True)
    return RecordBatch(build_record_batch([Record(offset, 5, key, b"\0\0\0\0\0\0")], options))


def test_a_real_log_as_kafka_consumers_read_it():
    batches = [item.batch for item in log_batches()]
    found = surveyed(batches)
    data = [batch for batch in batches if not batch.is_control]
    assert rows(data) == EXPECTED["read_uncommitted"]
    assert found.last_stable_place == 138 + 4, "the batch of the open transaction holds the offsets 138 to 142"
    committed = [
        batch
        for batch in data
        if batch.last_offset < found.last_stable_place and found.outcome(batch, batch.last_offset) is Outcome.COMMITTED
    ]
    assert rows(committed) == EXPECTED["read_committed"]
    assert sum(map(len, found.aborted.values())) == 5
    assert found.doubtful == 0


def test_the_recorded_markers():
    vectors = FOLDER.parent / "kafka"
    for kind in Marker:
        (batch,) = RecordSet((vectors / f"java_m2_control_{kind.name.lower()}.bin").read_bytes()).batches()
        assert marker_of(batch) is kind
    assert marker_of(marker_batch(0, 1, 2)) is None, "a change of leader ends no transaction"
    short = build_record_batch([Record(0, 5, b"\0", b"")], BatchOptions(control=True, transactional=True))
    assert marker_of(RecordBatch(short)) is None


def test_open_transactions_end_the_stable_part_and_may_count_as_aborted():
    found = surveyed([data_batch(0, -1), data_batch(2, 7), data_batch(4, 8), marker_batch(6, 8, 1), data_batch(7, 7)])
    assert found.last_stable_place == 3
    first, later = data_batch(2, 7), data_batch(7, 7)
    assert found.outcome(first, 3) is Outcome.OPEN
    assert found.outcome(data_batch(4, 8), 5) is Outcome.COMMITTED
    closed = found.with_open_aborted()
    assert closed.last_stable_place is None
    assert [closed.outcome(each, each.last_offset) for each in (first, later)] == [Outcome.ABORTED] * 2
    assert found.last_stable_place == 3, "the original is as before"


def test_damage_makes_the_transactions_around_it_doubtful():
    survey = TransactionSurvey()
    survey.add(data_batch(0, 7), 1)
    survey.damage()
    survey.add(data_batch(4, 8), 5)
    survey.add(marker_batch(6, 8, 0), 6)
    assert survey.result().doubtful == 1, "open, and damaged"
    survey.add(marker_batch(7, 7, 0), 7)
    assert survey.result().doubtful == 1
    assert not survey.has_open
    survey.add(data_batch(8, 7), 9)
    survey.add(marker_batch(10, 7, 0), 10)
    assert survey.result().doubtful == 1, "the next transaction of that producer is whole"


def test_a_marker_that_cannot_be_read_is_damage():
    broken = bytearray(marker_batch(2, 7, 0).buffer)
    broken[61:] = b"\xff" * (len(broken) - 61)
    seal_batch(broken, 0, len(broken))
    survey = TransactionSurvey()
    survey.add(data_batch(0, 7), 1)
    survey.add(RecordBatch(bytes(broken)), 2)
    assert survey.has_open
    assert survey.result().doubtful == 1


def test_batches_without_transactions_are_committed():
    (old, *_) = RecordSet(build_message_set([Record(3, 5, b"k", b"v")], 1)).batches()
    found = Transactions(aborted={-1: [(0, 100)]}, open={-1: 0})
    for batch in (old, data_batch(5, -1), marker_batch(6, -1, 1)):
        assert found.outcome(batch, 6) is Outcome.COMMITTED


STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "commit", "abort"])), max_size=40)


@given(STEPS)
def test_random_histories_beside_a_model(steps):
    """The model keeps each transaction's batches in a list, and judges them when the marker comes."""
    batches, pending, aborted = [], {}, set()
    for offset, (producer, what) in enumerate(steps):
        if what == "data":
            batches.append(data_batch(offset, producer, count=1))
            pending.setdefault(producer, []).append(offset)
        else:
            batches.append(marker_batch(offset, producer, what == "commit"))
            ended = pending.pop(producer, [])
            aborted.update(ended if what == "abort" else [])
    found = surveyed(batches)
    unsettled = {offset for offsets in pending.values() for offset in offsets}
    assert found.last_stable_place == min(unsettled, default=None)
    for batch in batches:
        place = batch.last_offset
        expected = Outcome.ABORTED if place in aborted else Outcome.OPEN if place in unsettled else Outcome.COMMITTED
        assert found.outcome(batch, place) is expected


@pytest.mark.parametrize("place", [1, 5])
def test_a_result_does_not_change_later(place):
    survey = TransactionSurvey()
    survey.add(data_batch(place - 1, 7), place)
    before = survey.result()
    survey.add(marker_batch(place + 1, 7, 0), place + 1)
    assert (before.aborted, before.open) == ({}, {7: place})
