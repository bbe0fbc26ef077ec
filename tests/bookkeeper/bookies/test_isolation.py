from __future__ import annotations

import json

import pytest

from magnetar.bookkeeper.bookies.isolation import (
    POLICY_KEY,
    IsolationGroups,
    allowed_bookies,
    groups_of_ledger,
    isolation_groups,
    policy_of,
)

GROUPS = {"red": frozenset("ab"), "blue": frozenset("cd"), "both": frozenset("bc")}


@pytest.mark.parametrize(
    ("primary", "secondary", "size", "expected"),
    [
        (None, None, 2, "abcdef"),
        ("red", None, 2, "abef"),
        ("red", "blue", 2, "abef"),
        ("red", "blue", 3, "abcdef"),
        ("both", "", 2, "bcef"),
        ("red, blue", "", 2, "abcdef"),
        ("", "", 2, "ef"),
        ("unknown", "blue", 1, "cdef"),
    ],
)
def test_bookies_of_other_groups_are_left_out(primary, secondary, size, expected):
    isolation = None if primary is None else isolation_groups(primary, secondary)
    assert "".join(allowed_bookies("abcdef", isolation, GROUPS, size)) == expected


def test_members_that_are_not_registered_do_not_make_a_primary_group_large_enough():
    assert allowed_bookies("acd", isolation_groups("red", "blue"), GROUPS, 2) == ["a", "c", "d"]


def test_a_ledger_carries_its_groups_as_apache_pulsar_writes_them():
    wanted = isolation_groups("red,both", "blue")
    stored = policy_of(wanted)
    assert json.loads(stored) == {
        "policyClass": "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",
        "properties": {"isolationBookieGroups": "both,red", "secondaryIsolationBookieGroups": "blue"},
    }
    assert groups_of_ledger({POLICY_KEY: stored}, None) == wanted


@pytest.mark.parametrize("stored", [b"", b"{", b"[]", b"{}", b'{"policyClass":"x","properties":{}}', b"\xff", b"null"])
def test_a_policy_that_cannot_be_read_leaves_the_groups_of_the_client(stored):
    own = IsolationGroups(frozenset({"red"}))
    assert groups_of_ledger({POLICY_KEY: stored}, own) is own
    assert groups_of_ledger({}, own) is own
