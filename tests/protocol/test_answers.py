import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import AnswerCutter
from magnetar.protocol.errors import MalformedAnswerError
from magnetar.protocol.frames import encode_command

PING = encode_command(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
ID = pb.MessageIdData(ledgerId=1, entryId=2)
MESSAGE = encode_command(
    pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=pb.CommandMessage(consumer_id=1, message_id=ID)), b"headers"
)


@given(st.lists(st.sampled_from([PING, MESSAGE]), max_size=5), st.lists(st.integers(1, 40)))
def test_any_pieces_give_the_same(frames, sizes):
    data, cutter, got, position = b"".join(frames), AnswerCutter(), [], 0
    for size in [*sizes, len(data)]:
        got += cutter.feed(data[position : position + size])
        position += size
    assert got == AnswerCutter().feed(data)
    assert [answer.entry for answer in got] == [b"headers" if frame is MESSAGE else b"" for frame in frames]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x09",
        b"\x00\x00\x00\x06\x00\x00\x00\x02\xff\xff",
        b"\x00\x00\x00\x08\x00\x00\x00\x04"
        + pb.BaseCommand(type=pb.BaseCommand.MESSAGE).SerializeToString()
        + b"\x4a\x00",
    ],
    ids=["another protocol", "command beyond its frame", "no protobuf", "required fields are missing"],
)
def test_bytes_that_no_broker_sends_are_refused(data):
    with pytest.raises(MalformedAnswerError):
        AnswerCutter().feed(data)


@given(st.binary(max_size=60))
def test_total(data):
    try:
        AnswerCutter().feed(data)
    except MalformedAnswerError:
        return


def test_the_size_is_limited_before_anything_is_kept():
    with pytest.raises(MalformedAnswerError):
        AnswerCutter(max_frame_bytes=10).feed(MESSAGE)
