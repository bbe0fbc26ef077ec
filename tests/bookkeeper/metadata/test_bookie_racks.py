from __future__ import annotations

import json

import pytest

from magnetar.bookkeeper.metadata.bookie_racks import DEFAULT_RACK, BookieRacks, bookie_racks


def stored(groups):
    return bookie_racks(json.dumps(groups).encode())


def test_racks_and_groups_as_pulsar_stores_them():
    found = stored(
        {
            "default": {"b1:3181": {"rack": "/r1", "hostname": "b1"}, "b2:3181": {"rack": "east/r2"}},
            "other": {"b3:3181": {"rack": "/"}, "b4:3181": {"rack": None}, "b5:3181": {}},
        }
    )
    none = DEFAULT_RACK
    assert found.racks == {"b1:3181": "/r1", "b2:3181": "/east/r2", "b3:3181": none, "b4:3181": none, "b5:3181": none}
    assert found.groups["default"] == {"b1:3181", "b2:3181"}
    assert found.groups["other"] == {"b3:3181", "b4:3181", "b5:3181"}
    assert found.malformed == ()


@pytest.mark.parametrize("broken", [None, 3, "x", [], {"b9": 1}, {"b9": {"rack": 3}}, {"b9": None}])
def test_a_malformed_group_leaves_the_others_in_force(broken):
    found = stored({"broken": broken, "good": {"b1:3181": {"rack": "/r1"}}})
    assert (found.racks, found.malformed) == ({"b1:3181": "/r1"}, ("broken",))
    assert found.groups == {"good": {"b1:3181"}}


def test_a_malformed_member_leaves_the_others_of_its_group():
    found = stored({"g": {"b1": {"rack": "/r1"}, "b2": 7}})
    assert (found.racks, found.groups, found.malformed) == ({"b1": "/r1"}, {"g": {"b1"}}, ("g",))


def test_a_bookie_of_two_groups_has_the_rack_that_one_of_them_names():
    for order in ({"a": {"b1": {"rack": "/r1"}}, "b": {"b1": {}}}, {"b": {"b1": {}}, "a": {"b1": {"rack": "/r1"}}}):
        assert stored(order).racks == {"b1": "/r1"}


@pytest.mark.parametrize("data", [b"", b"{}"])
def test_an_empty_node_has_no_racks(data):
    assert bookie_racks(data) == BookieRacks()


@pytest.mark.parametrize("data", [b"{", b"[]", b"3", b"[" * 100_000, b"\xff"])
def test_a_node_that_is_no_map_has_no_racks_and_says_so(data):
    assert bookie_racks(data).malformed == ("",)
