"""The usage of a broker by weighted resources."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.cluster_nodes import LoadReport, Usage
from magnetar.broker.ownership.resource_weights import ResourceWeights, average_usage

RESOURCES = ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
SHARES = st.fixed_dictionaries({each: st.floats(0, 100) for each in RESOURCES})
WEIGHTS = st.fixed_dictionaries({each: st.floats(0, 4) for each in RESOURCES})


def test_the_weights_that_apache_pulsar_has_by_default():
    full = Usage(80.0, 100.0)
    assert [ResourceWeights().usage(LoadReport(**{each: full})) for each in RESOURCES] == [0.8, 0.0, 0.8, 0.8]
    assert ResourceWeights().usage(LoadReport(memory=full)) == 0.0
    assert ResourceWeights().usage(LoadReport(bandwidth_in=Usage(80.0, -1000.0))) == 0.0, "a speed that is not known"


@given(SHARES, WEIGHTS)
def test_the_resource_with_the_highest_weighted_share_counts(shares, weights):
    report = LoadReport(**{name: Usage(share, 100.0) for name, share in shares.items()})
    usage = ResourceWeights(**weights).usage(report)
    weighted = [shares[name] / 100.0 * weights[name] for name in RESOURCES]
    assert usage in weighted
    assert all(usage >= each for each in weighted)


def test_an_average_is_rounded_after_each_addition():
    assert average_usage([0.1, 0.3, 0.8]) == 0.4000000000000001, (
        "0.39999999999999997 where the sum makes up for rounding"
    )
