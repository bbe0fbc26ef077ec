"""The choice of a broker by each of Apache Pulsar's strategies of placement."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.cluster_nodes import LoadReport, Usage
from magnetar.broker.ownership.placement_strategies import (
    DEFAULT_STRATEGY,
    STRATEGIES,
    Choice,
    PlacementRules,
    RoundRobinBrokerSelector,
)
from magnetar.broker.ownership.resource_weights import ResourceWeights
from magnetar.broker.settings import SETTINGS

NAMES = ("a", "b", "c", "d")


def report(cpu=0.0, rate=1.0, bundles=("t/n/x",), **more):
    return LoadReport(cpu=Usage(cpu, 100.0), msg_rate_in=rate, bundles=list(bundles), **more)


def usages(**cpu):
    return {name: report(each) for name, each in cpu.items()}


def strategy(name, seed=1):
    return STRATEGIES[name](random.Random(seed))


def choose(of, candidates, burden=None, bundle="t/n/y", **rules):
    return of.choose(Choice(bundle, candidates, burden or {}, PlacementRules(**rules)))


def chosen(name, candidates, burden=None, **rules):
    """The brokers that new strategies with 60 seeds choose."""
    return {choose(strategy(name, seed), candidates, burden, **rules) for seed in range(60)}


def test_every_strategy_of_apache_pulsars_modular_load_manager_is_there():
    names = ["LeastLongTermMessageRate", "LeastResourceUsageWithWeight", "RoundRobinBrokerSelector", "AvgShedder"]
    assert list(STRATEGIES) == names
    row = SETTINGS["loadBalancerLoadPlacementStrategy"]
    assert row.default.rpartition(".")[2] == DEFAULT_STRATEGY == PlacementRules().strategy
    assert all(name in row.doc for name in names)


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_candidates_no_broker_is_chosen(name):
    assert choose(strategy(name), {}) is None


@given(st.sampled_from(sorted(STRATEGIES)), st.dictionaries(st.sampled_from(NAMES), st.floats(0, 100), min_size=1))
def test_a_choice_is_a_candidate(name, cpu):
    assert choose(strategy(name), usages(**cpu), expected={"t/n/y": "a"}) in cpu


def test_the_lowest_message_rate_counts_among_brokers_that_are_not_overloaded():
    reports = usages(a=90.0, b=10.0, c=10.0)
    rates = {"a": (0.0, 0), "b": (5.0, 0), "c": (4.0, 0)}
    assert chosen("LeastLongTermMessageRate", reports, rates) == {"c"}
    assert chosen("LeastLongTermMessageRate", reports, rates, overloaded_share=0.95) == {"a"}
    assert chosen("LeastLongTermMessageRate", reports, rates, weights=ResourceWeights(cpu=0.5)) == {"a"}


def test_an_expected_broker_gets_the_bundle_and_any_broker_another():
    reports = usages(a=0.0, b=0.0, c=90.0)
    assert chosen("AvgShedder", reports, expected={"t/n/y": "c"}) == {"c"}
    assert chosen("AvgShedder", reports, expected={"t/m/y": "c"}) == {"a", "b", "c"}
    assert chosen("AvgShedder", reports, expected={"t/n/y": "gone"}) == {"a", "b", "c"}


# --- LeastResourceUsageWithWeight ----------------------------------------------------------------------------------

LEAST_USAGE = "LeastResourceUsageWithWeight"


def test_brokers_far_below_the_average_usage_take_turns_at_random():
    reports = usages(a=10.0, b=30.0, c=80.0)  # the example of Apache Pulsar: the average is 40 %
    assert chosen(LEAST_USAGE, reports) == {"a", "b"}
    assert chosen(LEAST_USAGE, reports, usage_difference=0.11) == {"a"}
    assert chosen(LEAST_USAGE, reports, usage_difference=0.31) == {"a", "b", "c"}, "no broker is so far below"
    assert chosen(LEAST_USAGE, usages(a=95.0, b=99.0, c=97.0)) == {"a", "b", "c"}


def test_resources_count_by_their_weight():
    traffic = report(0.0, bandwidth_in=Usage(90.0, 100.0), direct_memory=Usage(90.0, 100.0))
    reports = usages(a=50.0) | {"b": traffic}
    assert chosen(LEAST_USAGE, reports) == {"a"}
    assert chosen(LEAST_USAGE, reports, weights=ResourceWeights(bandwidth_in=0.1)) == {"b"}
    assert chosen(LEAST_USAGE, reports, weights=ResourceWeights(cpu=0.0, bandwidth_in=0.0)) == {"a", "b"}
    assert chosen(LEAST_USAGE, reports, weights=ResourceWeights(cpu=0.0, bandwidth_in=0.0, direct_memory=1.0)) == {"a"}


def test_a_short_peak_changes_no_choice():
    least = strategy(LEAST_USAGE)
    assert choose(least, usages(a=10.0, b=50.0)) == "a"
    assert choose(least, usages(a=90.0, b=50.0)) == "a", "18 % and 50 %"
    found = [choose(least, usages(a=90.0, b=50.0)) for _ in range(40)]
    assert (found[0], found[-1]) == ("a", "b"), "a lasting change counts"


@pytest.mark.parametrize("anew", [{"bundles": ()}, {"rate": 0.0}])
def test_a_broker_without_bundles_or_messages_has_the_usage_of_its_report(anew):
    least = strategy(LEAST_USAGE)
    assert choose(least, usages(a=10.0, b=50.0)) == "a"
    assert choose(least, {"a": report(90.0, **anew), "b": report(50.0)}) == "b"


def test_a_broker_without_messages_of_producers_may_have_those_of_consumers():
    least = strategy(LEAST_USAGE)
    choose(least, usages(a=10.0, b=50.0))
    assert choose(least, {"a": report(90.0, rate=0.0, msg_rate_out=1.0), "b": report(50.0)}) == "a"


def test_the_usage_of_brokers_that_are_gone_is_forgotten():
    least = strategy(LEAST_USAGE)
    choose(least, usages(a=10.0, b=50.0))
    least.keep({"a", "b"})
    assert choose(least, usages(a=90.0, b=50.0)) == "a"
    least.keep({"b"})
    assert choose(least, usages(a=90.0, b=50.0)) == "b"


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 100), min_size=1), min_size=1, max_size=8),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_no_broker_above_the_average_is_chosen_while_a_broker_is_far_below(rounds, history, difference, seed):
    least, smoothed = strategy(LEAST_USAGE, seed), {}
    for cpu in rounds:
        for name, each in cpu.items():
            before = smoothed.get(name)
            smoothed[name] = each / 100 if before is None else before * history + each / 100 * (1 - history)
        found = choose(least, usages(**cpu), history_share=history, usage_difference=difference)
        average = sum(smoothed[name] for name in cpu) / len(cpu)
        below = {name for name in cpu if smoothed[name] + difference <= average}
        assert found in (below or cpu)


# --- RoundRobinBrokerSelector --------------------------------------------------------------------------------------


def test_brokers_take_turns_in_the_order_of_javas_sets():
    names = ["h:8082", "h:8080", "h:8081"]
    selector = strategy("RoundRobinBrokerSelector")
    found = [choose(selector, usages(**dict.fromkeys(names, 0.0))) for _ in range(6)]
    assert found == ["h:8081", "h:8080", "h:8082"] * 2


def test_another_set_of_candidates_gives_another_order_and_the_turns_go_on():
    selector = strategy("RoundRobinBrokerSelector")
    every, some = usages(a=0, b=0, c=0), usages(a=0, b=0)
    assert [choose(selector, every) for _ in range(2)] == ["a", "b"]
    assert choose(selector, some) == "a", "turn 2 of two brokers"
    assert choose(selector, every) == "a", "turn 3 of three brokers"
    assert choose(selector, usages(a=0, b=0, d=0)) == "b"
    assert choose(selector, usages(a=0, b=0, d=0)) == "d", "the order had a broker that is no candidate"


def test_the_turns_begin_anew_behind_the_largest_number_of_java():
    selector = RoundRobinBrokerSelector(random.Random(1))
    selector._count = 2**31 - 1
    candidates = usages(a=0, b=0, c=0)
    assert [choose(selector, candidates) for _ in range(3)] == ["b", "a", "b"]


@given(st.sets(st.text("abc:0123456789", min_size=1), min_size=1, max_size=20), st.integers(1, 3))
def test_each_broker_has_as_many_turns(names, rounds):
    selector = strategy("RoundRobinBrokerSelector")
    candidates = usages(**dict.fromkeys(names, 0.0))
    found = [choose(selector, candidates) for _ in range(len(names) * rounds)]
    assert {name: found.count(name) for name in names} == dict.fromkeys(names, rounds)
