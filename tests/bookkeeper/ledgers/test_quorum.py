from __future__ import annotations

import itertools

import pytest

from magnetar.bookkeeper.ledgers.quorum import can_reach_quorum, covers, holds, last_held, write_set

QUORUMS = [(e, w, a) for e in range(1, 6) for w in range(1, e + 1) for a in range(1, w + 1)]


def subsets(size):
    for count in range(size + 1):
        yield from map(set, itertools.combinations(range(size), count))


@pytest.mark.parametrize(("size", "write", "ack"), QUORUMS)
def test_coverage_is_that_no_entry_can_be_acknowledged_by_the_silent(size, write, ack):
    for answered in subsets(size):
        silent = set(range(size)) - answered
        possible = any(
            set(acks) <= silent
            for entry_id in range(size)
            for acks in itertools.combinations(write_set(entry_id, size, write), ack)
        )
        assert covers(answered, size, write, ack) == (not possible)


@pytest.mark.parametrize(("size", "write", "ack"), QUORUMS)
def test_a_quorum_is_reached_when_every_write_set_has_enough_living(size, write, ack):
    for alive in subsets(size):
        assert can_reach_quorum(alive, size, write, ack) == all(
            len(alive & set(write_set(entry_id, size, write))) >= ack for entry_id in range(size)
        )


@pytest.mark.parametrize(("size", "write", "_ack"), QUORUMS)
def test_places_of_entries(size, write, _ack):
    for place in range(size):
        for entry_id in range(30):
            assert holds(place, entry_id, size, write) == (place in write_set(entry_id, size, write))
            held = [e for e in range(-9, entry_id + 1) if holds(place, e, size, write)]
            assert last_held(place, entry_id, size, write) == held[-1]
