"""Neighbours among positions that are read again."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.managed.entry_reader import neighbours
from magnetar.storage.position import Position

POSITIONS = st.builds(Position, st.integers(0, 1), st.integers(0, 30))


def one_by_one(positions, start, limit):
    count = 1
    while (
        count < limit
        and start + count < len(positions)
        and positions[start + count - 1].next() == positions[start + count]
    ):
        count += 1
    return count


@given(positions=st.sets(POSITIONS, min_size=1).map(sorted), limit=st.integers(1, 40))
def test_as_many_as_follow_each_other(positions, limit):
    for start in range(len(positions)):
        assert neighbours(positions, start, limit) == one_by_one(positions, start, limit)


def test_all_or_half_of_many():
    positions = [Position(3, k) for k in range(1000)]
    assert neighbours(positions, 0, 1000) == neighbours(positions, 0, 5000) == 1000
    del positions[500]
    assert neighbours(positions, 0, 1000) == 500
    assert neighbours(positions, 500, 1000) == 499
