"""Faults under eight producers and their consumers: two brokers, a real ZooKeeper and three real bookies.

After each fault nothing is lost, moved or reordered, and a half-acknowledged subscription is exact (``load``). How long
the producers were silent is printed; the limits here are wider than the targets, since other work shares the machine.
"""

from __future__ import annotations

import signal
import time

import pytest

from magnetar.bookkeeper.options import ClientOptions
from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.scenes import SESSION_S, busiest, end

pytestmark = pytest.mark.timeout(400)
long_only = pytest.mark.skipif(not LONG, reason="part of `make cluster`")
members, load = members_fixture(), load_fixture()
BOOKIES = ("b1", "b2", "b3")


def test_a_bookie_is_killed(cluster, members, load):
    cluster.kill("b2")
    try:
        load.more(300)
    finally:
        cluster.start("b2")
    end("bookie killed", load, 3)


@long_only
def test_an_owner_is_killed(members, load):
    owner = busiest(members, load)
    owner.kill()
    try:
        end("owner killed", load, SESSION_S + 10)
    finally:
        owner.start()


@long_only
def test_an_owner_is_suspended(members, load):
    owner = busiest(members, load)
    owner.suspend()
    try:
        time.sleep(20)
        end("owner suspended, ended by its guard", load, SESSION_S + 10)
        assert owner.process.wait(5) == -signal.SIGKILL
    finally:
        owner.end()
        owner.start()


@long_only
def test_a_bookie_is_suspended(cluster, members, load):
    cluster.stop("b1")
    try:
        load.more(500)
        time.sleep(8)
    finally:
        cluster.go_on("b1")
    end("bookie suspended", load, 5)


@long_only
def test_all_bookies_are_suspended(cluster, members, load):
    """Each broker opens each connection again once or twice, however many ledgers use the connection."""
    before = sum(map(connections, members))
    for name in BOOKIES:
        cluster.stop(name)
    time.sleep(ClientOptions().add_timeout_s + 2)
    for name in BOOKIES:
        cluster.go_on(name)
    end("all bookies suspended for 7 s", load, 20)
    made = sum(map(connections, members)) - before
    figure("connections after a suspension of all bookies", count=made)
    assert made <= 2 * len(BOOKIES) * len(members)


def connections(member):
    """The number of connections to bookies that the broker has opened."""
    return (member.directory / f"{member.name}.log").read_text().count("event=bookie.connected")


@long_only
def test_zookeeper_is_restarted(cluster, members, load):
    cluster.kill("zk")
    cluster.start("zk")
    time.sleep(3)
    end("ZooKeeper restarted", load, 3)


@long_only
def test_zookeeper_is_away_longer_than_the_session(cluster, members, load):
    cluster.kill("zk")
    time.sleep(SESSION_S + 4)
    cluster.start("zk")
    end("ZooKeeper away for 10 s", load, SESSION_S + 20)


@long_only
def test_too_few_bookies(cluster, members, load):
    cluster.kill("b1")
    cluster.kill("b2")
    time.sleep(8)
    before = load.receipts()
    time.sleep(2)
    assert load.receipts() == before
    cluster.start("b1")
    began_s = time.monotonic()
    load.more(1)
    figure("two bookies of three again", resumed_s=time.monotonic() - began_s)
    cluster.start("b2")
    end("one bookie of three for some time", load, 60)


@long_only
def test_too_few_bookies_for_the_ledgers_of_a_new_owner(cluster, members, load):
    owner = busiest(members, load)
    cluster.kill("b1")
    owner.kill()
    try:
        time.sleep(SESSION_S + 10)
        cluster.start("b1")
        began_s = time.monotonic()
        load.more(1)
        resumed_s = time.monotonic() - began_s
        figure("three bookies again under a new owner", resumed_s=resumed_s)
        assert resumed_s < 5
        end("one bookie and the owner killed", load, 60)
    finally:
        owner.start()


@long_only
def test_an_owner_stops_while_its_ledgers_wait_for_a_bookie(cluster, members, load):
    killed = busiest(members, load)
    (owner,) = (each for each in members if each is not killed)
    cluster.kill("b1")
    killed.kill()
    try:
        time.sleep(SESSION_S + 2)  # the ledgers of the next owner wait for up to 10 s
        began_s = time.monotonic()
        assert owner.terminate() == 0
        stop_s = time.monotonic() - began_s
        figure("a stop while ledgers wait for a bookie", stop_s=stop_s)
        assert stop_s < 4
    finally:
        cluster.start("b1")
        for each in members:
            each.start()
    end("both brokers and one bookie away", load, 60)
