"""Which broker gets a bundle."""

import random

import pytest

from magnetar.broker.ownership.broker_choice import choose_broker, is_candidate
from magnetar.broker.ownership.cluster_nodes import LoadReport, Usage
from magnetar.broker.ownership.resource_weights import ResourceWeights


def report(rate=0.0, cpu=10.0, **changes):
    return LoadReport(
        web_service_url="http://h:1",
        pulsar_service_url="pulsar://h:2",
        msg_rate_in=rate,
        cpu=Usage(cpu, 100.0),
        **changes,
    )


def chosen(reports, burden=None):
    return {choose_broker(reports, burden or {}, random.Random(seed)) for seed in range(50)}


def test_the_lowest_rate_counts_and_equals_take_turns():
    assert chosen({"a:1": report(5), "b:1": report(1), "c:1": report(9)}) == {"b:1"}
    assert chosen({"a:1": report(1), "b:1": report(1), "c:1": report(9)}) == {"a:1", "b:1"}
    assert chosen({"a:1": report(), "b:1": report()}, {"a:1": (0.0, 2), "b:1": (0.0, 1)}) == {"b:1"}
    assert chosen({"a:1": report(1), "b:1": report(5)}, {"a:1": (9.0, 0), "b:1": (2.0, 7)}) == {"b:1"}
    assert chosen({}) == {None}


def test_an_overloaded_broker_is_chosen_when_all_are():
    assert chosen({"a:1": report(0, cpu=85.1), "b:1": report(900, cpu=84.9)}) == {"b:1"}
    assert chosen({"a:1": report(0, cpu=85.0), "b:1": report(900, cpu=84.9)}) == {"a:1"}
    assert chosen({"a:1": report(0, cpu=99.0), "b:1": report(900, cpu=90.0)}) == {"a:1"}


def test_a_resource_overloads_a_broker_by_its_weight():
    full = report(0, direct_memory=Usage(90.0, 100.0), memory=Usage(99.0, 100.0))
    reports = {"a:1": full, "b:1": report(900)}
    assert chosen(reports) == {"a:1"}
    heavy = ResourceWeights(direct_memory=1.0)
    assert choose_broker(reports, {}, random.Random(1), weights=heavy) == "b:1"


@pytest.mark.parametrize(
    ("name", "each", "fits"),
    [
        ("h:8080", report(), True),
        ("[::1]:8080", report(), True),
        ("h", report(), False),
        (":8080", report(), False),
        ("h:x", report(), False),
        ("h:1", report(persistent_topics_enabled=False), False),
        ("h:1", report(load_manager_class_name="a.ModularLoadManagerImpl"), True),
        ("h:1", report(load_manager_class_name=None), True),
        ("h:1", report(load_manager_class_name="a.b.extensions.ExtensibleLoadManagerImpl"), False),
        ("h:1", LoadReport(web_service_url="http://h:1"), False),
        ("h:1", LoadReport(pulsar_service_url="pulsar://h:1"), False),
    ],
)
def test_brokers_that_may_be_chosen(name, each, fits):
    assert is_candidate(name, each, persistent=True) == fits
