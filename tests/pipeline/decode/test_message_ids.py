import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.decode.message_ids import message_id, message_ids

ROW = st.tuples(st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.integers(0, 2**31 - 1))


@given(ledger=st.integers(0, 2**62), partition=st.sampled_from((-1, 0, 5, 200)), rows=st.lists(ROW, max_size=9))
def test_many_ids_equal_single_ids(ledger, partition, rows):
    rows = [(entry, index, size if index >= 0 else 0) for entry, index, size in rows]
    columns = [np.array([row[k] for row in rows], np.int64) for k in range(3)]
    assert message_ids(ledger, partition, *columns).to_pylist() == [
        message_id(ledger, row[0], partition, *row[1:]) for row in rows
    ]
