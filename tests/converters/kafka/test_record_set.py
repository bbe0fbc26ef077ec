import pytest

from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.errors import CrcMismatchError, InvalidRecordError
from magnetar.converters.kafka.message import Message
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Record

OLD = [Record(n, 10 + n, b"k", b"v") for n in range(3)]
NEW = [Record(n, 10 + n, None, b"v2") for n in range(3, 6)]
SET = build_message_set(OLD, 1, codec=Codec.GZIP) + build_record_batch(NEW)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_deep_and_shallow(kind):
    records = RecordSet(kind(SET))
    assert list(records) == OLD + NEW
    assert [type(batch) for batch in records.batches()] == [Message, RecordBatch]
    assert records.first_offset() == 0
    assert records.size_in_bytes == records.valid_bytes == len(SET)


def test_iterators_are_lazy_and_independent():
    records = RecordSet(SET)
    one, two = iter(records), iter(records)
    assert [next(one), next(one), next(two), next(one)] == [OLD[0], OLD[1], OLD[0], OLD[2]]
    broken = bytearray(SET)
    broken[-1] ^= 1
    several = iter(RecordSet(broken))
    assert [next(several) for _ in OLD] == OLD
    with pytest.raises(CrcMismatchError):
        next(several)


def test_checks_can_be_left_to_the_caller():
    broken = bytearray(SET)
    broken[-2] ^= 0x20
    assert len(list(RecordSet(broken, check_crcs=False))) == 6


def test_an_empty_set():
    assert list(RecordSet(b"")) == []
    assert RecordSet(b"").first_offset() is None
    RecordSet(b"").ensure_whole()


def test_a_producers_set_must_be_whole():
    RecordSet(SET).ensure_whole()
    with pytest.raises(InvalidRecordError, match="cut"):
        RecordSet(SET[:-1]).ensure_whole()
