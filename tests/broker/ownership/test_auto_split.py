"""Which bundles are split because they carry too much."""

from __future__ import annotations

import pytest

from magnetar.broker.ownership.auto_split import SplitRules, bundles_to_split
from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport

RULES = SplitRules(most_topics=10, most_sessions=20, most_messages_per_second=100, most_bytes_per_second=1000)


def plan(bundles, rules=RULES, count=4):
    return bundles_to_split({"b": LoadReport(last_stats=bundles)}, rules, lambda _namespace: count)


@pytest.mark.parametrize(
    "usage",
    [
        BundleUsage(topics=11),
        BundleUsage(topics=2, consumer_count=11, producer_count=10),
        BundleUsage(topics=2, msg_rate_in=60, msg_rate_out=41),
        BundleUsage(topics=2, msg_throughput_in=600, msg_throughput_out=401),
    ],
)
def test_beyond_one_limit_is_too_much(usage):
    assert plan({"t/n/a": usage}) == ["t/n/a"]


@pytest.mark.parametrize(
    "usage",
    [
        BundleUsage(topics=10),
        BundleUsage(topics=2, consumer_count=10, producer_count=10),
        BundleUsage(topics=1, msg_rate_in=10_000),
    ],
)
def test_at_the_limits_and_of_one_topic_it_stays(usage):
    assert plan({"t/n/a": usage}) == []


def test_a_namespace_has_a_greatest_number_of_bundles():
    large = {f"t/n/{letter}": BundleUsage(topics=11 + number) for number, letter in enumerate("abc")}
    assert plan(large, SplitRules(most_topics=10, most_bundles=6), count=4) == ["t/n/c", "t/n/b"]
    assert plan(large, count=None) == []


def test_not_too_many_at_once():
    large = {f"t/n{number}/a": BundleUsage(topics=11) for number in range(30)}
    assert len(plan(large)) == RULES.at_once
