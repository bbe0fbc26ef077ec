"""Which entries belong to a range: against a model that looks at one message after the other."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.reading.index_tracker import Indexed
from magnetar.pipeline.reading.range_cut import behind, cut_by_index, cut_by_position


def chunk_of(ids, ledger_id=1):
    made = EntryChunk.of_bodies("persistent://public/default/t", [b"x"] * len(ids), ledger_id=ledger_id)
    return dataclasses.replace(made, entry_ids=np.array(ids, np.int64))


@given(
    steps=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12),
    start=st.integers(0, 30),
    length=st.integers(1, 30),
)
def test_kept_and_lost_together_are_the_range(steps, start, length):
    """steps: messages of an entry, and how many are missing before it."""
    end, index = start + length, 5
    last, messages = [], []
    for n, missing in steps:
        index += n + missing
        last.append(index - 1)
        messages.append(n)
    found = Indexed(chunk_of(range(len(steps))), np.array(last), np.array(messages))
    cut = cut_by_index(found, start, end)
    there = {i for e in cut.kept.entry_ids.tolist() for i in range(last[e] - messages[e] + 1, last[e] + 1)}
    gone = [i for a, b in cut.lost for i in range(a, b)]
    assert len(gone) == len(set(gone))
    assert there.isdisjoint(gone)
    reached = min(max(cut.reached, start), end)
    assert {i for i in there | set(gone) if start <= i < end} == set(range(start, reached))
    assert all(start <= i < end for i in gone)
    assert cut.seen == len(steps) or cut.reached >= end


def test_entries_without_an_index_belong_to_every_range():
    found = Indexed(chunk_of([0, 1, 2]), np.array([4, -1, 5]), np.array([1, 1, 1]))
    cut = cut_by_index(found, 4, 9)
    assert (cut.kept.entry_ids.tolist(), cut.lost, cut.reached) == ([0, 1, 2], [], 6)


def test_positions_end_before_the_end():
    chunk = chunk_of([3, 5, 8])
    cut = cut_by_position(chunk, Position(1, 3), Position(1, 8))
    assert (cut.kept.entry_ids.tolist(), cut.reached, cut.seen) == ([3, 5], Position(1, 8), 2)
    assert cut_by_position(chunk, Position(1, 3), Position(2, 0)).reached == Position(1, 9)
    assert cut_by_position(chunk, Position(0, 3), Position(0, 9)).seen == 0


@given(ids=st.lists(st.integers(0, 9), max_size=8), last=st.integers(-1, 9))
def test_no_entry_comes_twice(ids, last):
    kept = behind(chunk_of(ids), Position(1, last)).entry_ids.tolist()
    expected, highest = [], last
    for each in ids:
        if each > highest:
            expected.append(each)
            highest = each
    assert kept == expected
    assert not len(behind(chunk_of(ids), Position(2, -1)))
