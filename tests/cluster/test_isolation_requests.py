"""Isolation policies and load reports of two brokers: as two brokers of Apache Pulsar answered."""

from __future__ import annotations

import contextlib
import json

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.cluster.broker_processes import Member, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.requests_of_isolation import HOSTS, POLICIES, RECORDED, play_isolation
from tests.cluster.requests_of_topics import Brokers

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]


def forget_policies(zookeeper):
    """Remove the node that the policies of an earlier test leave empty: it changes an answer."""
    client = KazooClient(zookeeper)
    client.start(30)
    try:
        with contextlib.suppress(NoNodeError):
            client.delete(f"/admin/{POLICIES}")
    finally:
        client.stop()
        client.close()


def test_answers_are_those_of_apache_pulsar(cluster, tmp_path):
    initialize(cluster)
    forget_policies(cluster.zookeeper)
    members = [Member(tmp_path, f"m-{host}", cluster.zookeeper, advertisedAddress=host) for host in HOSTS]
    with serving(members):
        brokers = Brokers([(each.http, each.url) for each in members])
        play_isolation(brokers)
    assert brokers.answers == json.loads(RECORDED.read_text())
