"""The choice of a bundle's broker among those that may serve it."""

from __future__ import annotations

import random

import pytest

from magnetar.broker.ownership.cluster_nodes import LoadReport, Usage
from magnetar.broker.ownership.placement import Placement, Served, is_better_elsewhere
from magnetar.broker.ownership.placement_strategies import STRATEGIES, PlacementRules

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
        Placement(random.Random(seed)).place(
            f"{namespace}/{BUNDLE}", candidates or brokers(), of or served(), group, settings, {}
        )
        for seed in range(60)
    ]
    return set(made)


def test_without_differences_any_broker_may_get_a_bundle():
    assert chosen() == set(NAMES)
    assert Placement(random.Random(1)).place(f"t/1/{BUNDLE}", {}, served(), (), PlacementRules(), {}) is None


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


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_filters_come_before_any_strategy(strategy):
    of = served(a=["t/1"], b=["t/1"], c=["t/2"])
    assert chosen(of=of, strategy=strategy) <= {"c", "d"}
    assert chosen(strategy=strategy) <= set(NAMES)
    rules = PlacementRules(strategy=strategy)
    assert Placement(random.Random(1)).place(f"t/1/{BUNDLE}", {}, served(), (), rules, {}) is None


def test_a_bundle_goes_to_the_broker_for_which_it_was_given_up():
    expected = {f"t/1/{BUNDLE}": "c"}
    assert chosen(strategy="AvgShedder", expected=expected) == {"c"}
    assert chosen(of=served(c=["t/1"]), strategy="AvgShedder", expected=expected) == {"a", "b", "d"}
    assert chosen(brokers(c=LoadReport(msg_rate_in=1.0)), expected=expected) == {"a", "b", "d"}, "another strategy"


def test_a_strategy_without_a_name_here_is_the_default():
    assert chosen(brokers(c=LoadReport(msg_rate_in=1.0)), strategy="Unknown") == {"a", "b", "d"}


def test_a_strategy_remembers_registered_brokers_between_choices():
    placement, rules = Placement(random.Random(1)), PlacementRules(strategy="RoundRobinBrokerSelector")
    found = [placement.place(f"t/{each}/{BUNDLE}", brokers(), served(), (), rules, {}) for each in range(8)]
    assert sorted(found[:4]) == list(NAMES)
    assert found[:4] == found[4:]
    rules = PlacementRules(strategy="LeastResourceUsageWithWeight", history_share=1.0)
    used = {"msg_rate_in": 1.0, "bundles": ["t/n/x"]}
    before = brokers(**{name: LoadReport(cpu=Usage(90.0, 100.0), **used) for name in "abc"})
    calm = brokers(**{name: LoadReport(cpu=Usage(10.0, 100.0), **used) for name in "abc"})
    del before["d"], calm["d"]

    def choices():
        return {placement.place(f"t/1/{BUNDLE}", calm, served(), (), rules, {}) for _ in range(60)}

    placement.place(f"t/1/{BUNDLE}", before, served(), (), rules, {})
    assert choices() == {"a", "b", "c"}, "all are as busy as before"
    placement.keep({"b", "c"})
    assert choices() == {"a"}, "a broker that was away has the usage of its report"


def test_a_broker_that_the_filters_refuse_gets_the_bundle_where_all_others_are_overloaded():
    busy = LoadReport(cpu=Usage(90.0, 100.0), msg_rate_in=1.0)
    of = served(a=["t/1"], b=["t/1"])
    assert chosen(brokers(c=busy, d=busy), of=of) == {"a", "b"}
    assert chosen(brokers(c=busy), of=of) == {"d"}
    assert chosen(brokers(c=busy, d=busy), of=of, group=GROUP) == {"a", "b"}
    everywhere = dict.fromkeys(NAMES, busy)
    assert chosen(everywhere, of=of) == {"c", "d"}, "no broker is better"


def test_namespaces_that_no_shedding_moves_are_spread_in_turns():
    placement, rules = Placement(random.Random(1)), PlacementRules(excluded_namespaces=("t/1",))
    loaded = brokers(a=LoadReport(msg_rate_in=9.0), b=LoadReport(msg_rate_in=5.0))

    def place(namespace):
        return placement.place(f"{namespace}/{BUNDLE}", loaded, served(), (), rules, {})

    assert sorted(place("t/1") for _ in range(4)) == list(NAMES)
    assert {place("t/2") for _ in range(60)} == {"c", "d"}
    busy = loaded | {"a": LoadReport(cpu=Usage(90.0, 100.0))}
    found = [placement.place(f"t/1/{BUNDLE}", busy, served(), (), rules, {}) for _ in range(4)]
    assert "a" not in found


def test_bundles_of_system_topics_are_always_spread_evenly():
    of = served(a=["pulsar/system"], b=["pulsar/system"])
    assert chosen(of=of, namespace="pulsar/system", evenly=False) == {"c", "d"}


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
