"""The upkeep of bookies under load: restarts in order, and Apache BookKeeper's auto-recovery, which replicates the
ledgers of a lost bookie and fences those that are written.

The tests use services of their own: four bookies, whose auto-recovery waits a second instead of half a minute before it
fences a ledger, and a tenth of a second instead of five seconds behind each ledger that is written: five seconds for
each of the fifty ledgers of a test would be its limit of time.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import uuid

import pulsar
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.cluster.broker_processes import connect
from tests.cluster.conftest import LONG
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.real_cluster import SCRIPT, RealCluster
from tests.cluster.scenes import SHORT_LEDGERS, end
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
members = members_fixture(services="services", names=("u1", "u2"), managedLedgerCacheSizeMB=1, **SHORT_LEDGERS)
load = load_fixture(services="services")
SETTINGS = (
    "openLedgerRereplicationGracePeriod=1000 rwRereplicateBackoffMs=100 lostBookieRecoveryDelay=0"
    " auditorPeriodicBookieCheckInterval=5"
)
LOST = "/ledgers/underreplication/ledgers"
LARGE = 9
"""Messages of 200 KB of a topic: those of eight topics do not fit the cache of a broker."""


@pytest.fixture(scope="module")
def services(_services):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-upkeep-"))
    made = RealCluster(directory)
    try:
        made.up(4, BK_CONF=SETTINGS)
        yield made
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def zookeeper(services):
    client = KazooClient(services.zookeeper)
    client.start(30)
    yield client
    client.stop()
    client.close()


@contextlib.contextmanager
def auto_recovery(services):
    """Apache BookKeeper's auditor and worker as a process of their own."""
    daemon = "org.apache.bookkeeper.replication.AutoRecoveryMain"
    settings = services.directory / "auto-recovery.conf"
    text = (services.directory / "b1.conf").read_text()
    settings.write_text(re.sub(r"(?m)^zkTimeout=.*$", "zkTimeout=30000", text))
    arguments = [SCRIPT, "-d", services.directory, "java", daemon, "--conf", settings]
    with (services.directory / "auto-recovery.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def to_replicate(zookeeper, path=LOST):
    """The ids of the ledgers that lack a replica."""
    try:
        children = zookeeper.retry(zookeeper.get_children, path)
    except NoNodeError:
        return set()
    found = {int(child.removeprefix("urL")) for child in children if child.startswith("urL")}
    return found.union(*(to_replicate(zookeeper, f"{path}/{child}") for child in children if len(child) == 4))


def test_all_bookies_restart_in_turn(services, members, load):
    for name in ("b1", "b2", "b3", "b4"):
        process = int((services.directory / f"{name}.pid").read_text())
        os.kill(process, signal.SIGTERM)
        load.more(100)
        with contextlib.suppress(AssertionError):  # the bookie has ended by now
            services.kill(name)
        services.start(name)
    end("all bookies restarted in turn", load, 5)


def test_auto_recovery_replicates_ledgers_that_are_written(services, members, load, zookeeper):
    topics = [f"persistent://public/default/{uuid.uuid4().hex}" for _ in range(8)]
    client = connect(*members)
    idle = [client.create_producer(topic, send_timeout_millis=30_000) for topic in topics]
    consumers = [client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest) for topic in topics]
    ledgers = {producer.send(b"0").ledger_id() for producer in idle}
    with auto_recovery(services):
        wait_for(lambda: zookeeper.exists("/ledgers/underreplication/auditorelection"), 60, "an auditor")
        services.kill("b2")
        wait_for(lambda: ledgers & to_replicate(zookeeper), 60, "the auditor to find the loss")
        wait_for(lambda: not ledgers & to_replicate(zookeeper), 240, "the replication of the ledgers without writes")
        load.more(300)
        services.start("b2")
        for producer in idle:
            producer.send(b"1")
        end("auto-recovery during writes", load, 10)
    for consumer in consumers:
        assert [consumer.receive(30_000).data() for _ in range(2)] == [b"0", b"1"]
    client.close()


def bodies_of(client, topic):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(60_000).data()[:1] for _ in range(LARGE)]
    reader.close()
    return found


def test_readers_follow_ledgers_that_auto_recovery_has_moved(services, members, zookeeper):
    """A bookie and its disk are lost. Then the bookie that got the copies is the last bookie with the entries, which no
    broker had asked before.
    """
    services.make_whole()
    topics = [f"persistent://public/default/{uuid.uuid4().hex}" for _ in range(8)]
    client, expected = connect(*members), [b"%d" % number for number in range(LARGE)]
    ledgers = set()
    for topic in topics:
        producer = client.create_producer(topic, batching_enabled=False)
        ledgers |= {producer.send(body + bytes(200_000)).ledger_id() for body in expected}
        assert bodies_of(client, topic) == expected
    with auto_recovery(services):
        services.kill("b2")
        shutil.rmtree(services.directory / "b2")
        wait_for(lambda: ledgers & to_replicate(zookeeper), 120, "the auditor to find the loss")
        wait_for(lambda: not ledgers & to_replicate(zookeeper), 240, "the replication")
    services.kill("b1")
    services.kill("b3")
    try:
        for topic in topics:
            assert bodies_of(client, topic) == expected
    finally:
        zookeeper.delete(f"/ledgers/cookies/{services.bookies[1]}")  # else the bookie refuses to start on its new disk
        for name in ("b1", "b2", "b3"):
            services.start(name)
    client.close()
