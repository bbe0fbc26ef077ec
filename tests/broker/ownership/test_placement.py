"""The choice of a bundle's broker among those that may serve it."""

from __future__ import annotations

import random

import pytest

from magnetar.broker.ownership.cluster_nodes import LoadReport, Usage
from magnetar.broker.ownership.placement import PlacementRules, Served, is_better_elsewhere, place

BUNDLE = "0x00000000_0x80000000"
NAMES = ("a", "b", "c", "d")
GROUP = {"t/1", "t/2", "t/3"}


def brokers(**reports):
    return {name: LoadReport() for name in NAMES} | reports


def served(**namespaces):
    return Served({name: [f"{each}/{BUNDLE}" for each in found] for name, found in namespaces.items()})


def chosen(candidates=None, of=None, group=(), namespace="t/1", **rules):
    """The set of brokers that 60 seeds choose."""
    settings = PlacementRules(**rules)
    made = [
        place(
            f"{namespace}/{BUNDLE}", candidates or brokers(), of or served(), group, settings, {}, random.Random(seed)
        )
        for seed in range(60)
    ]
    return set(made)


def test_without_differences_any_broker_may_get_a_bundle():
    assert chosen() == set(NAMES)
    assert place(f"t/1/{BUNDLE}", {}, served(), (), PlacementRules(), {}, random.Random(1)) is None


def test_a_broker_with_very_many_topics_gets_no_more_while_others_have_fewer():
    full = LoadReport(num_topics=50_001)
    assert chosen(brokers(a=full, b=full)) == {"c", "d"}
    assert chosen(dict.fromkeys(NAMES, full)) == set(NAMES)
    assert chosen(brokers(a=LoadReport(num_topics=3)), most_topics=2) == {"b", "c", "d"}


def test_bundles_of_a_namespace_are_spread_evenly_where_the_setting_says_so():
    of = served(a=["t/1"], b=["t/1"], c=["t/2"])
    assert chosen(of=of) == {"c", "d"}
    assert chosen(of=of, evenly=False) == set(NAMES)


def test_an_overloaded_broker_gets_no_bundle_while_others_are_not():
    busy = LoadReport(cpu=Usage(80.0, 100.0))
    assert chosen(brokers(a=busy)) == set(NAMES)
    assert chosen(brokers(a=busy), overloaded_share=0.7) == {"b", "c", "d"}


def test_a_bundle_goes_to_the_broker_for_which_it_was_given_up():
    busy = LoadReport(msg_rate_in=1000.0)
    assert chosen(brokers(c=busy), expected={f"t/1/{BUNDLE}": "c"}) == {"c"}
    assert chosen(brokers(c=busy), expected={f"t/2/{BUNDLE}": "c"}) == set(NAMES)  # rates do not count
    assert chosen(expected={f"t/1/{BUNDLE}": "gone"}) == set(NAMES)
    assert chosen(of=served(c=["t/1"]), expected={f"t/1/{BUNDLE}": "c"}) == {"a", "b", "d"}  # the filters come first
    assert place(f"t/1/{BUNDLE}", {}, served(), (), PlacementRules(expected={}), {}, random.Random(1)) is None


def test_namespaces_of_a_group_are_apart():
    of = served(a=["t/2"], b=["t/3", "t/other"], c=["t/other"])
    assert chosen(of=of, group=GROUP) == {"c", "d"}
    of = served(a=["t/2", "t/3"], b=["t/3"], c=["t/2"], d=["t/2", "t/3"])
    assert chosen(of=of, group=GROUP) == {"b", "c"}


def test_failure_domains_come_first():
    domains = {"a": "east", "b": "east", "c": "west", "d": "west"}
    of = served(a=["t/2"])
    assert chosen(of=of, group=GROUP, domains=domains) == {"c", "d"}
    assert chosen(of=of, group=GROUP) == {"b", "c", "d"}
    # east 3, west 3; of equal domains the broker with fewest
    of = served(a=["t/2", "t/3"], b=["t/3"], c=["t/2", "t/3"], d=["t/3"])
    assert chosen(of=of, group=GROUP, domains=domains) == {"b", "d"}
    # brokers without a domain form a domain: both domains have one namespace, so a broker without namespaces
    assert chosen(of=served(a=["t/2"], c=["t/2"]), group=GROUP, domains={"a": "east", "b": "east"}) == {"b", "d"}


@pytest.mark.parametrize(
    ("of", "moves"),
    [
        (served(a=["t/1"]), True),  # the other brokers have none
        (served(a=["t/1", "t/2"], b=["t/1"], c=["t/1"], d=["t/1"]), True),
        (served(a=["t/1"], b=["t/2"], c=["t/3"], d=["t/1"]), False),  # all have as many: it would move back
        (served(a=["t/1"], b=["t/2", "t/1"], c=["t/3"], d=["t/1"]), True),
    ],
)
def test_a_namespace_leaves_its_broker_where_another_has_fewer_of_the_group(of, moves):
    assert is_better_elsewhere("a", NAMES, of, GROUP) is moves
    assert is_better_elsewhere("a", NAMES, of, ())
