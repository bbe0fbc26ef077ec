"""Ledgers that another program deletes below a topic. The expected messages are those that brokers of Apache Pulsar 4.2.4
delivered after the same deletions, with autoSkipNonRecoverableData and without.
"""

from __future__ import annotations

import time

import pulsar
import pytest
import requests
from kazoo.client import KazooClient

from tests.cluster.broker_processes import Member, connect, initialize
from tests.cluster.conftest import LONG
from tests.waiting import wait_for

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
NAMESPACE = "public/lost-ledgers"
COLLECTED_S = 6
"""The bookies delete the entries of a ledger without metadata within five seconds."""


@pytest.fixture
def zookeeper(cluster):
    client = KazooClient(cluster.zookeeper)
    client.start(30)
    yield client
    client.stop()
    client.close()


@pytest.fixture(params=["false", "true"], ids=["waits", "skips"])
def member(request, cluster, tmp_path):
    """A broker without a cache, with ledgers of ten entries that retention keeps."""
    initialize(cluster)
    made = Member(
        tmp_path,
        "l1",
        cluster.zookeeper,
        autoSkipNonRecoverableData=request.param,
        managedLedgerCacheSizeMB=0,
        managedLedgerMaxEntriesPerLedger=10,
        managedLedgerMinLedgerRolloverTimeMinutes=0,
        defaultRetentionTimeInMinutes=-1,
        defaultRetentionSizeInMB=-1,
    )
    try:
        made.start()
        requests.put(f"{made.http}/admin/v2/namespaces/{NAMESPACE}", timeout=30)
        yield made
    finally:
        made.end()


def ledgers(member, topic):
    url = f"{member.http}/admin/v2/persistent/{topic}/internalStats"
    return [each["ledgerId"] for each in requests.get(url, timeout=30).json()["ledgers"]]


def delete(zookeeper, ledger_id):
    name = f"{ledger_id:010d}"
    zookeeper.delete(f"/ledgers/{name[:2]}/{name[2:6]}/L{name[6:]}")
    time.sleep(COLLECTED_S)


def read(client, topic, count, *, more_s=2):
    """The numbers that a new subscription gets: so many, and those that follow within a moment."""
    consumer = client.subscribe(topic, f"s{count}", initial_position=pulsar.InitialPosition.Earliest)
    found = []
    try:
        while True:
            found.append(int(consumer.receive(30_000 if len(found) < count else more_s * 1000).data()))
    except pulsar.Timeout:
        return found
    finally:
        consumer.close()


def test_readers_meet_a_deleted_ledger(member, zookeeper, request):
    topic = f"{NAMESPACE}/{request.node.callspec.id}"
    client = connect(member)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(35):
        producer.send(b"%d" % number)
    wait_for(lambda: len(ledgers(member, topic)) == 4, 30, "four ledgers")
    _, second, _, last = ledgers(member, topic)
    delete(zookeeper, second)
    first_part, skipping = list(range(10)), "skips" in request.node.callspec.id
    expected = first_part + (list(range(20, 35)) if skipping else [])
    assert read(client, topic, len(expected)) == expected

    delete(zookeeper, last)  # the writer notices, and continues in another ledger
    producer.send(b"35")
    member.terminate()
    member.start()
    expected = first_part + ([*range(20, 30), 35] if skipping else [])
    assert read(client, topic, len(expected) or 1) == expected
    client.close()


def test_a_topic_opens_without_its_last_ledger(member, zookeeper, request):
    topic = f"{NAMESPACE}/last-{request.node.callspec.id}"
    client = connect(member)
    consumer = client.subscribe(topic, "acknowledged")
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(15):
        producer.send(b"%d" % number)
        consumer.acknowledge(consumer.receive(10_000))
    time.sleep(1.5)  # acknowledgements are durable a second after they came
    last = ledgers(member, topic)[-1]
    member.kill()
    delete(zookeeper, last)
    member.start()
    producer.send(b"15")
    assert int(consumer.receive(30_000).data()) == 15
    assert read(client, topic, 11) == [*range(10), 15]
    client.close()
