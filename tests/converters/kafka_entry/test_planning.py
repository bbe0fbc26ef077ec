import pytest

from magnetar.converters.entry import Entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec, compress
from magnetar.converters.kafka.errors import CrcMismatchError, InvalidRecordError
from magnetar.converters.kafka.message_builder import build_message_set, encode_message
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record
from magnetar.converters.kafka_entry.planning import message_count, plan_entry


def records(*offsets):
    return [Record(offset, 5, None, b"%d" % offset) for offset in offsets]


def test_the_record_set_is_stored_as_it_is():
    data = build_record_batch(records(0, 1, 5)) + build_message_set(records(6, 8), 1, codec=Codec.GZIP)
    planned = plan_entry(memoryview(data), publish_time=77, producer_name="p", sequence_id=3, highest_sequence_id=9)
    entry = Entry(planned.data)
    entry.verify_checksum()
    assert entry.payload == data
    metadata = entry.metadata
    assert [(p.key, p.value) for p in metadata.properties] == [("entry.format", "kafka")]
    assert (metadata.producer_name, metadata.publish_time) == ("p", 77)
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (3, 9)
    assert metadata.num_messages_in_batch == planned.messages == 6 + 3
    assert (planned.producer_name, planned.sequence_id, planned.highest_sequence_id) == ("p", 3, 9)


def test_one_sequence_id_needs_no_highest():
    planned = plan_entry(build_record_batch(records(0)), publish_time=1, sequence_id=4)
    assert not Entry(planned.data).metadata.HasField("highest_sequence_id")
    assert planned.highest_sequence_id == 4


def test_spans():
    inner = b"".join(encode_message(1, 0, 5, None, b"x") for _ in range(3))
    careless = encode_message(1, 0, 5, None, compress(Codec.GZIP, inner, magic=1), attributes=1)
    control = build_record_batch(records(4), BatchOptions(control=True))
    for data, span in ((careless, 3), (control, 1), (build_message_set(records(4), 0), 1)):
        (batch,) = RecordSet(data).batches()
        assert message_count(batch) == span


def test_refusals():
    good = build_record_batch(records(0))
    with pytest.raises(InvalidRecordError, match="cut"):
        plan_entry(good[:-1], publish_time=1)
    with pytest.raises(InvalidRecordError, match="no messages"):
        plan_entry(b"", publish_time=1)
    with pytest.raises(CrcMismatchError):
        plan_entry(good[:-2] + b"\xff" + good[-1:], publish_time=1)


@pytest.mark.parametrize(
    ("data", "spans", "count"),
    [
        (build_record_batch(records(0, 4, 9)), 10, 3),
        (build_record_batch(records(4), BatchOptions(control=True)) + build_record_batch(records(5)), 2, 1),
        (build_message_set(records(0, 4), 1, codec=Codec.GZIP), 5, 2),
        (build_message_set(records(0, 4), 1), 2, 2),
    ],
)
def test_gaps_count_or_do_not(data, spans, count):
    assert plan_entry(data, publish_time=1).messages == spans
    assert plan_entry(data, publish_time=1, gaps=False).messages == count


def test_nothing_but_control_records_is_no_entry_without_gaps():
    control = build_record_batch(records(4), BatchOptions(control=True))
    with pytest.raises(InvalidRecordError, match="no messages"):
        plan_entry(control, publish_time=1, gaps=False)
