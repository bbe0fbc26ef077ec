"""Partitioned topics grow in a cluster: their subscriptions are those of two brokers of Apache Pulsar."""

from __future__ import annotations

import json

import pytest

from tests.cluster.broker_processes import Member, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.requests_of_growth import RECORDED, play_growth
from tests.cluster.requests_of_topics import Brokers

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]


def test_answers_are_those_of_apache_pulsar(cluster, tmp_path):
    initialize(cluster)
    members = [Member(tmp_path, name, cluster.zookeeper) for name in ("m1", "m2")]
    with serving(members):
        brokers = Brokers([(each.http, each.url) for each in members])
        play_growth(brokers)
    recorded = json.loads(RECORDED.read_text())
    assert [without_compaction(each) for each in brokers.answers] == [without_compaction(each) for each in recorded]


def without_compaction(answer):
    """Apache Pulsar adds the subscription of compaction to old partitions too, where it holds messages back."""
    step, status, shown = answer
    of_old = "-partition-1/stats" in step
    return [step, status, {k: v for k, v in shown.items() if k != "__compaction"} if of_old else shown]
