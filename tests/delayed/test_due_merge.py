"""Due entries come in the exact order of keys, in pieces of bounded size."""

from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.delayed.due_merge import take_due, take_due_unordered
from magnetar.delayed.mutable_bucket import Chunk
from magnetar.delayed.sorted_run import AFTER_ALL, Columns

KEYS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=25, unique=True
)


def chunks_of(parts):
    return [Chunk(Columns.of(part), min(part)[0]) for part in parts]


@settings(deadline=None)
@given(parts=st.lists(KEYS, min_size=1, max_size=6), limit=st.integers(1, 40), cutoff=st.integers(0, 35))
def test_pieces_together_are_all_that_is_due_in_order(parts, limit, cutoff):
    chunks, got = chunks_of(parts), []
    while (piece := take_due(chunks, cutoff, limit)).rows:
        assert piece.rows <= max(limit, len(parts))
        got += piece.keys()
    assert got == sorted(key for part in parts for key in part if key[0] <= cutoff)
    assert sum(map(len, chunks)) == sum(map(len, parts)) - len(got)


def test_chunks_that_follow_each_other_are_taken_whole():
    chunks = chunks_of([[(base + k, 0, k) for k in range(100)] for base in range(0, 5000, 100)])
    sizes = []
    while (piece := take_due(chunks, AFTER_ALL, 150)).rows:
        sizes.append(piece.rows)
    assert sizes == [100] * 50


@settings(deadline=None)
@given(parts=st.lists(KEYS, min_size=1, max_size=6), limit=st.integers(1, 40), cutoff=st.integers(0, 35))
def test_unordered_pieces_together_are_all_that_is_due(parts, limit, cutoff):
    chunks, got = chunks_of(parts), []
    while pieces := take_due_unordered(chunks, cutoff, limit):
        assert sum(piece.rows for piece in pieces) <= max(limit, len(parts))
        assert all(piece.keys() == sorted(piece.keys()) != [] for piece in pieces)
        got += chain.from_iterable(map(Columns.keys, pieces))
    assert sorted(got) == sorted(key for part in parts for key in part if key[0] <= cutoff)
    assert sum(map(len, chunks)) == sum(map(len, parts)) - len(got)
