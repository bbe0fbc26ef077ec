"""Running sums of a broker's load equal the sums over all its bundles."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.broker_figures import BrokerFigures
from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport
from magnetar.broker.ownership.load_averages import LoadAverages

names = st.integers(0, 5).map("t/n/{}".format)
rates = st.floats(0, 1e6)
reports = st.builds(
    lambda stats, rate: LoadReport(
        msg_rate_in=rate, last_stats={name: BundleUsage(msg_rate_in=each) for name, each in stats.items()}
    ),
    st.dictionaries(names, rates),
    rates,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("report"), reports),
        st.tuples(st.just("sample"), reports),
        st.tuples(st.just("coming"), names),
        st.tuples(st.just("new list"), st.lists(names)),
    ),
    max_size=20,
)


@given(steps)
def test_the_running_rate_is_the_rate_over_all_bundles(taken):
    averages = LoadAverages()
    figures, report, coming = BrokerFigures(averages), LoadReport(), []
    for kind, value in taken:
        if kind == "report":
            report = value
        elif kind == "sample":
            averages.sample({"a": value}, {})
        elif kind == "coming":
            coming.append(value)
        else:
            coming = list(value)
        expected = averages.rate(report, coming)
        assert math.isclose(figures.rate("a", report, coming), expected, rel_tol=1e-9, abs_tol=1e-6)


def test_bundles_of_a_namespace_are_those_reported():
    figures = BrokerFigures(LoadAverages())
    report = LoadReport(bundles=["t/n/1", "t/m/1"], last_stats={"t/n/2": BundleUsage(), "t/n/1": BundleUsage()})
    assert figures.of_namespace("a", report, "t/n") == {"t/n/1", "t/n/2"}
    assert figures.of_namespace("a", LoadReport(bundles=["t/n/3"]), "t/n") == {"t/n/3"}
    assert not figures.of_namespace("a", report, "t/no")


def test_figures_of_brokers_that_are_gone_are_forgotten():
    figures, report = BrokerFigures(LoadAverages()), LoadReport(bundles=["t/n/1"])
    for broker in ("a", "b", "c"):
        figures.of_namespace(broker, report, "t/n")
    figures.keep({"a", "c"})
    assert sorted(figures._known) == ["a", "c"]
