from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.bookies.placement import choose_ensemble, choose_replacement
from magnetar.bookkeeper.ledgers.quorum import write_set

BOOKIES = [f"b{number}:3181" for number in range(12)]


def one_rack(_bookie):
    return "/r"


@given(st.integers(0, 12), st.integers(1, 6), st.integers())
def test_an_ensemble_is_different_bookies_or_none(count, size, seed):
    chosen = choose_ensemble(BOOKIES[:count], size, min(2, size), one_rack, random.Random(seed))
    if count < size:
        assert chosen is None
    else:
        assert len(chosen) == len(set(chosen)) == size
        assert set(chosen) <= set(BOOKIES[:count])


@given(st.integers(1, 5), st.integers(1, 3), st.integers())
def test_no_write_set_has_two_bookies_of_one_rack_when_there_are_racks_enough(extra, write, seed):
    size = write * (1 + extra % 2)

    def rack(bookie):
        return f"/r{BOOKIES.index(bookie) % (2 * write)}"

    chosen = choose_ensemble(BOOKIES, size, write, rack, random.Random(seed))
    for entry_id in range(size):
        racks = [rack(chosen[place]) for place in write_set(entry_id, size, write)]
        assert len(set(racks)) == write


def test_all_bookies_are_used_over_time():
    chance = random.Random(7)
    used = {bookie for _ in range(200) for bookie in choose_ensemble(BOOKIES, 3, 3, one_rack, chance)}
    assert used == set(BOOKIES)


def test_a_replacement_stands_in_no_place_yet_and_in_another_rack_than_its_neighbours():
    racks = {"a": "/1", "b": "/2", "c": "/3", "d": "/2", "e": "/1"}
    for seed in range(20):
        assert choose_replacement("abc", 0, "abcde", 3, racks.get, random.Random(seed)) == "e"
    assert choose_replacement("abc", 0, "abc", 3, racks.get, random.Random(1)) is None
