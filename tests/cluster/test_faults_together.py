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
ZOOKEEPER_AWAY_S = 20
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


def test_zookeeper_a_bookie_and_an_owner_are_killed_at_once(cluster, members, load):
    """The session of the owner ends a whole timeout behind the return of ZooKeeper; until then no lookup may lead
    clients to the dead owner, whose closed port doubles their pauses.
    """
    owner = busiest(members, load)
    for name in ("zk", "b1"):
        cluster.kill(name)
    owner.kill()
    try:
        time.sleep(ZOOKEEPER_AWAY_S)
        cluster.start("zk")
        cluster.start("b1")
        end("ZooKeeper, a bookie and an owner killed at once", load, ZOOKEEPER_AWAY_S + 2 * SESSION_S + 15)
    finally:
        owner.start()


def test_the_disk_of_zookeeper_stalls_while_the_next_owner_recovers(cluster, members, load):
    owner = busiest(members, load)
    owner.kill()
    try:
        for _ in range(8):
            cluster.stop("zk")
            time.sleep(2)
            cluster.go_on("zk")
            time.sleep(1)
        end("owner killed, ZooKeeper stands still for 2 s eight times", load, 4 * SESSION_S + 15)
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
