import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.decode.block_rows import MAX_PLAIN_BYTES, MAX_ROWS, blocks

ROWS = st.integers(0, 2 * MAX_ROWS)
BYTES = st.integers(0, 2 * MAX_PLAIN_BYTES)


@given(entries=st.lists(st.tuples(ROWS, BYTES), max_size=30))
def test_blocks_follow_each_other_within_the_bounds(entries):
    rows, sizes = (np.array([each[k] for each in entries], np.int64) for k in (0, 1))
    found = list(blocks(rows, sizes))
    assert [i for i, _ in found] == [0, *(j for _, j in found)][: len(found)]
    assert (found[-1][1] if found else 0) == len(entries)
    for i, j in found:
        assert j == i + 1 or (rows[i:j].sum() <= MAX_ROWS and sizes[i:j].sum() <= MAX_PLAIN_BYTES)
