"""Which bundles an overloaded broker gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport, Usage
from magnetar.broker.ownership.resource_weights import ResourceWeights
from magnetar.broker.ownership.shedding import (
    AvgShedder,
    OverloadShedder,
    SheddingRules,
    ThresholdShedder,
    UniformLoadShedder,
)

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
        direct_memory=Usage(90.0, 100.0), msg_throughput_in=100.0 * MIB, last_stats=report(0.0, 50, 50).last_stats
    )
    reports = {"a": busy, "b": report(10.0)}
    heavy = SheddingRules(weights=ResourceWeights(direct_memory=1.0))
    for shedder in (ThresholdShedder, OverloadShedder):
        assert shedder(SheddingRules()).plan(reports, 0.0) == []
        assert shedder(heavy).plan(reports, 0.0) == [("a", "t/n/0")]


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


@pytest.mark.parametrize("shedder", [ThresholdShedder, OverloadShedder, UniformLoadShedder, AvgShedder])
def test_no_broker_no_plan(shedder):
    assert shedder(SheddingRules()).plan({}, 0.0) == []
    assert shedder(SheddingRules()).plan({"a": LoadReport()}, 0.0) == []


def load(cpu, *messages):
    """`messages`: of each bundle, a second."""
    stats = {f"t/n/{cpu:g}-{number}": BundleUsage(msg_rate_in=each) for number, each in enumerate(messages)}
    return LoadReport(cpu=Usage(cpu, 100.0), msg_rate_in=float(sum(messages)), last_stats=stats)


def plans(shedder, reports, count):
    return [shedder.plan(reports, float(number)) for number in range(count)]


def test_the_avg_shedder_moves_bundles_within_pairs_of_the_most_and_the_least_used():
    reports = {
        "a": load(90.0, 12_000, 5_000, 3_000),
        "b": load(20.0, 1_000),
        "c": load(10.0, 2_000),
        "d": load(70.0, 9_000, 2_000, 1_000),
        "e": load(50.0, 50_000),  # the counterpart of itself
    }
    shedder = AvgShedder(SheddingRules())
    assert shedder.plan(reports, 0.0) == [], "a difference of 80 and of 50 percent counts after two comparisons"
    # a and c: 18,000 messages, of which 3,600 move; d and b: 11,000, of which 2,200 move
    assert shedder.plan(reports, 60.0) == [("a", "t/n/90-2"), ("d", "t/n/70-1")]
    assert shedder.expected == {"t/n/90-2": "c", "t/n/70-1": "b"}
    assert shedder.plan(reports, 120.0) == [], "the counts began anew"


def test_a_small_difference_counts_after_eight_comparisons_in_a_row():
    near = {"a": load(40.0, 9_000, 1_500), "b": load(20.0, 1_000)}
    made = plans(AvgShedder(SheddingRules()), near, 16)
    assert [number for number, each in enumerate(made) if each] == [7, 15]
    shedder = AvgShedder(SheddingRules())
    assert not any(plans(shedder, near, 7))
    assert shedder.plan({"a": load(30.0, 9_000, 1_500), "b": load(20.0, 1_000)}, 7.0) == []  # a row ends here
    assert not any(plans(shedder, near, 7))


def test_a_high_difference_in_between_counts_for_both_rows():
    near = {"a": load(40.0, 9_000, 1_500), "b": load(20.0, 1_000)}
    far = {"a": load(80.0, 9_000, 1_500), "b": load(20.0, 1_000)}
    shedder = AvgShedder(SheddingRules())
    made = [shedder.plan(each, 0.0) for each in (far, near, far, near, near, near, near, near)]
    assert [number for number, each in enumerate(made) if each] == [7], "high differences not in a row"


def test_the_avg_shedder_moves_traffic_where_messages_are_few_and_nothing_for_little_of_both():
    def traffic(cpu, *mib):
        stats = {f"t/n/{number}": BundleUsage(msg_throughput_in=each * MIB) for number, each in enumerate(mib)}
        return LoadReport(cpu=Usage(cpu, 100.0), msg_throughput_in=sum(mib) * MIB, last_stats=stats)

    heavy = {"a": traffic(90.0, 40.0, 9.0, 1.0), "b": traffic(10.0)}
    assert plans(AvgShedder(SheddingRules()), heavy, 2)[1] == [("a", "t/n/1"), ("a", "t/n/2")]  # 10 of 50 MiB
    assert not any(plans(AvgShedder(SheddingRules()), {"a": traffic(90.0, 4.0, 0.5), "b": traffic(10.0)}, 20))
    rules = SheddingRules(excluded_namespaces=("t/n",))
    assert not any(plans(AvgShedder(rules), heavy, 20))


@given(st.lists(st.tuples(st.integers(0, 100), st.lists(st.integers(0, 20_000), max_size=4)), max_size=6))
def test_the_avg_shedder_gives_up_a_part_of_the_difference_at_most(brokers):
    reports = {f"b{number}": load(cpu + number / 100, *messages) for number, (cpu, messages) in enumerate(brokers)}
    shedder = AvgShedder(SheddingRules())
    for number in range(9):
        moved = {}
        for broker, bundle in shedder.plan(reports, float(number)):
            least = shedder.expected[bundle]
            moved[broker, least] = moved.get((broker, least), 0.0) + reports[broker].last_stats[bundle].msg_rate_in
        for (most, least), messages in moved.items():
            assert messages <= 0.2 * (reports[most].msg_rate_in - reports[least].msg_rate_in)
            assert 100 * reports[most].cpu.share - 100 * reports[least].cpu.share >= 15


def test_the_avg_shedder_forgets_plans_for_bundles_that_no_broker_reports():
    reports = {"a": load(90.0, 12_000, 5_000, 3_000), "c": load(10.0, 2_000)}
    shedder = AvgShedder(SheddingRules(grace_s=100.0))
    plans(shedder, reports, 2)
    assert shedder.expected == {"t/n/90-2": "c"}
    shedder.moved("t/n/90-2", 2.0)
    without = {"a": load(50.0, 12_000), "c": load(50.0, 2_000)}
    shedder.plan(without, 50.0)
    assert shedder.expected == {"t/n/90-2": "c"}, "the bundle is on its way"
    shedder.plan(reports, 120.0)
    assert shedder.expected == {"t/n/90-2": "c"}, "a broker reports the bundle"
    shedder.plan(without, 180.0)
    assert shedder.expected == {}
