"""When a load report is written again."""

import pytest

from magnetar.broker.ownership.cluster_nodes import LoadReport, Usage
from magnetar.broker.ownership.report_changes import ReportRules, is_due
from magnetar.broker.ownership.resource_weights import ResourceWeights

BEFORE = LoadReport(
    last_update=1_000_000, cpu=Usage(50.0, 100.0), msg_rate_in=60.0, msg_rate_out=40.0, msg_throughput_in=1000.0,
    num_bundles=20,
)  # fmt: skip


def after(**changes):
    return LoadReport(**{name: getattr(BEFORE, name) for name in BEFORE.__struct_fields__} | changes)


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, False),
        ({"last_update": 1_000_000 + 14 * 60_000}, False),
        ({"last_update": 1_000_000 + 15 * 60_000}, True),
        ({"last_update": 1_000_000 - 2 * 3_600_000}, True),
        ({"cpu": Usage(59.0, 100.0)}, False),
        ({"cpu": Usage(61.0, 100.0)}, True),
        ({"memory": Usage(99.0, 100.0)}, False),
        ({"direct_memory": Usage(99.0, 100.0)}, False),
        ({"msg_rate_in": 69.0}, False),
        ({"msg_rate_out": 51.0}, True),
        ({"msg_throughput_out": 101.0}, True),
        ({"num_bundles": 22}, False),
        ({"num_bundles": 17}, True),
    ],
)
def test_a_report_is_written_when_it_says_something_new_or_after_a_long_pause(changes, due):
    assert is_due(BEFORE, after(**changes), ReportRules()) is due


def test_a_resource_counts_by_its_weight():
    rules = ReportRules(weights=ResourceWeights(cpu=0.5, direct_memory=1.0))
    assert is_due(BEFORE, after(direct_memory=Usage(99.0, 100.0)), rules)
    assert not is_due(BEFORE, after(cpu=Usage(69.0, 100.0)), rules)


def test_the_first_traffic_of_a_broker_is_a_change():
    idle = LoadReport()
    assert not is_due(idle, LoadReport(), ReportRules())
    assert is_due(idle, LoadReport(msg_rate_in=0.1), ReportRules())


def test_a_threshold_may_be_any():
    assert not is_due(BEFORE, after(msg_rate_in=150.0), ReportRules(threshold_percent=100.0))
    assert is_due(BEFORE, after(msg_rate_in=60.1), ReportRules(threshold_percent=0.0))
