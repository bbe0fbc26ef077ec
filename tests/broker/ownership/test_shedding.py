"""Which bundles an overloaded broker gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport, Usage
from magnetar.broker.ownership.shedding import Shedder, SheddingRules

MIB = 2**20


def report(cpu, *bundles):
    """`bundles`: MiB per second of each."""
    stats = {f"t/n/{number}": BundleUsage(msg_throughput_in=each * MIB) for number, each in enumerate(bundles)}
    return LoadReport(cpu=Usage(cpu, 100.0), msg_throughput_in=sum(bundles) * MIB, last_stats=stats)


def test_the_bundles_with_most_traffic_go_until_the_rest_fits():
    reports = {"a": report(90.0, 50, 10, 30, 10), "b": report(10.0, 1, 1)}
    # 90 % against an average of 50 %: 30 % above the threshold, and the margin of 5 %: 35 MiB of 100
    assert Shedder(SheddingRules()).plan(reports, 0.0) == [("a", "t/n/0")]


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ({}, "no broker"),
        ({"a": report(95.0, 50, 50)}, "there is no other broker"),
        ({"a": report(55.0, 50, 50), "b": report(45.0, 50, 50)}, "within the threshold"),
        ({"a": report(90.0, 100), "b": report(10.0)}, "a single bundle would overload the next broker"),
        ({"a": report(90.0, 5, 5), "b": report(10.0)}, "too little traffic"),
    ],
)
def test_nothing_is_moved(reports, reason):
    assert Shedder(SheddingRules()).plan(reports, 0.0) == [], reason


def test_a_bundle_that_was_moved_stays_for_the_grace_period():
    shedder = Shedder(SheddingRules(history_share=0.0))
    reports = {"a": report(90.0, 50, 40), "b": report(10.0)}
    assert shedder.plan(reports, 0.0) == [("a", "t/n/0")]
    assert shedder.plan(reports, 60.0) == [("a", "t/n/1")]
    assert shedder.plan(reports, 120.0) == []
    assert shedder.plan(reports, 30 * 60.0) == [("a", "t/n/0")]


def test_a_peak_does_not_move_bundles():
    shedder = Shedder(SheddingRules())
    calm = {"a": report(20.0, 50, 50), "b": report(20.0, 50, 50)}
    peak = {"a": report(90.0, 50, 50), "b": report(20.0, 50, 50)}
    assert shedder.plan(calm, 0.0) == []
    assert shedder.plan(peak, 60.0) == []
    moved = [shedder.plan(peak, 120.0 + number) for number in range(20)]
    assert next(each for each in moved if each) == [("a", "t/n/0")]  # one that lasts does


def test_excluded_namespaces_stay():
    shedder = Shedder(SheddingRules(excluded_namespaces=("t/n",)))
    assert shedder.plan({"a": report(90.0, 50, 50), "b": report(10.0)}, 0.0) == []


def test_resources_count_by_their_weight():
    busy = LoadReport(
        memory=Usage(90.0, 100.0), msg_throughput_in=100.0 * MIB, last_stats=report(0.0, 50, 50).last_stats
    )
    reports = {"a": busy, "b": report(10.0)}
    assert Shedder(SheddingRules()).plan(reports, 0.0) == []
    assert Shedder(SheddingRules(memory_weight=1.0)).plan(reports, 0.0) == [("a", "t/n/0")]


@given(st.lists(st.tuples(st.floats(0, 100), st.lists(st.integers(0, 200), max_size=5)), max_size=5))
def test_a_broker_always_keeps_a_bundle(brokers):
    reports = {f"b{number}": report(cpu, *bundles) for number, (cpu, bundles) in enumerate(brokers)}
    chosen = Shedder(SheddingRules(least_bytes_per_second=0)).plan(reports, 0.0)
    for name, each in reports.items():
        given_up = [bundle for broker, bundle in chosen if broker == name]
        assert len(set(given_up)) == len(given_up)
        assert not given_up or len(given_up) < len(each.last_stats)
