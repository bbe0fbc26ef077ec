import pytest

from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.creation import NewMessage, OffsetAssigner, create_record_set
from magnetar.converters.kafka.errors import (
    InvalidRecordError,
    MixedMagicError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
    UnsupportedMagicError,
)
from magnetar.converters.kafka.record_set import RecordSet
from magnetar.converters.kafka.records import Header, Record, TimestampType

LEGAL = [(m, c) for m in (0, 1, 2) for c in Codec if m == 2 or c is not Codec.ZSTD]


@pytest.mark.parametrize(("magic", "codec"), LEGAL)
def test_offsets_come_from_the_assigner(magic, codec):
    messages = [NewMessage(b"k", b"v%d" % n, 10 + n, magic=magic) for n in range(3)]
    data = create_record_set(messages, OffsetAssigner([5, 9, 20]), codec=codec)
    assert list(RecordSet(data)) == [
        Record(offset, 10 + n if magic else -1, b"k", b"v%d" % n) for n, offset in enumerate([5, 9, 20])
    ]
    assert all(batch.codec is codec and batch.magic == magic for batch in RecordSet(data).batches())


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_log_append_time(magic, codec):
    data = create_record_set(
        [NewMessage(None, b"v", 1, magic=magic)] * 2,
        OffsetAssigner.sequential(3),
        codec=codec,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time=77,
    )
    assert [(r.offset, r.timestamp) for r in RecordSet(data)] == [(3, 77), (4, 77)]


def test_no_messages_give_no_bytes():
    assert create_record_set([], OffsetAssigner.sequential(), codec=Codec.LZ4) == b""


def test_mixed_magics_are_refused():
    with pytest.raises(MixedMagicError, match=r"\[1, 2\]"):
        create_record_set([NewMessage(None, None), NewMessage(None, None, magic=1)], OffsetAssigner.sequential())


def test_contradictory_arguments_are_refused():
    one = [NewMessage(None, b"")]
    with pytest.raises(InvalidRecordError, match="append_time"):
        create_record_set(one, OffsetAssigner.sequential(), append_time=1)
    with pytest.raises(InvalidRecordError, match="append_time"):
        create_record_set(one, OffsetAssigner.sequential(), timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidRecordError, match="no offset left"):
        create_record_set(one * 2, OffsetAssigner([1]))
    with pytest.raises(UnsupportedMagicError):
        create_record_set([NewMessage(None, b"", magic=3)], OffsetAssigner.sequential())
    with pytest.raises(UnsupportedForMessageFormatError):
        create_record_set([NewMessage(None, b"", headers=(Header("h", b""),), magic=1)], OffsetAssigner.sequential())
    with pytest.raises(UnsupportedCompressionError):
        create_record_set([NewMessage(None, b"", magic=1)], OffsetAssigner.sequential(), codec=Codec.ZSTD)
