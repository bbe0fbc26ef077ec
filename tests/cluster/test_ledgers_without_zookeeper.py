"""Ledgers that become full while ZooKeeper, or a bookie that the next ledger needs, is away: publishes go on in them.
Brokers and services of the test's own.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import time

import pulsar
import pytest
import requests
from kazoo.client import KazooClient

from tests.cluster.broker_processes import Member, Publisher, check_complete, connect, initialize, read_numbers
from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.real_cluster import RealCluster
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
ENTRIES = 200
SETTINGS = {
    "metadataStoreSessionTimeoutMillis": 6000,
    "managedLedgerMaxEntriesPerLedger": ENTRIES,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
TOPIC = "persistent://public/default/full"


@pytest.fixture
def services(_services):
    """ZooKeeper and bookies that no other test uses."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-alone-"))
    made = RealCluster(directory)
    try:
        made.up(3)
        yield made
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)


def ledgers(member):
    url = f"{member.http}/admin/v2/{TOPIC.replace('://', '/')}/internalStats"
    found = requests.get(url, timeout=30).json()["ledgers"]
    return [each["entries"] for each in found[:-1]]


def bookies(services):
    client = KazooClient(services.zookeeper)
    client.start(30)
    try:
        return len(client.get_children("/ledgers/available")) - 1  # without the node of read-only bookies
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("away", ["zk", "b1"])
def test_publishes_go_on_in_a_ledger_that_is_full(services, tmp_path, away):
    initialize(services)
    member = Member(tmp_path, "w1", services.zookeeper, **SETTINGS)
    client = None
    try:
        client = connect(member.start())
        consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
        publisher = Publisher(client, TOPIC)
        publisher.start()
        publisher.until(ENTRIES // 2)
        services.kill(away)
        if away != "zk":
            wait_for(lambda: bookies(services) == 2, 60, "the end of the bookie's session")
            time.sleep(0.5)  # the broker follows within a moment
        began_s = time.monotonic()
        publisher.until(publisher.acknowledged + 4 * ENTRIES)
        publisher.longest_silence_s, silence_s = 0.0, publisher.longest_silence_s
        figure(f"full without {away}", silence_s=silence_s, seconds=time.monotonic() - began_s)
        services.start(away)
        wait_for(lambda: max(ledgers(member), default=0) >= 3 * ENTRIES, 60, "the end of the full ledger")
        publisher.until(publisher.acknowledged + 3 * ENTRIES)
        publisher.finish()
        assert ledgers(member)[-1] == ENTRIES
        check_complete(read_numbers(consumer, publisher.acknowledged - 1), publisher.acknowledged)
        assert silence_s < 5
    finally:
        if client is not None:
            client.close()
        member.end()


def terminate(member):
    return requests.post(f"{member.http}/admin/v2/{TOPIC.replace('://', '/')}/terminate", timeout=120)


@pytest.mark.parametrize("killed", [False, True], ids=["repeated", "broker-killed"])
def test_a_termination_while_zookeeper_is_away(services, tmp_path, killed):
    """The request fails; a second request ends the topic after all messages. After a kill in between the topic goes on."""
    initialize(services)
    member = Member(tmp_path, "t1", services.zookeeper, **SETTINGS)
    client = None
    try:
        client = connect(member.start())
        consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(10):
            producer.send(str(number).encode())
        services.kill("zk")
        began_s = time.monotonic()
        assert terminate(member).status_code >= 500
        figure("termination without ZooKeeper", refused_after_s=time.monotonic() - began_s)
        if killed:
            member.kill()
        services.start("zk")
        if killed:
            member.start()
            producer.send(b"10")
        answer = wait_for(lambda: (found := terminate(member)).ok and found, 90, "the repeated termination")
        last = 10 if killed else 9
        assert answer.json()["entryId"] == (0 if killed else 9)
        assert terminate(member).json() == answer.json()
        client.close()
        member.terminate()
        client = connect(member.start())
        consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
        assert read_numbers(consumer, last) == list(range(last + 1))
        assert terminate(member).json() == answer.json()
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer(TOPIC)
    finally:
        if client is not None:
            client.close()
        member.end()
