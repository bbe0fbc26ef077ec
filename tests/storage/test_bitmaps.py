"""Bitmap questions against sets."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.storage.bitmaps import first_absent, runs_absent

# dense near the border of two containers (65536), where windows meet
NUMBERS = st.one_of(st.integers(0, 60), st.integers(65516, 65576))
IDS = st.one_of(
    st.sets(NUMBERS),
    st.sets(NUMBERS, max_size=8).map(lambda few: {*range(61), *range(65516, 65577)} - few),
)
BOUND = st.one_of(st.integers(0, 45), st.integers(65510, 65560))


@given(st.lists(IDS, max_size=3), BOUND, BOUND)
def test_first_absent_is_the_first_that_no_set_holds(sets, start, stop):
    expected = next((k for k in range(start, stop) if not any(k in held for held in sets)), stop)
    assert first_absent([BitMap(held) for held in sets], start, stop) == expected


@given(st.lists(IDS, max_size=3), BOUND, st.integers(0, 60))
def test_runs_absent_are_maximal_and_complete(sets, start, length):
    stop = start + length
    runs = runs_absent([BitMap(held) for held in sets], start, stop)
    covered = [k for first, end in runs for k in range(first, end)]
    assert covered == [k for k in range(start, stop) if not any(k in held for held in sets)]
    assert all(first < end for first, end in runs)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(runs))


def test_a_whole_container_is_jumped_over():
    assert first_absent([BitMap(range(200_000))], 3, 300_000) == 200_000
    assert first_absent([BitMap(range(200_000))], 3, 150_000) == 150_000
