from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.bookies.placement import PlacementRules, choose_ensemble, choose_replacement, region_of
from magnetar.bookkeeper.ledgers.quorum import write_set
from magnetar.bookkeeper.metadata.bookie_racks import DEFAULT_RACK

RACKS = PlacementRules()
ENFORCED = PlacementRules(min_racks_per_write_quorum=3, enforce_min_racks=True)
REGIONS = PlacementRules(region_aware=True)
BOOKIES = [f"b{number}:3181" for number in range(12)]


def one_rack(_bookie):
    return "/r"


@given(st.integers(0, 12), st.integers(1, 6), st.integers())
def test_an_ensemble_is_different_bookies_or_none(count, size, seed):
    chosen = choose_ensemble(BOOKIES[:count], size, min(2, size), RACKS, one_rack, random.Random(seed))
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

    chosen = choose_ensemble(BOOKIES, size, write, RACKS, rack, random.Random(seed))
    for entry_id in range(size):
        racks = [rack(chosen[place]) for place in write_set(entry_id, size, write)]
        assert len(set(racks)) == write


def test_all_bookies_are_used_over_time():
    chance = random.Random(7)
    used = {bookie for _ in range(200) for bookie in choose_ensemble(BOOKIES, 3, 3, RACKS, one_rack, chance)}
    assert used == set(BOOKIES)


def test_a_replacement_stands_in_no_place_yet_and_in_another_rack_than_its_neighbours():
    racks = {"a": "/1", "b": "/2", "c": "/3", "d": "/2", "e": "/1"}
    for seed in range(20):
        assert choose_replacement("abc", 0, "abcde", 3, RACKS, racks.get, random.Random(seed)) == "e"
    assert choose_replacement("abc", 0, "abc", 3, RACKS, racks.get, random.Random(1)) is None


@given(st.integers(1, 3), st.integers())
def test_an_enforced_number_of_racks_stands_in_each_write_quorum_or_there_is_no_ensemble(racks, seed):
    def rack(bookie):
        return f"/r{BOOKIES.index(bookie) % racks}"

    chosen = choose_ensemble(BOOKIES, 6, 3, ENFORCED, rack, random.Random(seed))
    if racks < 3:
        assert chosen is None
    else:
        assert all(len({rack(chosen[place]) for place in write_set(e, 6, 3)}) == 3 for e in range(6))


def test_enforced_racks_leave_out_bookies_without_one():
    racks = {bookie: f"/r{number}" if number < 3 else DEFAULT_RACK for number, bookie in enumerate(BOOKIES)}
    for seed in range(20):
        chosen = choose_ensemble(BOOKIES, 3, 3, ENFORCED, racks.get, random.Random(seed))
        assert set(chosen) == set(BOOKIES[:3])
    assert choose_ensemble(BOOKIES[1:], 3, 3, ENFORCED, racks.get, random.Random(1)) is None
    assert choose_replacement(BOOKIES[:3], 0, BOOKIES, 3, ENFORCED, racks.get, random.Random(1)) is None


def test_an_enforced_replacement_keeps_the_racks_of_every_write_quorum():
    racks = {"a": "/1", "b": "/2", "c": "/3", "d": "/2", "e": "/1"}
    assert choose_replacement("abc", 0, "abcde", 3, ENFORCED, racks.get, random.Random(1)) == "e"
    assert choose_replacement("abc", 0, "abcd", 3, ENFORCED, racks.get, random.Random(1)) is None


@given(st.integers())
def test_regions_are_spread_before_racks(seed):
    racks = {
        **{f"a{number}": f"/east/r{number}" for number in range(8)},
        **{f"b{number}": "/west/r0" for number in range(2)},
    }
    chosen = choose_ensemble(racks, 4, 4, REGIONS, racks.get, random.Random(seed))
    assert sorted(region_of(racks[bookie]) for bookie in chosen) == ["east", "east", "west", "west"]
    assert len({racks[bookie] for bookie in chosen}) == 3


def test_without_rules_racks_mean_nothing():
    plain = PlacementRules(rack_aware=False, enforce_min_racks=True)
    racks = {bookie: "/r0" if number else "/r1" for number, bookie in enumerate(BOOKIES)}
    seen = [choose_ensemble(BOOKIES, 2, 2, plain, racks.get, random.Random(seed)) for seed in range(40)]
    assert any(BOOKIES[0] not in chosen for chosen in seen)


def test_a_rack_outside_all_regions_has_no_region():
    assert [region_of(rack) for rack in ("/east/r1", "/r1", DEFAULT_RACK)] == ["east", "", ""]
