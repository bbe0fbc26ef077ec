"""Importing a file exactly once: after any interruptions and repetitions the topic has every record once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.converters.entry import Entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, seal_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import CrcMismatchError, InvalidRecordError
from magnetar.converters.kafka.log_file import LogEnd, LogFile
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka.transactions import TransactionSurvey
from magnetar.converters.kafka_entry import import_plan
from magnetar.converters.kafka_entry.import_plan import (
    ImportPlan,
    SequenceMode,
    place_of,
    plan_import,
    producer_name,
    survey,
)


def records(first, count, gap=1):
    return [Record(first + n * gap, 5, b"k", b"%d" % (first + n * gap)) for n in range(count)]


def opened(data):
    return LogFile(lambda position, length: data[position : position + length], len(data))


class Topic:
    """Deduplication as in the broker: entries that begin at or below the persisted sequence id are dropped."""

    def __init__(self):
        self.persisted, self.entries = {}, []

    def append(self, planned):
        if planned.sequence_id <= self.persisted.get(planned.producer_name, -1):
            return
        self.persisted[planned.producer_name] = planned.highest_sequence_id
        self.entries.append(planned)

    def records(self):
        return [r for planned in self.entries for r in RecordSet(bytes(Entry(planned.data).payload))]


def run(topic, data, *, stop_after=None, resume=True):
    """One run of the import; the test kills it after `stop_after` appends."""
    found = survey(opened(data))
    name = producer_name("orders-0/0.log", found.first_batch, found.sequence_mode)
    last = topic.persisted.get(name, -1) if resume else -1
    steps = plan_import(opened(data), name=name, mode=found.sequence_mode, publish_time=1, resume_after=last)
    for done, step in enumerate(steps):
        if done == stop_after:
            return
        if step.entry is not None:
            topic.append(step.entry)


SEGMENT = b"".join(
    [
        build_record_batch(records(100, 3)),
        build_record_batch([], BatchOptions(base_offset=103, last_offset_delta=1)),
        build_message_set(records(110, 4), 1),
        build_message_set(records(120, 3, gap=2), 1, codec=Codec.GZIP),
        build_message_set(records(130, 2), 0),
        build_record_batch(records(200, 2), BatchOptions(codec=Codec.LZ4)),
    ]
)
PRODUCED = build_record_batch(records(0, 3)) + build_record_batch(records(0, 2)) + build_message_set(records(0, 2), 1)


def test_a_survey():
    found = survey(opened(SEGMENT + b"torn"))
    assert (found.entries, found.valid_bytes, found.end) == (10, len(SEGMENT), LogEnd.TORN)
    assert found.sequence_mode is SequenceMode.OFFSET
    assert survey(opened(PRODUCED)).sequence_mode is SequenceMode.POSITION
    assert survey(opened(b"")).entries == 0


def test_the_name_belongs_to_the_file():
    def name(label, data, mode=SequenceMode.OFFSET):
        return producer_name(label, survey(opened(data)).first_batch, mode)

    assert name("a", SEGMENT).startswith("kafka-import-")
    assert name("a", SEGMENT) == name("a", SEGMENT + build_record_batch(records(300, 1)))
    others = [name("b", SEGMENT), name("a", PRODUCED), name("a", SEGMENT, SequenceMode.POSITION)]
    assert len({name("a", SEGMENT), *others}) == 4


@pytest.mark.parametrize("data", [SEGMENT, PRODUCED])
def test_one_run_imports_every_record_and_a_second_none(data):
    topic = Topic()
    run(topic, data)
    assert topic.records() == list(RecordSet(data))
    count = len(topic.entries)
    run(topic, data)
    run(topic, data, resume=False)
    assert len(topic.entries) == count


def test_plain_messages_are_packed_together():
    topic = Topic()
    run(topic, SEGMENT)
    assert [planned.messages for planned in topic.entries] == [3, 4, 3, 2, 2]
    assert [(p.sequence_id, p.highest_sequence_id) for p in topic.entries] == [
        (100, 102), (110, 113), (120, 124), (130, 131), (200, 201),
    ]  # fmt: skip


@given(st.lists(st.integers(0, 6), max_size=6), st.sampled_from([SEGMENT, PRODUCED]))
@settings(max_examples=60)
def test_killed_and_repeated_any_number_of_times(stops, data):
    topic = Topic()
    for stop in stops:
        run(topic, data, stop_after=stop)
    run(topic, data)
    assert topic.records() == list(RecordSet(data))


@given(st.integers(0, len(SEGMENT)), st.integers(0, 6))
@settings(max_examples=60)
def test_a_file_that_grows(cut, stop):
    """The import of a half-written segment goes on when the rest is there; packs never straddle the resume point."""
    first = len(build_record_batch(records(100, 3)))
    topic = Topic()
    run(topic, SEGMENT[: max(cut, first)], stop_after=stop)
    run(topic, SEGMENT[: max(cut, first)])
    run(topic, SEGMENT)
    assert topic.records() == list(RecordSet(SEGMENT))


def test_packs_are_bounded(monkeypatch):
    monkeypatch.setattr(import_plan, "PACK_MESSAGES", 3)
    topic = Topic()
    run(topic, build_message_set(records(0, 8), 1))
    assert [planned.messages for planned in topic.entries] == [3, 3, 2]
    monkeypatch.setattr(import_plan, "PACK_BYTES", 80)
    topic = Topic()
    run(topic, build_message_set(records(0, 5), 1))
    assert [planned.messages for planned in topic.entries] == [2, 2, 1]


def test_starting_at_a_position_saves_reading_only():
    steps = list(plan_import(opened(SEGMENT), name="n", mode=SequenceMode.OFFSET, publish_time=1))
    third = steps[2].next_position
    rest = list(plan_import(opened(SEGMENT), name="n", mode=SequenceMode.OFFSET, publish_time=1, position=third))
    assert rest == steps[3:]
    assert steps[-1].next_position == len(SEGMENT)


def test_batches_without_offsets_only_move_on():
    empty = build_record_batch([], BatchOptions(base_offset=7, last_offset_delta=-1))
    (step,) = plan_import(opened(empty), name="n", mode=SequenceMode.POSITION, publish_time=1)
    assert (step.entry, step.next_position) == (None, len(empty))


def test_a_file_that_changed_and_a_damaged_one():
    with pytest.raises(InvalidRecordError, match="has changed"):
        list(plan_import(opened(PRODUCED), name="n", mode=SequenceMode.OFFSET, publish_time=1))
    damaged = bytearray(SEGMENT)
    damaged[70] ^= 1
    with pytest.raises(CrcMismatchError):
        list(plan_import(opened(bytes(damaged)), name="n", mode=SequenceMode.OFFSET, publish_time=1))


@pytest.mark.parametrize("data", [SEGMENT, PRODUCED])
def test_confirm_plans_the_batch_that_ends_there_under_its_last_id(data):
    mode = survey(opened(data)).sequence_mode
    whole = [s for s in plan_import(opened(data), name="n", mode=mode, publish_time=1) if s.entry is not None]
    for done, step in enumerate(whole):
        last = step.entry.highest_sequence_id
        plan = ImportPlan("n", mode, 1, resume_after=last, confirm=True)
        first, *rest = [s for s in plan.steps(opened(data)) if s.entry is not None]
        assert first.confirms
        assert first.entry.sequence_id == first.entry.highest_sequence_id == last
        assert bytes(Entry(step.entry.data).payload).endswith(bytes(Entry(first.entry.data).payload))
        assert [r.entry for r in rest] == [w.entry for w in whole[done + 1 :]]


def test_nothing_is_confirmed_where_no_batch_ends():
    plan = ImportPlan("n", SequenceMode.OFFSET, 1, resume_after=105, confirm=True)
    assert not any(step.confirms for step in plan.steps(opened(SEGMENT)))


def test_damage_is_left_out_and_gathered_records_go_first():
    """A wrong checksum between plain messages splits their pack."""
    parts = [build_message_set([record], 1) for record in records(0, 5)]
    parts[2] = parts[2][:-1] + b"\xff"
    damage = []
    plan = ImportPlan("n", SequenceMode.OFFSET, 1, on_damage=damage.append)
    steps = list(plan.steps(opened(b"".join(parts))))
    start = len(parts[0] + parts[1])
    assert [(d.position, d.next_position) for d in damage] == [(start, start + len(parts[2]))]
    assert [s.entry and (s.entry.sequence_id, s.entry.highest_sequence_id) for s in steps] == [(0, 1), None, (3, 4)]


def test_a_wrapper_whose_offset_is_below_those_of_its_messages_is_damage():
    """No checksum covers the offset of a wrapper; the import ended there although it leaves out damage."""
    parts = [build_message_set(records(first, 3), 1, codec=Codec.GZIP) for first in (0, 3, 6)]
    parts[1] = (1).to_bytes(8, "big") + parts[1][8:]
    damage = []
    plan = ImportPlan("n", SequenceMode.OFFSET, 1, on_damage=damage.append)
    assert [s.entry.highest_sequence_id for s in plan.steps(opened(b"".join(parts))) if s.entry] == [2, 8]
    assert [d.position for d in damage] == [len(parts[0])]


def test_unknown_codecs_and_records_that_do_not_decode_are_damage():
    unknown = bytearray(build_record_batch(records(0, 2)))
    unknown[22] |= 7
    seal_batch(unknown, 0, len(unknown))
    hollow = bytearray(build_record_batch(records(2, 2)))
    hollow[61:] = b"\xff" * (len(hollow) - 61)
    seal_batch(hollow, 0, len(hollow))
    data = bytes(unknown + hollow) + build_record_batch(records(4, 2))
    for check, expected in ((False, [2, 4]), (True, [4])):
        damage = []
        plan = ImportPlan("n", SequenceMode.OFFSET, 1, check_records=check, on_damage=damage.append)
        assert [s.entry.sequence_id for s in plan.steps(opened(data)) if s.entry] == expected
        assert len(damage) == 3 - len(expected)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("00000000000000000000.log", SequenceMode.OFFSET),
        ("00000000000012345678.log", SequenceMode.OFFSET),
        ("00000000000000000000.log.1", SequenceMode.POSITION),
        ("batches.bin", SequenceMode.POSITION),
    ],
)
def test_the_mode_of_a_file(name, mode):
    assert SequenceMode.for_file(name) is mode


def transactional(first, count, producer):
    return build_record_batch(records(first, count), BatchOptions(producer_id=producer, transactional=True))


def marker(offset, producer, kind):
    record = Record(offset, 5, b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\0")
    return build_record_batch([record], BatchOptions(producer_id=producer, transactional=True, control=True))


TRANSACTIONS = b"".join(
    [
        build_message_set(records(0, 2), 1),
        transactional(2, 3, 7),
        transactional(5, 2, 8),
        marker(7, 7, 0),
        transactional(8, 2, 7),
        marker(10, 8, 1),
        marker(11, 7, 1),
        build_message_set(records(12, 1), 1),
        transactional(13, 2, 9),
        build_record_batch(records(15, 2)),
    ]
)


def transactions_of(data, mode):
    survey = TransactionSurvey()
    for item in opened(data).batches():
        survey.add(item.batch, place_of(item, mode))
    return survey.result()


def stored_offsets(steps):
    return [r.offset for step in steps if step.entry for r in RecordSet(bytes(Entry(step.entry.data).payload))]


@pytest.mark.parametrize("mode", SequenceMode)
def test_aborted_transactions_are_left_out_and_open_ones_waited_for(mode):
    found = transactions_of(TRANSACTIONS, mode)
    steps = list(ImportPlan("n", mode, 1, transactions=found).steps(opened(TRANSACTIONS)))
    assert stored_offsets(steps) == [0, 1, 5, 6, 8, 9, 12]
    assert sum(step.aborted_messages for step in steps) == 3
    assert [step.waits for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1].position == steps[-1].next_position == TRANSACTIONS.index(transactional(13, 2, 9))
    closed = ImportPlan("n", mode, 1, transactions=found.with_open_aborted())
    steps = list(closed.steps(opened(TRANSACTIONS)))
    assert stored_offsets(steps) == [0, 1, 5, 6, 8, 9, 12, 15, 16]
    assert sum(step.aborted_messages for step in steps) == 5
    assert stored_offsets(plan_import(opened(TRANSACTIONS), name="n", mode=mode, publish_time=1)) == [
        *range(7), 8, 9, 12, 13, 14, 15, 16,
    ]  # fmt: skip


def test_an_import_that_waited_goes_on_once_the_transaction_has_ended():
    mode, topic = SequenceMode.OFFSET, Topic()
    for data, expected in (
        (TRANSACTIONS, [0, 1, 5, 6, 8, 9, 12]),
        (TRANSACTIONS + marker(17, 9, 1), [0, 1, 5, 6, 8, 9, 12, 13, 14, 15, 16]),
    ):
        plan = ImportPlan("n", mode, 1, topic.persisted.get("n", -1), transactions=transactions_of(data, mode))
        for step in plan.steps(opened(data)):
            if step.entry is not None:
                topic.append(step.entry)
        assert [record.offset for record in topic.records()] == expected


def test_records_stored_behind_an_open_transaction_by_an_uncommitted_import_are_not_waited_for():
    found = transactions_of(TRANSACTIONS, SequenceMode.OFFSET)
    plan = ImportPlan("n", SequenceMode.OFFSET, 1, resume_after=16, confirm=True, transactions=found)
    (step,) = plan.steps(opened(TRANSACTIONS))
    assert (step.confirms, step.waits) == (True, False)
