"""The points of the sparse index."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from magnetar.storage.embedded.file_header import FILE_HEADER_BYTES
from magnetar.storage.embedded.ledger_index import INDEX_INTERVAL_BYTES, LedgerIndex

SIZES = st.sampled_from([32, 1000, INDEX_INTERVAL_BYTES - 1, INDEX_INTERVAL_BYTES, INDEX_INTERVAL_BYTES + 1, 200_000])
RUNS = st.lists(st.tuples(st.integers(0, 100), st.lists(SIZES, min_size=1, max_size=60)), min_size=1, max_size=8)


@given(RUNS)
def test_the_points_of_runs_are_those_of_their_records_noted_singly(runs):
    by_runs, singly = LedgerIndex(), LedgerIndex()
    entry_id, file_offset = 0, FILE_HEADER_BYTES
    for start, sizes in runs:
        offsets = array("q", [start])
        for size in sizes:
            offsets.append(offsets[-1] + size)
        by_runs.add_records(entry_id, file_offset, memoryview(offsets))
        for size in sizes:
            singly.add(entry_id, file_offset)
            entry_id, file_offset = entry_id + 1, file_offset + size
    assert (by_runs.entries, by_runs.offsets) == (singly.entries, singly.offsets)
    for entry in range(entry_id):
        point, offset = by_runs.point_for(entry)
        assert point <= entry
        assert offset == by_runs.offsets[by_runs.entries.index(point)]
