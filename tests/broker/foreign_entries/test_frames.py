import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.foreign_entries import frames
from magnetar.broker.foreign_entries.frames import (
    ANSWER,
    DECLINED,
    FrameError,
    decode_answer,
    encode_answer,
    rest_of_answer,
)
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason


def back(answer, asked=b"asked"):
    data = b"".join(encode_answer(answer))
    head, rest = data[: ANSWER.size], data[ANSWER.size :]
    assert rest_of_answer(head, 1 << 20) == len(rest)
    return decode_answer(head, rest, asked)


def test_every_answer_comes_back():
    assert back(DECLINED) is DECLINED
    assert back(Converted(b"entry", 7, (1, 6))) == Converted(b"entry", 7, (1, 6))
    assert back(Converted(b"asked", 7, identity=True)) == Converted(b"asked", 7, identity=True)
    failure = ConversionFailure(FailureReason.INVALID, "c", "why\udcff", defect=True)
    assert back(failure) == ConversionFailure(FailureReason.INVALID, "c", "why?", defect=True)


def test_long_messages_are_cut():
    found = back(ConversionFailure(FailureReason.EXCEPTION, "c", "x" * 100_000))
    assert len(found.message) == frames.MAX_TEXT


@pytest.mark.parametrize(
    "head", [ANSWER.pack(9, 0, 0, 0), ANSWER.pack(1, 0, 0, 1 << 30), ANSWER.pack(1, 1, 1 << 30, 0)]
)
def test_invalid_answers_are_refused(head):
    with pytest.raises(FrameError):
        rest_of_answer(head, 1 << 20)


@given(st.binary(min_size=13, max_size=13), st.binary(max_size=64))
def test_any_bytes_are_an_answer_or_refused(head, rest):
    try:
        size = rest_of_answer(head, 64)
        decode_answer(head, (rest + bytes(64 * 6))[:size], b"")
    except FrameError:
        return
