"""Starts of members where ZooKeeper is not as usual: below a chroot, with a dead server in the list, not there yet."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import pulsar
import pytest
from kazoo.client import KazooClient

from tests.cluster.broker_processes import Member, connect, free_port, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.real_cluster import RealCluster
from tests.cluster.scenes import busiest, end, loaded

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
ROOT = "/deep/pulsar"


@pytest.fixture
def zookeeper(cluster):
    client = KazooClient(cluster.zookeeper)
    client.start(30)
    yield client
    client.stop()
    client.close()


def initialize_at(store, cluster="c1", *options):
    arguments = [
        *(sys.executable, "-m", "magnetar", "initialize-cluster-metadata", "--cluster", cluster),
        *("--metadata-store", f"zk:{store}"),
        *("--web-service-url", "http://127.0.0.1:8080", "--broker-service-url", "pulsar://127.0.0.1:6650", *options),
    ]
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def publish_and_read(member, count=10):
    client = connect(member)
    topic = f"persistent://public/default/{uuid.uuid4().hex}"
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send(str(number).encode())
    assert [int(consumer.receive(30_000).data()) for _ in range(count)] == list(range(count))
    client.close()


@pytest.fixture
def below(_services):
    """Services that keep everything below a path of ZooKeeper, initialized by this project."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-chroot-"))
    made = RealCluster(directory)
    try:
        made.up(0)
        store = made.zookeeper + ROOT
        initialize_at(store)
        (directory / "initialized").touch()  # the command has made the nodes of the bookies too
        made.up(3, BK_CONF=f"metadataServiceUri=zk+hierarchical://{store}/ledgers")
        yield made
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)


def test_everything_below_a_chroot_and_a_dead_server_in_the_list(below, tmp_path):
    servers = f"127.0.0.1:{free_port()},{below.zookeeper}{ROOT}"
    assert "0 nodes made" in initialize_at(servers)
    settings = {
        "metadataStoreUrl": f"zk:{servers}",
        "configurationMetadataStoreUrl": f"zk:{servers}",
        "bookkeeperMetadataServiceUri": f"zk+null://{servers}/ledgers",
    }
    member = Member(tmp_path, "chroot", below.zookeeper, **settings)
    client = KazooClient(below.zookeeper)
    client.start(30)
    try:
        publish_and_read(member.start())
        assert len(client.get_children(f"{ROOT}/loadbalance/brokers")) == 1
        assert set(client.get_children("/")) == {"deep", "zookeeper"}
        assert member.terminate() == 0
        publish_and_read(member.start())
    finally:
        member.end()
        client.stop()
        client.close()


def test_a_broker_that_starts_before_zookeeper_waits_for_it(cluster, tmp_path):
    initialize(cluster)
    member = Member(tmp_path, "early", cluster.zookeeper)
    cluster.kill("zk")
    thread = threading.Thread(target=member.start)
    try:
        thread.start()
        time.sleep(3)
        assert thread.is_alive()
        cluster.start("zk")
        thread.join(60)
        assert member.url is not None, member.log_text()
        cluster.make_whole()
        publish_and_read(member)
    finally:
        thread.join(60)
        member.end()


def test_a_second_initialization_keeps_the_values_of_the_first(cluster, zookeeper):
    root = f"/{uuid.uuid4().hex}"
    store = f"{cluster.zookeeper}{root}"
    initialize_at(store)
    paths = ("/admin/clusters/c1", "/admin/policies/public/default", "/admin/policies/public")
    before = [zookeeper.get(root + path) for path in paths]
    other = ("--web-service-url", "http://other:1", "-bn", "7", "--initial-num-transaction-coordinators", "3")
    assert "0 nodes made" in initialize_at(store, "c1", *other)
    assert [zookeeper.get(root + path) for path in paths] == before
    initialize_at(store, "c2")
    assert zookeeper.get(root + paths[0]) == before[0]
    assert b'"c1"' in zookeeper.get(root + paths[2])[0]
    assert b'"c2"' in zookeeper.get(root + paths[2])[0]


LONG_SESSION_S = 30


def test_a_killed_owner_that_starts_again_serves_its_topics_before_its_earlier_session_ends(cluster, tmp_path):
    initialize(cluster)
    settings = {"metadataStoreSessionTimeoutMillis": LONG_SESSION_S * 1000}
    members = [Member(tmp_path, name, cluster.zookeeper, **settings) for name in ("s1", "s2")]
    with serving(members), loaded(members) as load:
        owner = busiest(members, load)
        owner.kill()
        owner.start()
        end("owner killed and started again", load, LONG_SESSION_S / 2)
