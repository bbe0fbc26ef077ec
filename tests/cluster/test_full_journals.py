"""Disks of bookies' journals that fill up under load, and have room again: of one bookie, of two, of all.

An Apache bookie whose journal cannot be written ends, and does not start again before there is room: its operator makes
room, and a supervisor starts the bookie. The journal of each bookie lies on a small file system of its own, which needs
the right to mount.
"""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.cluster.conftest import LONG
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.scenes import SHORT_LEDGERS, end
from tests.cluster.small_disks import cluster_on_small_disks
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
members = members_fixture(services="services", **SHORT_LEDGERS)
load = load_fixture(services="services")
NAMES = ("b1", "b2", "b3", "b4")
SMALL_FILES = "journalMaxSizeMB=4"


@pytest.fixture(scope="module")
def services(_services):
    with cluster_on_small_disks(NAMES, "journal", "64m", SMALL_FILES) as made:
        yield made


def fill(path):
    """Write until nothing more fits, beside a bookie that writes too."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 << 10))


@contextlib.contextmanager
def full(services, names):
    """In this block the journals of these bookies have no room; behind the block the bookies are started again."""
    fillings = [services.directory / name / "journal" / "filling" for name in names]
    try:
        for path in fillings:
            fill(path)
        yield
    finally:
        for path in fillings:
            path.unlink(missing_ok=True)
        for name in names:
            services.start(name)


def ended(services, name):
    wait_for(lambda: not services._lives(name), 120, f"the end of {name}")


@pytest.mark.parametrize("count", [1, 2])
def test_journals_of_some_bookies(services, members, load, count):
    with full(services, NAMES[:count]):
        for name in NAMES[:count]:
            ended(services, name)
        load.more(1000)
    end(f"journals of {count} of four bookies fill and empty", load, 60)


def test_journals_of_all_bookies(services, members, load):
    with full(services, NAMES):
        for name in NAMES:
            ended(services, name)
        time.sleep(5)
    end("all journals full", load, 150)
