"""Faults under eight producers with bookies that take clients with a certificate and a password alone."""

from __future__ import annotations

import time

import pytest

from tests.cluster.broker_processes import initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.scenes import SHORT_LEDGERS, end, loaded, two_members
from tests.cluster.secured_bookies import broker_settings, secured_cluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
BRIEF_S = 20
"""A bound beside other work; the figure is printed."""


@pytest.fixture(scope="module")
def secure(_services):
    with secured_cluster(3) as made:
        yield made


@pytest.fixture(scope="module")
def members(secure, tmp_path_factory):
    initialize(secure)
    settings = SHORT_LEDGERS | broker_settings(secure.directory)
    with serving(two_members(tmp_path_factory.mktemp("members"), secure.zookeeper, **settings)) as started:
        yield started


@pytest.fixture
def load(secure, members):
    secure.make_whole()
    with loaded(members) as made:
        yield made


def test_bookies_are_killed_in_turn(secure, load):
    for name in ("b1", "b2", "b3"):
        secure.kill(name)
        load.more(200)
        secure.start(name)
        load.more(200)
    end("three bookies with logins killed in turn", load, BRIEF_S)


def test_a_bookie_is_suspended(secure, load):
    secure.stop("b2")
    load.more(200)
    time.sleep(8)
    secure.go_on("b2")
    end("a bookie with logins suspended", load, BRIEF_S)
