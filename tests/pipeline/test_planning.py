"""The ranges of the tasks: nothing twice, nothing left out, sizes as wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.offsets import Position
from magnetar.pipeline.planning import (
    LEAST_BYTES,
    MOST_SMALL_TASKS,
    SPLIT_BYTES,
    Covered,
    ReadRange,
    even_split,
    pack,
    shares,
    stitch,
)

TOPIC = "persistent://t/n/a"


@st.composite
def ledgers(draw):
    """Ledger files in the order of a log, with holes between them."""
    at, found = draw(st.integers(0, 50)), []
    for ledger_id in range(draw(st.integers(0, 6))):
        first = at + draw(st.integers(0, 10))
        at = first + draw(st.integers(0, 30))
        found.append(Covered(ledger_id, first, at))
    return found


@given(start=st.integers(0, 120), length=st.integers(1, 150), covered=ledgers())
def test_pieces_are_the_whole_without_gap_or_overlap(start, length, covered):
    whole = ReadRange(TOPIC, -1, start, start + length, weight_bytes=1000.0)
    pieces = stitch(whole, covered)
    assert [pieces[0].start, *[p.end for p in pieces]] == [*[p.start for p in pieces], start + length]
    assert all(p.start < p.end for p in pieces)
    for piece in pieces:
        holders = [c for c in covered if c.first <= piece.start and piece.end <= c.end and c.first < c.end]
        assert (piece.ledger_id is None) == (not holders)
        assert piece.ledger_id is None or piece.ledger_id == holders[0].ledger_id
    assert abs(sum(p.weight_bytes for p in pieces) - 1000) < 1e-6


@given(
    lengths=st.lists(st.integers(1, 500), max_size=150),
    min_tasks=st.none() | st.integers(1, 100),
    max_messages=st.none() | st.integers(1, 200),
    split=st.integers(100, 100_000),
)
def test_packing_keeps_every_message_once_and_in_order(lengths, min_tasks, max_messages, split):
    ranges, at = [], 0
    for n in lengths:
        ranges.append(ReadRange(TOPIC, -1, at, at + n, weight_bytes=100.0 * n))
        at += n
    tasks = pack(ranges, split_bytes=split, min_tasks=min_tasks, max_messages=max_messages)
    flat = [piece for task in tasks for piece in task]
    assert [0, *[p.end for p in flat]][: len(flat)] == [p.start for p in flat]
    assert sum(p.messages for p in flat) == at
    assert all(task for task in tasks)
    if min_tasks is not None:
        assert len(tasks) >= min(min_tasks, at)
    if max_messages is not None:
        assert all(sum(p.messages for p in task) <= max_messages for task in tasks)


def test_ranges_of_positions_are_read_whole():
    whole = ReadRange(TOPIC, -1, Position(3, 0), Position(5, 2), weight_bytes=1e9)
    assert stitch(whole, [Covered(3, 0, 10)]) == [whole]
    assert pack([whole], split_bytes=1000, min_tasks=4) == [[whole]]


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10_000), min_size=1), st.integers(1, 5000))
def test_shares_follow_the_backlog_and_no_topic_starves(backlog, limit):
    given_ = shares(backlog, limit)
    for topic, waiting in backlog.items():
        assert 0 <= given_[topic] <= waiting
        assert (given_[topic] >= 1) == (waiting >= 1)
    waiting = [topic for topic in backlog if backlog[topic]]
    assert sum(given_.values()) <= max(limit, 1) + len(waiting)
    if sum(backlog.values()) <= limit:
        assert given_ == backlog


def test_ten_thousand_partitions_become_few_tasks():
    ranges = [ReadRange(f"{TOPIC}-partition-{n}", n, 0, 100, weight_bytes=1e5) for n in range(10_000)]
    tasks = pack(ranges, split_bytes=64 << 20)
    assert MOST_SMALL_TASKS / 2 <= len(tasks) <= MOST_SMALL_TASKS * 2
    assert sum(len(task) for task in tasks) == 10_000


MIB = 1 << 20


@pytest.mark.parametrize(
    ("mib", "cores", "tasks"),
    [
        *((1, 2, 1), (40, 2, 1), (80, 2, 2), (630, 2, 2), (780, 2, 4), (10_000, 2, 40)),
        *((1, 1, 1), (630, 1, 2), (630, 64, 19), (3000, 64, 64), (60_000, 64, 256)),
    ],
)
def test_without_a_chosen_size_the_cores_end_together(mib, cores, tasks):
    whole = ReadRange("t", -1, 0, 10_000_000, weight_bytes=mib * MIB)
    split = even_split(mib * MIB, cores)
    assert len(pack([whole], split_bytes=split)) == tasks


@given(st.floats(1, 1e15), st.integers(1, 300))
def test_partitions_that_follow_the_cores_keep_near_the_size(total, cores):
    split = even_split(total, cores)
    assert split <= max(1.5 * SPLIT_BYTES, LEAST_BYTES * 2, 1)
    assert split >= min(total, LEAST_BYTES) or split == 1
