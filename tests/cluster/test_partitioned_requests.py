"""Requests about a partitioned topic whose partitions two brokers serve: as two brokers of Apache Pulsar answered."""

from __future__ import annotations

import json

import pytest

from tests.cluster.broker_processes import Member, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.requests_of_topics import RECORDED, Brokers, play_listed, play_non_persistent, play_partitioned

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]


def test_answers_are_those_of_apache_pulsar(cluster, tmp_path):
    initialize(cluster)
    members = [Member(tmp_path, name, cluster.zookeeper) for name in ("m1", "m2")]
    with serving(members):
        brokers = Brokers([(each.http, each.url) for each in members])
        play_partitioned(brokers)
        play_non_persistent(brokers)
        play_listed(brokers)
    recorded = json.loads(RECORDED.read_text())
    assert [without_reason(each) for each in brokers.answers] == [without_reason(each) for each in recorded]


def without_reason(answer):
    """Refusals may have other words."""
    step, status, shown = answer
    return [step, status, shown if status < 300 else ""]
