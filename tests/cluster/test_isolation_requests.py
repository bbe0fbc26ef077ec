"""Isolation policies and load reports of two brokers: as two brokers of Apache Pulsar answered."""

from __future__ import annotations

import json

import pytest

from tests.cluster.broker_processes import Member, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.requests_of_isolation import HOSTS, RECORDED, play_isolation
from tests.cluster.requests_of_topics import Brokers

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]


def test_answers_are_those_of_apache_pulsar(cluster, tmp_path):
    initialize(cluster)
    members = [Member(tmp_path, f"m-{host}", cluster.zookeeper, advertisedAddress=host) for host in HOSTS]
    with serving(members):
        brokers = Brokers([(each.http, each.url) for each in members])
        play_isolation(brokers)
    assert brokers.answers == json.loads(RECORDED.read_text())
