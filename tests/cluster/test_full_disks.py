"""Disks of bookies that fill up under load, and have room again: of one bookie, of all but two, of all.

The ledgers of each bookie lie on a small file system of its own, which needs the right to mount.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

import pytest
from kazoo.client import KazooClient

from magnetar.bookkeeper.options import ClientOptions
from tests.cluster.conftest import LONG
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.scenes import SESSION_S, SHORT_LEDGERS, busiest, end
from tests.cluster.small_disks import cluster_on_small_disks
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
members = members_fixture(services="services", **SHORT_LEDGERS)
load = load_fixture(services="services")
NAMES = ("b1", "b2", "b3", "b4")
LIMITS = "diskUsageThreshold=0.8 diskUsageWarnThreshold=0.75 diskUsageLwmThreshold=0.75 diskCheckInterval=500"
FULL = 0.85
CRAMMED = 0.97
"""Too little room even for the adds of recoveries."""


@pytest.fixture(scope="module")
def services(_services):
    with cluster_on_small_disks(NAMES, "ledgers", "256m", LIMITS) as made:
        yield made


@pytest.fixture
def writable(services):
    """Wait until so many bookies are writable."""
    client = KazooClient(services.zookeeper)
    client.start(30)

    def found():
        return [each for each in client.get_children("/ledgers/available") if each != "readonly"]

    yield lambda count: wait_for(lambda: len(found()) == count, 60, f"{count} writable bookies")
    client.stop()
    client.close()


@contextlib.contextmanager
def full(services, names, part=FULL):
    """In this block so large a part of these disks is occupied."""
    files = [services.directory / name / "ledgers" / "filling" for name in names]
    try:
        for path in files:
            size = int(part * shutil.disk_usage(path.parent).total) - shutil.disk_usage(path.parent).used
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        yield
    finally:
        for path in files:
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("count", [1, 2])
def test_disks_of_some_bookies(services, members, load, writable, count):
    with full(services, NAMES[:count]):
        writable(4 - count)
        load.more(3500)  # each topic needs a new ledger meanwhile
    writable(4)
    end(f"{count} of four disks fill and empty", load, 10)


@pytest.mark.parametrize("part", [FULL, CRAMMED])
def test_disks_of_all_bookies(services, members, load, writable, part):
    with full(services, NAMES, part):
        writable(0)
        time.sleep(10)
    writable(4)
    end("all disks full for 10 s", load, 30)


def test_disks_of_all_bookies_for_longer_than_an_append_waits(services, members, load, writable):
    with full(services, NAMES):
        writable(0)
        time.sleep(ClientOptions().add_quorum_timeout_s + 10)
    writable(4)
    end("all disks full for 70 s", load, 100)


def test_an_owner_is_killed_while_all_disks_are_full(services, members, load, writable):
    with full(services, NAMES, CRAMMED):
        writable(0)
        killed = busiest(members, load)
        killed.kill()
        killed.start()
        time.sleep(SESSION_S + 5)
    writable(4)
    end("a kill while all disks are full", load, 60)
