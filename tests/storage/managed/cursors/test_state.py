"""The stored form of acknowledgements: round trips, increments, total on any bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from magnetar.storage.errors import CursorStateError
from magnetar.storage.managed.cursors.state import (
    CursorState,
    decode_state,
    encode_entries,
    encode_increment,
    encode_state,
    parse_entry,
)
from magnetar.storage.position import Position

POSITIONS = st.builds(Position, st.integers(0, 5), st.integers(0, 100))
BITMAPS = st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=20).map(BitMap)
STATES = st.builds(
    CursorState,
    st.builds(Position, st.integers(-1, 1 << 62), st.integers(-1, 1 << 62)),
    st.dictionaries(st.integers(0, 1 << 62), BITMAPS, max_size=3),
    st.dictionaries(POSITIONS, st.integers(1, 1 << 200), max_size=3),
    st.dictionaries(st.text(max_size=10), st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
)


@given(STATES)
def test_round_trip(state):
    assert decode_state(encode_state(state)) == state


@given(st.binary(max_size=60))
def test_any_bytes_give_a_state_or_the_documented_error(data):
    for text in (data, b"\x01" + data):
        with contextlib.suppress(CursorStateError):
            decode_state(text)
        with contextlib.suppress(CursorStateError):
            parse_entry(text)


def test_a_newer_version_is_refused():
    data = encode_state(CursorState(Position(1, 2)))
    with pytest.raises(CursorStateError):
        decode_state(b"\x02" + data[1:])
    with pytest.raises(CursorStateError):
        decode_state(b"")


@given(STATES, st.integers(1, 40))
def test_chunks_join_to_the_state(state, chunk_bytes):
    data = encode_state(state)
    entries = [parse_entry(entry) for entry in encode_entries(data, 17, chunk_bytes)]
    assert b"".join(entry.payload for entry in entries) == data
    assert [entry.is_last for entry in entries] == [False] * (len(entries) - 1) + [True]
    assert all(entry.base == 17 and not entry.is_increment for entry in entries)
    assert all(len(entry.payload) <= chunk_bytes for entry in entries)


def test_an_increment_adds_up():
    state = CursorState(Position(1, 1), {1: BitMap([5])}, {Position(2, 0): 6}, {"a": 1})
    increment = CursorState(Position(1, 3), {1: BitMap([7]), 2: BitMap([1])}, {Position(2, 0): 4}, {"b": 2})
    entry = parse_entry(encode_increment(encode_state(increment), 9))
    assert (entry.is_last, entry.is_increment, entry.base) == (True, True, 9)
    state.add(decode_state(entry.payload))
    assert state == CursorState(Position(1, 3), {1: BitMap([5, 7]), 2: BitMap([1])}, {Position(2, 0): 4}, {"b": 2})


def test_a_million_alternating_holes_are_small():
    assert len(encode_state(CursorState(Position(0, 0), {0: BitMap(range(0, 1_000_000, 2))}))) < 140_000
    assert len(encode_state(CursorState(Position(0, 0), {0: BitMap(range(2, 1_000_000))}))) < 300
