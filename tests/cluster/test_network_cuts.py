"""Cuts of the network between any two processes of a cluster, under eight producers and their consumers."""

from __future__ import annotations

import itertools
import os
import pathlib
import random
import shutil
import tempfile
import time

import pytest

from tests.cluster.conftest import LONG
from tests.cluster.field import Field
from tests.cluster.figures import figure
from tests.cluster.scenes import SESSION_S, busiest, end, loaded

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
BRIEF_S = 15
"""Bound of a silence that takes a moment on a quiet machine; the figure is printed."""


@pytest.fixture(scope="module")
def field(_services, tmp_path_factory):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-cuts-"))
    made = Field(directory)
    try:
        yield made.up(tmp_path_factory.mktemp("members"))
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def load(field):
    field.cluster.make_whole()  # new ledgers need all bookies
    with loaded(field.members) as made:
        try:
            yield made
        finally:
            field.network.heal()


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_between_an_owner_and_a_bookie(field, load, how):
    owner = busiest(field.members, load)
    getattr(field.network, how)(owner.process.pid, field.bookie_ports[0])
    load.more(300)
    time.sleep(7)
    field.network.heal()
    end(f"owner and one bookie, {how}", load, BRIEF_S)


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_between_an_owner_and_two_bookies(field, load, how):
    owner = busiest(field.members, load)
    for port in field.bookie_ports[:2]:
        getattr(field.network, how)(owner.process.pid, port)
    time.sleep(8)
    field.network.heal()
    silence_s = end(f"owner and two bookies for 8 s, {how}", load, 20)
    assert silence_s > 5, "publishes without two bookies: the network was not cut"


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_between_an_owner_and_zookeeper_for_a_moment(field, load, how):
    owner = busiest(field.members, load)
    getattr(field.network, how)(owner.process.pid, field.zookeeper_port)
    time.sleep(SESSION_S / 4)
    field.network.heal()
    end(f"owner and ZooKeeper for {SESSION_S / 4} s, {how}", load, BRIEF_S)


@pytest.mark.parametrize("how", ["cut", "silence"])
def test_between_an_owner_and_zookeeper_for_longer_than_the_session(field, load, how):
    owner = busiest(field.members, load)
    getattr(field.network, how)(owner.process.pid, field.zookeeper_port)
    time.sleep(2 * SESSION_S)
    field.network.heal()
    end(f"owner and ZooKeeper for {2 * SESSION_S} s, {how}", load, SESSION_S + 10)


@pytest.mark.parametrize("bookies", [1, 3])
def test_the_answers_of_bookies_to_an_owner_are_held(field, load, bookies):
    """The bookies store entries whose acknowledgements do not come."""
    owner = busiest(field.members, load)
    for port in field.bookie_ports[:bookies]:
        field.network.deafen(owner.process.pid, port)
    time.sleep(8)
    field.network.heal()
    silence_s = end(f"the answers of {bookies} bookies to the owner are held for 8 s", load, 20)
    assert silence_s > 5 or bookies == 1, "receipts without an answer: the answers were not held"


@pytest.mark.parametrize("sessions", [0.25, 2])
def test_the_answers_of_zookeeper_to_an_owner_are_held(field, load, sessions):
    """Each request has its effect: the outcomes of the owner's writes are unknown."""
    owner = busiest(field.members, load)
    field.network.deafen(owner.process.pid, field.zookeeper_port)
    time.sleep(sessions * SESSION_S)
    field.network.heal()
    end(f"the answers of ZooKeeper to the owner are held for {sessions * SESSION_S} s", load, 2 * SESSION_S + 10)


@pytest.mark.parametrize("sessions", [0.25, 2])
def test_the_requests_of_an_owner_to_zookeeper_are_held(field, load, sessions):
    """Notices of changes come all the same, and so does the end of the session."""
    owner = busiest(field.members, load)
    field.network.mute(owner.process.pid, field.zookeeper_port)
    time.sleep(sessions * SESSION_S)
    field.network.heal()
    end(f"the requests of the owner to ZooKeeper are held for {sessions * SESSION_S} s", load, 2 * SESSION_S + 10)


@pytest.mark.parametrize("bookies", [1, 3])
def test_the_requests_of_an_owner_to_bookies_are_held(field, load, bookies):
    owner = busiest(field.members, load)
    for port in field.bookie_ports[:bookies]:
        field.network.mute(owner.process.pid, port)
    time.sleep(8)
    field.network.heal()
    end(f"the requests of the owner to {bookies} bookies are held for 8 s", load, 20)


def test_the_answers_of_zookeeper_to_bookies_are_held(field, load):
    with field.cluster.supervised():
        for number in range(2):
            field.network.deafen(field.bookie_process(number), field.zookeeper_port)
        time.sleep(8)
        field.network.heal()
        end("the answers of ZooKeeper to two bookies are held for 8 s", load, BRIEF_S)


def test_between_the_clients_and_an_owner(field, load):
    owner = busiest(field.members, load)
    field.network.cut(os.getpid(), owner.settings["brokerServicePort"])
    time.sleep(3)
    field.network.heal()
    end("clients and owner for 3 s", load, 15)


def test_between_the_brokers(field, load):
    first, second = field.members
    for here, there in ((first, second), (second, first)):
        field.network.cut(here.process.pid, there.settings["brokerServicePort"])
        field.network.cut(here.process.pid, there.settings["webServicePort"])
    with loaded(field.members) as more:  # lookups are answered all the same
        end("broker and broker, new topics", more, BRIEF_S)
    field.network.heal()
    end("broker and broker", load, BRIEF_S)


@pytest.mark.parametrize("how", ["deafen", "mute"])
def test_one_direction_between_the_brokers(field, load, how):
    """Lookups, redirected requests and the policies of topics go from broker to broker."""
    first, second = field.members
    for port in ("brokerServicePort", "webServicePort"):
        getattr(field.network, how)(first.process.pid, second.settings[port])
    with loaded(field.members) as more:
        time.sleep(8)
        end(f"one broker does not reach the other, {how}: new topics", more, BRIEF_S)
    field.network.heal()
    end(f"one broker does not reach the other, {how}", load, BRIEF_S)


def test_between_a_bookie_and_zookeeper(field, load):
    with field.cluster.supervised():
        for number in range(2):
            field.network.silence(field.bookie_process(number), field.zookeeper_port)
        time.sleep(8)
        field.network.heal()
        end("two bookies and ZooKeeper for 8 s", load, BRIEF_S)


def test_a_bookie_that_answers_late(field, load):
    for each in field.members:
        field.network.slow(each.process.pid, field.bookie_ports[0], 1.0)
    load.more(500)
    time.sleep(10)
    field.network.heal()
    end("a bookie that answers after 2 s", load, BRIEF_S)


def test_zookeeper_that_answers_late(field, load):
    for each in field.members:
        field.network.slow(each.process.pid, field.zookeeper_port, 1.0)
    time.sleep(40)
    field.network.heal()
    end("ZooKeeper that answers after 2 s, for 40 s", load, 30)  # a new ledger takes three answers and more


def test_a_bookie_that_is_a_little_late(field, load):
    for each in field.members:
        field.network.slow(each.process.pid, field.bookie_ports[0], 0.1)
    load.more(500)
    time.sleep(10)
    field.network.heal()
    end("a bookie that answers after 0.2 s", load, BRIEF_S)


@pytest.mark.parametrize("bookies", [1, 3])
def test_bookies_whose_answers_are_damaged_on_the_way(field, load, bookies):
    """The load reads all of its messages back while bits still change."""
    before = field.network.flipped
    for each, port in itertools.product(field.members, field.bookie_ports[:bookies]):
        field.network.damage(each.process.pid, port, 20)
    load.more(500)
    killed = busiest(field.members, load)
    killed.kill()
    killed.start()
    for port in field.bookie_ports[:bookies]:
        field.network.damage(killed.process.pid, port, 20)
    load.more(500)
    end(f"damaged answers of {bookies} bookies, and a kill", load, SESSION_S + 2 * BRIEF_S)
    flipped = field.network.flipped - before
    figure("damaged answers", bookies=bookies, flipped=flipped)
    assert flipped > 10


def test_an_owner_that_stops_and_goes_on_in_a_rhythm(field, load):
    owner = busiest(field.members, load)
    for _ in range(50):
        owner.suspend()
        time.sleep(0.2)
        owner.go_on()
        time.sleep(0.2)
    end("an owner suspended for half of 20 s, 0.2 s at a time", load, BRIEF_S)


def test_cuts_at_random(field, load):
    chance = random.Random(7)
    services = [*field.bookie_ports, field.zookeeper_port]
    for _ in range(12):
        owner = chance.choice(field.members)
        how = chance.choice(["cut", "silence"])
        for port in chance.sample(services, chance.choice([1, 1, 2])):
            getattr(field.network, how)(owner.process.pid, port)
        time.sleep(chance.choice([0.2, 1.0, 3.0]))
        field.network.heal()
        load.more(20)
    end("twelve cuts at random", load, 30)
