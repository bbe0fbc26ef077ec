"""Two faults at the same time under eight producers and their consumers, on real bookies and a real ZooKeeper.

As in ``test_faults``, nothing is lost, moved or reordered, and a half-acknowledged subscription is exact.
"""

from __future__ import annotations

import time

import pytest

from tests.cluster.conftest import LONG
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.scenes import SESSION_S, SHORT_LEDGERS, busiest, end

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
members, load = members_fixture(**SHORT_LEDGERS), load_fixture()


def test_zookeeper_is_restarted_during_a_takeover(cluster, members, load):
    owner = busiest(members, load)
    owner.kill()
    try:
        time.sleep(SESSION_S + 0.3)  # the next owner recovers ledgers now
        cluster.kill("zk")
        time.sleep(2)
        cluster.start("zk")
        end("owner killed, ZooKeeper restarted while the next owner recovers", load, 2 * SESSION_S + 30)
    finally:
        owner.start()


def test_a_bookie_is_killed_while_an_owner_is_suspended(cluster, members, load):
    owner = busiest(members, load)
    owner.suspend()
    try:
        cluster.kill("b1")
        time.sleep(SESSION_S + 6)
        cluster.start("b1")
        end("owner suspended, a bookie killed", load, 2 * SESSION_S + 30)
    finally:
        owner.end()
        owner.start()


def test_a_bookie_stops_and_goes_on_for_a_minute(cluster, members, load):
    before = [resident_kb(each) for each in members]
    for _ in range(27):
        cluster.stop("b2")
        time.sleep(1.5)
        cluster.go_on("b2")
        time.sleep(0.7)
    grown = [resident_kb(each) - earlier for each, earlier in zip(members, before, strict=True)]
    end("a bookie stops and goes on for a minute", load, 10)
    assert max(grown) < 200_000, grown


def resident_kb(member):
    with open(f"/proc/{member.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
