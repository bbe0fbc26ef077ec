"""Bookies that come back read-only, empty or with damaged entries, and metadata that a foreign client writes, under
load.

The tests use services of their own, because the damage to these bookies cannot be undone.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import tempfile
import uuid

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.cluster.broker_processes import connect
from tests.cluster.conftest import LONG
from tests.cluster.loaded_brokers import load_fixture, members_fixture
from tests.cluster.real_cluster import RealCluster
from tests.cluster.scenes import SHORT_LEDGERS, end
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
members = members_fixture(services="services", **SHORT_LEDGERS)
load = load_fixture(services="services")
MARK, DAMAGED = b"ENTRY-AS-STORED", b"ENTRY-AS-sTORED"


@pytest.fixture(scope="module")
def services(_services):
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-damage-"))
    made = RealCluster(directory)
    try:
        made.up(3)
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


def configure(services, name, **settings):
    """Change settings of a bookie; they count from its next start."""
    path = services.directory / f"{name}.conf"
    text = path.read_text()
    for key, value in settings.items():
        text = re.sub(rf"(?m)^{key}=.*$", f"{key}={value}", text)
    path.write_text(text)


def stop_in_order(services, name):
    """SIGTERM: everything is in the bookie's entry logs."""
    process = int((services.directory / f"{name}.pid").read_text())
    os.kill(process, signal.SIGTERM)
    wait_for(
        lambda: not pathlib.Path(f"/proc/{process}/fd").exists() or not alive(process), 30, "the end of the bookie"
    )


def alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_bookie_that_comes_back_read_only(services, members, load, zookeeper):
    services.kill("b1")
    configure(services, "b1", diskUsageThreshold=0.002, diskUsageWarnThreshold=0.001)
    services.start("b1")
    wait_for(lambda: zookeeper.get_children("/ledgers/available/readonly"), 60, "a read-only bookie")
    load.more(300)
    services.kill("b1")
    configure(services, "b1", diskUsageThreshold=0.999, diskUsageWarnThreshold=0.99)
    services.start("b1")
    end("bookie full, read-only, and back", load, 5)


def test_the_disk_of_a_bookie_fills_and_empties(services, members, load, zookeeper, tmp_path):
    """The bookie finds its disk too full, by its own threshold, and registers as read-only; then it has room again."""
    total, _, free = shutil.disk_usage(services.directory)
    size = total // 125
    if free < 3 * size:
        pytest.skip(f"needs {3 * size >> 30} GiB of free disk")
    limit = 1 - free / total + 0.004
    services.kill("b3")
    configure(services, "b3", diskUsageThreshold=limit, diskUsageWarnThreshold=limit - 0.0005)
    with (services.directory / "b3.conf").open("a") as file:
        file.write(f"diskUsageLwmThreshold={limit - 0.0005}\ndiskCheckInterval=500\n")
    services.start("b3")
    wait_for(lambda: services.bookies[2] in zookeeper.get_children("/ledgers/available"), 60, "a writable bookie")
    load.more(100)
    load.mark()
    filling = services.directory / "filling"
    with filling.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    try:
        wait_for(lambda: zookeeper.get_children("/ledgers/available/readonly"), 60, "a read-only bookie")
        load.more(300)
    finally:
        filling.unlink()
    wait_for(lambda: services.bookies[2] in zookeeper.get_children("/ledgers/available"), 60, "a writable bookie")
    end("the disk of a bookie fills and empties", load, 5)
    configure(services, "b3", diskUsageThreshold=0.999, diskUsageWarnThreshold=0.99, diskUsageLwmThreshold=0.99)
    services.kill("b3")
    services.start("b3")


def test_a_bookie_that_comes_back_empty(services, members, load, zookeeper):
    services.kill("b2")
    port = re.search(r"(?m)^bookiePort=(\d+)", (services.directory / "b2.conf").read_text())[1]
    shutil.rmtree(services.directory / "b2")
    zookeeper.delete(f"/ledgers/cookies/127.0.0.1:{port}")
    load.more(100)
    services.start("b2")
    load.more(300)
    end("bookie restarted empty", load, 5)


def test_a_replica_with_damaged_entries(services, members):
    """Brokers read intact replicas instead. The ledger decides which replica is read first, so there are several
    topics.
    """
    topics = [f"persistent://public/default/{uuid.uuid4().hex}" for _ in range(6)]
    client = connect(*members)
    for topic in topics:
        client.subscribe(topic, "s").close()
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(50):
            producer.send(b"%s %d" % (MARK, number))
    client.close()
    for name in ("b1", "b3"):  # one after the other: each entry keeps an intact replica
        damage(services, name)
        for each in members:  # forget cached entries
            each.terminate()
            each.start()
        client = connect(*members)
        for topic in topics:
            consumer = client.subscribe(topic, uuid.uuid4().hex, initial_position=pulsar.InitialPosition.Earliest)
            assert [consumer.receive(30_000).data() for _ in range(50)] == [b"%s %d" % (MARK, n) for n in range(50)]
        client.close()


def damage(services, name):
    stop_in_order(services, name)
    files = [*(services.directory / name).rglob("*.log"), *(services.directory / name).rglob("*.txn")]
    damaged = 0
    for path in files:
        data = path.read_bytes()
        damaged += data.count(MARK)
        path.write_bytes(data.replace(MARK, DAMAGED))
    assert damaged >= 300
    services.start(name)


def test_a_stranger_writes_the_nodes_of_ledger_lists_and_cursors(members, load, zookeeper):
    for number, lane in enumerate(load.lanes):
        path = f"/managed-ledgers/{lane.topic.replace('://', '/').removeprefix('persistent/')}"
        namespace, _, topic = path.rpartition("/")
        path = f"{namespace}/persistent/{topic}" if number % 2 else f"{namespace}/persistent/{topic}/follow"
        value, _ = zookeeper.get(path)
        zookeeper.set(path, value)
    load.more(3500)  # beyond the end of each ledger, where its list is written
    end("ledger lists and cursors written by a stranger", load, 5)
