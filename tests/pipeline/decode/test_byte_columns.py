import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.decode.byte_columns import NULL, Buffers, Slices, fixed, repeated

SLICE = st.tuples(st.integers(0, 1), st.integers(0, 10), st.integers(NULL, 10))


def slices(rows):
    return Slices(*(np.array([row[k] for row in rows], np.int64) for k in range(3)))


@given(rows=st.lists(SLICE, max_size=8))
def test_values_are_gathered_out_of_their_buffers(rows):
    data = (bytes(range(20)), b"abcdefghijklmnopqrst")
    buffers = Buffers()
    assert [buffers.add(each) for each in data] == [0, 1]
    expected = [None if n < 0 else data[b][start : start + n] for b, start, n in rows]
    found = buffers.binary(slices(rows))
    found.validate(full=True)
    assert found.to_pylist() == expected
    assert [buffers.value(slices(rows), i) for i in range(len(rows))] == expected


def test_values_outside_of_their_buffer_are_refused():
    buffers = Buffers()
    buffers.add(b"abc")
    with pytest.raises(ValueError, match="do not fit"):
        buffers.binary(slices([(0, 2, 2)]))


def test_values_of_a_new_buffer():
    buffers = Buffers()
    number, starts, lengths = buffers.add_values([b"a", b"", b"bcd"])
    assert buffers.binary(Slices(np.full(3, number), starts, lengths)).to_pylist() == [b"a", b"", b"bcd"]


def test_text_that_is_no_utf8_is_replaced_alone():
    buffers = Buffers()
    buffers.add("aü".encode() + b"\xff")
    assert buffers.text(slices([(0, 0, 3), (0, 3, 1), (0, 0, NULL)])).to_pylist() == ["aü", "\ufffd", None]


def test_numbers():
    assert fixed(np.array([1, 2]), pa.int64(), np.array([False, True])).to_pylist() == [1, None]
    assert fixed(np.arange(6)[::2], pa.int64()).to_pylist() == [0, 2, 4]
    assert repeated("a", pa.string(), 2).to_pylist() == ["a", "a"]
