"""Which reads of a producer end in the middle of its window."""

from __future__ import annotations

import pytest

from magnetar.broker.network.window_halves import WindowHalves
from magnetar.storage.read_turns import ReadTurns

WINDOW = 200_000


@pytest.fixture
def turns():
    return ReadTurns()


@pytest.fixture
def halves(turns):
    """A connection whose first large read is over."""
    made = WindowHalves(turns)
    assert not made.received(20_000, 0, 100)
    return made


def test_a_window_that_arrived_whole_is_read_in_halves_from_then_on(halves):
    assert not halves.received(WINDOW, 0, 1000)
    assert halves.half_bytes == WINDOW // 2
    assert halves.received(WINDOW // 2, 0, 500), "the rest waits until the frame of the first half has begun"
    assert not halves.received(WINDOW // 2, 500, 1000)
    assert halves.half_bytes == WINDOW // 2


def test_reads_while_a_half_is_in_flight_change_nothing(halves):
    halves.received(WINDOW, 0, 1000)
    halves.received(WINDOW // 2, 0, 500)
    halves.received(WINDOW // 2, 500, 1000)
    for _ in range(3):
        assert not halves.received(WINDOW // 2, 500, 1000)
        assert halves.half_bytes == WINDOW // 2


def test_the_half_follows_a_window_that_grows_or_shrinks(halves):
    halves.received(WINDOW, 0, 1000)
    halves.received(WINDOW // 2, 0, 500)
    halves.received(2 * WINDOW, 500, 3000)
    assert halves.half_bytes == WINDOW * 5 // 4
    halves.received(90_000, 0, 450)
    assert halves.half_bytes == 45_000


def test_a_short_read_of_an_idle_log_is_no_half(halves):
    halves.received(WINDOW, 0, 1000)
    assert not halves.received(WINDOW // 2 - 1, 0, 499)


def test_a_read_without_a_whole_entry_waits_for_nothing(halves):
    halves.received(WINDOW, 0, 1000)
    assert not halves.received(WINDOW // 2, 0, 0)


@pytest.mark.parametrize(("size_bytes", "entries"), [(60_000, 400), (4_000_000, 40)])
def test_small_windows_and_windows_of_few_messages_are_read_whole(halves, size_bytes, entries):
    assert not halves.received(size_bytes, 0, entries)
    assert halves.half_bytes == 0


def test_a_connection_that_publishes_beside_another_is_read_whole(turns, halves):
    halves.received(WINDOW, 0, 1000)
    WindowHalves(turns).received(WINDOW, 0, 1000)
    assert not halves.received(WINDOW, 0, 1000)
    assert halves.half_bytes == 0
