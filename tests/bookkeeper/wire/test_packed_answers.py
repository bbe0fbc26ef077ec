"""Acknowledgements that follow each other: the compiled helper and its twin agree on good and on arbitrary bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.wire.packed_answers import COMPILED, join_added, join_added_pure

BOTH = [join_added_pure, *([join_added] if COMPILED else [])]


def answer(ledger_id, entry_id, code=0, header=0x02010000, size=24):
    return struct.pack(">IIIqq", size, header, code, ledger_id, entry_id)


@pytest.mark.parametrize("join", BOTH)
def test_consecutive_acknowledgements_of_one_ledger_are_one(join):
    data = b"".join(answer(1, entry) for entry in (4, 5, 6))
    assert join(data, 0) == (1, 4, 6, 84)
    assert join(data, 28) == (1, 5, 6, 84)
    assert join(data, 84) is None
    assert join(data[:-1], 0) == (1, 4, 5, 56), "a part of an answer"
    last = 2**63 - 1
    assert join(answer(last, last) + answer(last, -last - 1), 0) == (last, last, last, 28), "no entry follows the last"


@pytest.mark.parametrize("join", BOTH)
@pytest.mark.parametrize(
    "other",
    [
        answer(2, 5),
        answer(1, 6),
        answer(1, 4),
        answer(1, 5, code=104),
        answer(1, 5, header=0x02020000),
        answer(1, 5, size=25),
        answer(-1, 5),
        answer(1, -1),
        b"\0\0",
    ],
)
def test_other_answers_end_the_acknowledgements(join, other):
    assert join(answer(1, 4) + other, 0) == (1, 4, 4, 28)


@pytest.mark.parametrize("join", BOTH)
def test_answers_that_acknowledge_nothing(join):
    for data in (b"", answer(1, 4, code=104), answer(1, 4, header=0x02020000), answer(-1, 4), answer(1, -1)):
        assert join(data, 0) is None
    assert join(answer(1, 4, header=0x02010002), 0) is None, "a bookie answers without flags"


ids = st.integers(0, 3)
pieces = st.one_of(
    st.builds(answer, ids, ids, st.sampled_from([0, 0, 0, 105]), st.sampled_from([0x02010000, 0x02020000])),
    st.binary(max_size=30),
)


@given(st.lists(pieces, max_size=10).map(b"".join), st.integers(0, 60))
def test_both_give_the_same(data, at):
    assert join_added(data, at) == join_added_pure(data, at)
