"""Which bundles an overloaded broker gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport, Usage
from magnetar.broker.ownership.shedding import OverloadShedder, SheddingRules, ThresholdShedder, UniformLoadShedder

MIB = 2**20


def report(cpu, *bundles):
    """`bundles`: MiB per second of each."""
    stats = {f"t/n/{number}": BundleUsage(msg_throughput_in=each * MIB) for number, each in enumerate(bundles)}
    return LoadReport(cpu=Usage(cpu, 100.0), msg_throughput_in=sum(bundles) * MIB, last_stats=stats)


def test_the_bundles_with_most_traffic_go_until_the_rest_fits():
    reports = {"a": report(90.0, 50, 10, 30, 10), "b": report(10.0, 1, 1)}
    # 90 % against an average of 50 %: 30 % above the threshold, and the margin of 5 %: 35 MiB of 100
    assert ThresholdShedder(SheddingRules()).plan(reports, 0.0) == [("a", "t/n/0")]


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
    assert ThresholdShedder(SheddingRules()).plan(reports, 0.0) == [], reason


def test_a_bundle_that_was_moved_stays_for_the_grace_period():
    shedder = ThresholdShedder(SheddingRules(history_share=0.0))
    reports = {"a": report(90.0, 50, 40), "b": report(10.0)}
    assert shedder.plan(reports, 0.0) == [("a", "t/n/0")]
    assert shedder.plan(reports, 30.0) == [("a", "t/n/0")], "the first move was refused"
    shedder.moved("t/n/0", 30.0)
    assert shedder.plan(reports, 60.0) == [("a", "t/n/1")]
    shedder.moved("t/n/1", 60.0)
    assert shedder.plan(reports, 120.0) == []
    assert shedder.plan(reports, 30.0 + 30 * 60.0) == [("a", "t/n/0")]


def test_a_peak_does_not_move_bundles():
    shedder = ThresholdShedder(SheddingRules())
    calm = {"a": report(20.0, 50, 50), "b": report(20.0, 50, 50)}
    peak = {"a": report(90.0, 50, 50), "b": report(20.0, 50, 50)}
    assert shedder.plan(calm, 0.0) == []
    assert shedder.plan(peak, 60.0) == []
    moved = [shedder.plan(peak, 120.0 + number) for number in range(20)]
    assert next(each for each in moved if each) == [("a", "t/n/0")]  # a lasting peak moves a bundle


def test_excluded_namespaces_stay():
    shedder = ThresholdShedder(SheddingRules(excluded_namespaces=("t/n",)))
    assert shedder.plan({"a": report(90.0, 50, 50), "b": report(10.0)}, 0.0) == []


def test_resources_count_by_their_weight():
    busy = LoadReport(
        memory=Usage(90.0, 100.0), msg_throughput_in=100.0 * MIB, last_stats=report(0.0, 50, 50).last_stats
    )
    reports = {"a": busy, "b": report(10.0)}
    assert ThresholdShedder(SheddingRules()).plan(reports, 0.0) == []
    assert ThresholdShedder(SheddingRules(memory_weight=1.0)).plan(reports, 0.0) == [("a", "t/n/0")]


@given(st.lists(st.tuples(st.floats(0, 100), st.lists(st.integers(0, 200), max_size=5)), max_size=5))
def test_a_broker_always_keeps_a_bundle(brokers):
    reports = {f"b{number}": report(cpu, *bundles) for number, (cpu, bundles) in enumerate(brokers)}
    chosen = ThresholdShedder(SheddingRules(least_bytes_per_second=0)).plan(reports, 0.0)
    for name, each in reports.items():
        given_up = [bundle for broker, bundle in chosen if broker == name]
        assert len(set(given_up)) == len(given_up)
        assert not given_up or len(given_up) < len(each.last_stats)


def test_without_an_overloaded_broker_idle_ones_get_bundles_where_the_setting_says_so():
    busy = {name: report(60.0, 100, 100, 100) for name in ("a", "b", "c", "d")}
    reports = busy | {"e": report(40.0)}  # the average is 56 %, the threshold 10 %
    assert ThresholdShedder(SheddingRules()).plan(reports, 0.0) == []
    assert ThresholdShedder(SheddingRules(lower_boundary=True)).plan(reports, 0.0) == [("a", "t/n/0")]
    assert ThresholdShedder(SheddingRules(lower_boundary=True)).plan(busy, 0.0) == [], "no broker is far below"


def test_the_overload_shedder_looks_at_each_broker_alone():
    reports = {"a": report(95.0, 50, 30, 20), "b": report(86.0, 5, 1), "c": report(84.0, 50, 50), "d": report(99.0, 9)}
    assert OverloadShedder(SheddingRules()).plan(reports, 0.0) == [("a", "t/n/0"), ("b", "t/n/0")]
    assert OverloadShedder(SheddingRules(overloaded_share=0.96)).plan(reports, 0.0) == []


def rates(messages, *bundles, mib=0.0):
    stats = {f"t/n/{number}": BundleUsage(msg_rate_in=each) for number, each in enumerate(bundles)}
    return LoadReport(msg_rate_in=messages, msg_throughput_in=mib * MIB, last_stats=stats)


def test_the_uniform_shedder_gives_up_a_part_of_the_difference_in_messages():
    reports = {"a": rates(20_000.0, 9_000, 4_500, 4_000, 2_500), "b": rates(2_000.0, 2_000), "c": rates(9_000.0)}
    # the difference is 18,000, of which 3,600 go; a bundle may have 1,000 more than that
    assert UniformLoadShedder(SheddingRules()).plan(reports, 0.0) == [("a", "t/n/1")]
    rules = SheddingRules(given_up_share=0.5, most_bundles=1)
    assert UniformLoadShedder(rules).plan(reports, 0.0) == [("a", "t/n/0")]
    assert len(UniformLoadShedder(SheddingRules(given_up_share=0.5)).plan(reports, 0.0)) == 1
    assert UniformLoadShedder(SheddingRules(message_rate_difference=0.0)).plan(reports, 0.0) == []
    assert UniformLoadShedder(SheddingRules(message_rate_difference=10.0)).plan(reports, 0.0) == []
    assert UniformLoadShedder(SheddingRules(least_messages=5_000)).plan(reports, 0.0) == []


def test_the_uniform_shedder_looks_at_traffic_where_messages_are_even():
    heavy = {"t/n/0": BundleUsage(msg_throughput_in=30.0 * MIB), "t/n/1": BundleUsage(msg_throughput_in=10.0 * MIB)}
    busy = LoadReport(msg_throughput_in=60.0 * MIB, last_stats=heavy)
    reports = {"a": busy, "b": LoadReport(msg_throughput_in=4.0 * MIB)}
    assert UniformLoadShedder(SheddingRules()).plan(reports, 0.0) == [("a", "t/n/1")]
    assert UniformLoadShedder(SheddingRules(throughput_multiplier=20.0)).plan(reports, 0.0) == []
    assert UniformLoadShedder(SheddingRules(throughput_multiplier=0.0)).plan(reports, 0.0) == []


@pytest.mark.parametrize("shedder", [ThresholdShedder, OverloadShedder, UniformLoadShedder])
def test_no_broker_no_plan(shedder):
    assert shedder(SheddingRules()).plan({}, 0.0) == []
    assert shedder(SheddingRules()).plan({"a": LoadReport()}, 0.0) == []
