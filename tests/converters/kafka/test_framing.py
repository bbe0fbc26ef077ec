import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.converters.kafka.batch_builder import build_record_batch
from magnetar.converters.kafka.errors import CorruptRecordError, KafkaFormatError, UnsupportedMagicError
from magnetar.converters.kafka.framing import Frame, bytes_wanted, frames, valid_bytes
from magnetar.converters.kafka.message_builder import encode_message
from magnetar.converters.kafka.records import Record

BATCH = build_record_batch([Record(7, 1, b"k", b"v")])
MESSAGES = encode_message(0, 1, -1, None, b"a") + encode_message(1, 2, 5, b"k", None)
SET = MESSAGES + BATCH


def test_magics_may_be_mixed():
    got = list(frames(SET))
    assert [(frame.offset, frame.magic) for frame in got] == [(1, 0), (2, 1), (7, 2)]
    assert got[0].start == 0
    assert [frame.end for frame in got[:-1]] == [frame.start for frame in got[1:]]
    assert got[-1] == Frame(len(MESSAGES), len(SET), 7, 2)
    assert list(frames(memoryview(SET), len(MESSAGES))) == got[2:]


@given(st.integers(0, len(SET)))
def test_every_cut_keeps_the_complete_entries(cut):
    whole = [frame for frame in frames(SET) if frame.end <= cut]
    assert list(frames(SET[:cut])) == whole
    assert valid_bytes(bytearray(SET[:cut])) == (whole[-1].end if whole else 0)


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (1, 21), (2, 48), (0, -1), (0, 0)])
def test_a_size_below_the_header_is_damage(magic, size):
    entry = struct.pack(">qiIB", 0, size, 0, magic) + bytes(60)
    with pytest.raises(CorruptRecordError, match=str(size)):
        list(frames(entry))


def test_unknown_magic():
    entry = struct.pack(">qiIB", 0, 20, 0, 3) + bytes(60)
    with pytest.raises(UnsupportedMagicError) as raised:
        list(frames(entry))
    assert raised.value.magic == 3


def test_bytes_wanted():
    assert bytes_wanted(b"") == bytes_wanted(BATCH[:11]) == 12
    assert bytes_wanted(BATCH[:12]) == len(BATCH)
    assert bytes_wanted(struct.pack(">qi", 0, -7)) == 12


@given(st.binary(max_size=200))
def test_total(data):
    try:
        got = list(frames(data))
    except KafkaFormatError:
        return
    assert all(0 <= frame.start < frame.end <= len(data) for frame in got)
