"""Averages of load: samples, sums, and the nodes that Apache Pulsar's leader reads."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport
from magnetar.broker.ownership.load_averages import (
    BrokerLoad,
    BundleLoad,
    LoadAverages,
    decode_bundle_load,
    encode_broker_load,
    encode_bundle_load,
)

rates = st.floats(0, 1e9)


def usage(rate=0.0, throughput=0.0, topics=1):
    return BundleUsage(msg_rate_in=rate, msg_rate_out=rate, msg_throughput_in=throughput, topics=topics)


def reports(**bundles):
    return {name: LoadReport(last_stats=of, msg_rate_in=1.0) for name, of in bundles.items()}


def test_the_first_sample_replaces_the_figures_of_an_unseen_bundle():
    load = BundleLoad()
    assert (load.long_term_data.rate, load.short_term_data.throughput) == (100.0, 100_000.0)
    load = load.sampled(usage(4.0, topics=7))
    assert (load.long_term_data.rate, load.short_term_data.rate, load.topics) == (8.0, 8.0, 7)


@given(st.lists(rates, min_size=1, max_size=30))
def test_an_average_is_the_mean_until_it_is_full_and_stays_between_least_and_most(samples):
    load = BundleLoad()
    for each in samples:
        load = load.sampled(BundleUsage(msg_rate_in=each))
    long, short = load.long_term_data, load.short_term_data
    assert math.isclose(long.msg_rate_in, math.fsum(samples) / len(samples), rel_tol=1e-9, abs_tol=1e-9)
    assert min(samples) * (1 - 1e-9) <= short.msg_rate_in <= max(samples) * (1 + 1e-9) + 1e-9
    assert (long.num_samples, short.num_samples) == (len(samples), min(len(samples), 10))


def test_a_bundle_continues_with_the_average_of_an_earlier_leader():
    stored = BundleLoad().sampled(usage(100.0))
    averages = LoadAverages()
    seen = reports(a={"t/n/x": usage(0.0)}, b={"t/n/y": usage(8.0)})
    assert averages.unseen(seen) == ["t/n/x", "t/n/y"]
    assert averages.sample(seen, {"t/n/x": stored}) == []
    assert averages.bundles["t/n/x"].long_term_data.rate == 100.0  # of 200 and 0
    assert averages.bundles["t/n/y"].long_term_data.rate == 16.0
    assert averages.unseen(seen) == []
    assert averages.sample(reports(a={"t/n/x": usage()}), {}) == ["t/n/y"]
    averages.forget()
    assert averages.bundles == {}


def test_the_heaviest_bundles_come_first():
    averages = LoadAverages()
    averages.sample(reports(a={"x": usage(1.0, 5.0), "y": usage(1.0, 9.0), "z": usage(3.0, 5.0)}), {})
    assert averages.heaviest(2) == ["y", "z"]
    assert averages.heaviest(0) == averages.heaviest(-1) == ["y", "z", "x"]


def test_shedding_sees_the_short_average():
    averages = LoadAverages()
    for _ in range(10):
        averages.sample(reports(a={"x": usage(10.0, topics=3)}), {})
    now = reports(a={"x": usage(500.0, topics=4), "new": usage(2.0)})
    averages.sample(reports(a={"x": usage(10.0)}), {})
    found = averages.short_term(now)["a"].last_stats
    assert (found["x"].msg_rate_in, found["x"].topics) == (10.0, 4)
    assert found["new"].msg_rate_in == 2.0


def test_the_sums_of_a_broker():
    averages = LoadAverages()
    seen = reports(a={"x": usage(1.0, 5.0), "y": usage(2.0, 7.0)}, b={})
    averages.sample(seen, {})
    assert averages.broker_load(seen["a"]) == BrokerLoad(12.0, 0.0, 3.0, 3.0, 12.0, 0.0, 3.0, 3.0)
    assert averages.broker_load(seen["b"]) == BrokerLoad()
    assert averages.broker_load(reports(a={"unseen": usage()})["a"]).long_term_msg_rate_in == 50.0


def test_the_nodes_have_the_members_of_apache_pulsar():
    average = {"msgThroughputIn": 5.0, "msgThroughputOut": 0.0, "msgRateIn": 1.0, "msgRateOut": 1.0}
    expected = {
        "shortTermData": {"maxSamples": 10, "numSamples": 1, **average},
        "longTermData": {"maxSamples": 1000, "numSamples": 1, **average},
        "topics": 2,
    }
    load = BundleLoad().sampled(usage(1.0, 5.0, topics=2))
    assert json.loads(encode_bundle_load(load)) == expected
    assert list(json.loads(encode_bundle_load(load))["shortTermData"]) == list(expected["shortTermData"])
    names = ("MsgThroughputIn", "MsgThroughputOut", "MsgRateIn", "MsgRateOut")
    wanted = [f"{term}Term{name}" for term in ("short", "long") for name in names]
    assert list(json.loads(encode_broker_load(BrokerLoad()))) == wanted


@pytest.mark.parametrize("figure", [math.inf, math.nan, -1.0])
def test_a_figure_that_other_leaders_cannot_read_is_not_written(figure):
    load = BundleLoad()
    broken = msgspec.structs.replace(
        load, short_term_data=msgspec.structs.replace(load.short_term_data, msg_rate_in=figure)
    )
    with pytest.raises(ValueError, match="bundle"):
        encode_bundle_load(broken)
    if not math.isfinite(figure):
        with pytest.raises(ValueError, match="broker"):
            encode_broker_load(BrokerLoad(figure))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"null",
        b'{"shortTermData":null}',
        b'{"shortTermData":{"maxSamples":0}}',
        b'{"longTermData":{"maxSamples":3,"numSamples":4}}',
        b'{"longTermData":{"maxSamples":3,"msgRateIn":-1.0}}',
        b'{"longTermData":{"maxSamples":3,"msgRateIn":"NaN"}}',
        pytest.param(b'{"unknown":' + b"[" * 100_000, id="deep"),
    ],
)
def test_a_node_that_is_no_average_counts_as_absent(value):
    assert decode_bundle_load(value) is None


def test_unknown_and_absent_members_are_read():
    found = decode_bundle_load(b'{"topics":3,"more":1,"shortTermData":{"maxSamples":10,"numSamples":2,"new":true}}')
    assert found is not None
    assert (found.topics, found.short_term_data.num_samples) == (3, 2)
