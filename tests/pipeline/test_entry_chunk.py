import numpy as np
import pytest

from magnetar.pipeline.entry_chunk import EntryChunk

TOPIC = "persistent://public/default/t-partition-3"


def test_bodies_are_found_without_copying():
    data = b"headab--cdef"
    chunk = EntryChunk(TOPIC, 3, 7, data, *(np.array(a, np.int64) for a in ([4, 8], [6, 12], [0, 1])))
    assert [bytes(chunk.entry(i)) for i in range(len(chunk))] == [b"ab", b"cdef"]
    assert chunk.size_bytes == 6
    assert chunk.partitioned_topic == "persistent://public/default/t"


def test_a_slice_shares_the_data():
    chunk = EntryChunk.of_bodies(TOPIC, [b"a", b"", b"bc"], partition=3, ledger_id=7, first=5)
    part = chunk.slice(1, 3)
    assert part.data is chunk.data
    assert part.entry_ids.tolist() == [6, 7]
    assert [bytes(part.entry(i)) for i in range(2)] == [b"", b"bc"]


def test_a_chunk_may_be_empty():
    assert len(EntryChunk.of_bodies(TOPIC, [])) == 0


def test_a_body_outside_of_the_data_is_a_defect():
    with pytest.raises(AssertionError):
        EntryChunk(TOPIC, 3, 7, b"ab", *(np.array([v], np.int64) for v in (0, 3, 0)))
