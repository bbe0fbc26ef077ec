"""One cluster served by Apache Pulsar and by this broker, in turns and together.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (about 250 MB; part of `make cluster`).
"""

from __future__ import annotations

import asyncio
import pathlib
import time

import pulsar
import pytest
import requests
from kazoo.client import KazooClient
from msgspec.json import encode
from pulsar.schema import AvroSchema, Record, String

from magnetar.bookkeeper.client import BookKeeper
from magnetar.broker.topics.catalog import PartitionedTopic
from tests.cluster.broker_processes import Member, connect
from tests.cluster.conftest import LONG
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker, initialize_by_pulsar
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
TOPICS = ("a b%é", "plain", "batch", "parts")
NAME = "sub/1 x"
BUCKETS = {
    "delayedDeliveryTrackerFactoryClassName": "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "delayedDeliveryMinIndexCountPerBucket": 5,
    "managedLedgerMaxEntriesPerLedger": 8,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
"""Pulsar keeps the delayed messages of a ledger in a bucket of its own once it has five."""
HOW = {"consumer_type": pulsar.ConsumerType.Shared, "initial_position": pulsar.InitialPosition.Earliest}


class R(Record):
    a = String()


@pytest.fixture(scope="module")
def brokers(cluster, tmp_path_factory):
    directory = pathlib.Path(tmp_path_factory.mktemp("kinds"))
    initialize_by_pulsar(cluster)
    made = (
        PulsarBroker(directory, "pulsar", cluster.zookeeper, **MORE, **BUCKETS),
        Member(directory, "ours", cluster.zookeeper, **MORE),
    )
    try:
        yield made
    finally:
        for each in made:
            each.end()


def call(broker, method, path, body=None):
    answer = requests.request(method, f"{broker.http}/admin/v2/{path}", json=body, timeout=60)
    assert answer.status_code < 300, (path, answer.status_code, answer.text)
    return answer


def receive(consumer, count):
    return sorted([consumer.receive(20_000) for _ in range(count)], key=lambda each: int(each.data()))


def numbers(messages):
    return [int(each.data()) for each in messages]


def publish(client, topic, wanted, *, batched=False):
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=500)
    for number in wanted:
        if batched:
            producer.send_async(str(number).encode(), lambda *_: None)
        else:
            producer.send(str(number).encode())
    producer.flush()
    producer.close()


def full(topic):
    return f"persistent://public/default/{topic}"


def written_by_pulsar(broker):
    """Topics with holes in their acknowledgements, parts of a batch, properties, a schema and policies."""
    client = connect(broker)
    call(broker, "PUT", "persistent/public/default/parts/partitions", 3)
    call(broker, "PUT", "namespaces/public/theirs", {"bundles": {"numBundles": 4}})
    call(broker, "POST", "namespaces/public/theirs/messageTTL", 100)
    for topic in TOPICS:
        consumer = client.subscribe(full(topic), NAME, properties={"k": "v"}, batch_index_ack_enabled=True, **HOW)
        publish(client, full(topic), range(20), batched=topic == "batch")
        for message in receive(consumer, 20):
            if int(message.data()) % 3 == 0:
                consumer.acknowledge(message)
        time.sleep(1.5)  # acknowledgements are durable a second later
    client.create_producer(full("schema"), schema=AvroSchema(R)).send(R(a="x"))
    client.close()


def served_by_ours(broker):
    client = connect(broker)
    assert set(call(broker, "GET", "namespaces/public").json()) >= {"public/default", "public/theirs"}
    assert call(broker, "GET", "namespaces/public/theirs/messageTTL").text == "100"
    versions = call(broker, "GET", "schemas/public/default/schema/schemas").json()["getSchemaResponses"]
    assert [each["version"] for each in versions] == [0]
    for topic in TOPICS:
        consumer = client.subscribe(full(topic), NAME, batch_index_ack_enabled=True, **HOW)
        left = receive(consumer, 13)
        assert numbers(left) == [number for number in range(20) if number % 3]
        for message in left:
            if int(message.data()) % 3 == 1:
                consumer.acknowledge(message)
        publish(client, full(topic), range(100, 110))
        for message in receive(consumer, 10):
            if int(message.data()) % 2 == 0:
                consumer.acknowledge(message)
        time.sleep(1.5)
    client.create_producer(full("schema of ours"), schema=AvroSchema(R)).send(R(a="y"))
    client.close()


def served_by_pulsar_again(broker):
    client = connect(broker)
    for topic in TOPICS:
        consumer = client.subscribe(full(topic), NAME, batch_index_ack_enabled=True, **HOW)
        wanted = [number for number in range(20) if number % 3 == 2] + [101, 103, 105, 107, 109]
        left = receive(consumer, len(wanted))
        assert numbers(left) == wanted, topic
        for message in left:
            consumer.acknowledge(message)
    reader = client.subscribe(full("schema of ours"), "s", schema=AvroSchema(R), **HOW)
    assert reader.receive(20_000).value().a == "y"
    client.close()


def publish_keys(client, versions):
    producer = client.create_producer(full("compacted"), batching_enabled=False)
    for version in versions:
        for key in "abcde":
            producer.send(f"{key}{version}".encode(), partition_key=key)
    producer.close()


def compact(broker):
    path = "persistent/public/default/compacted/compaction"
    call(broker, "PUT", path)
    wait_for(lambda: call(broker, "GET", path).json()["status"] == "SUCCESS", 60, "the compaction")


def check_compacted(broker, newest):
    """A new reader gets the newest message of each key."""
    client = connect(broker)
    reader = client.create_reader(full("compacted"), pulsar.MessageId.earliest, is_read_compacted=True)
    found = [reader.read_next(20_000).data().decode() for _ in range(5)]
    assert sorted(found) == [f"{key}{newest}" for key in "abcde"]
    assert not reader.has_message_available()
    client.close()


def publish_delayed(client, first, seconds):
    """Twenty messages that become due together, in more than one ledger; when, in seconds since 1970."""
    due = time.time() + seconds
    producer = client.create_producer(full("delayed"), batching_enabled=False)
    for number in range(first, first + 20):
        producer.send(str(number).encode(), deliver_at=int(due * 1000))
    producer.close()
    return due


def stored_buckets(cluster):
    """The buckets of delayed messages that Pulsar stored for the topic: entries by key."""

    async def read():
        found = {}
        async with await BookKeeper.connect(f"zk+null://{cluster.zookeeper}/ledgers") as client:
            async for ledger_id in client.ledger_ids():
                custom = (await client.metadata(ledger_id)).custom
                if custom.get("pulsar/delayedIndexTopic") == full("delayed").encode():
                    assert custom["component"] == b"delayed-index-bucket"
                    reader = await client.open(ledger_id, recover_first=False)
                    key = custom["pulsar/delayedIndexBucketKey"].decode()
                    found[key] = reader.last_add_confirmed + 1 if reader.is_closed else 0
        return found

    return asyncio.run(read())


def wait_for_buckets(cluster, known=()):
    """Wait until Pulsar has stored two buckets besides ``known``, each with its head and its messages."""

    def stored():
        new = {key: entries for key, entries in stored_buckets(cluster).items() if key not in known}
        return len(new) >= 2 and all(entries >= 2 for entries in new.values())

    wait_for(stored, 30, subject="buckets of Pulsar")


def check_delayed(broker, first, due):
    """Check that no message comes before it is due, and that every message then comes once."""
    client = connect(broker)
    consumer = client.subscribe(full("delayed"), "d", receiver_queue_size=100, **HOW)
    found = []
    for _ in range(20):
        message = consumer.receive(120_000)
        assert time.time() >= due - 0.5, f"{due - time.time()} s early"
        found.append(message)
    assert sorted(numbers(found)) == list(range(first, first + 20))
    for message in found:
        consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(1000)
    time.sleep(1.5)
    client.close()


def check_cut_growth(broker, cluster):
    """Pulsar serves and grows a topic whose record names a growth that died with a broker of this project."""
    path = "persistent/public/default/cut"
    call(broker, "PUT", f"{path}/partitions", 2)
    record = PartitionedTopic(2).growing(4, lambda _index: False)
    client = KazooClient(cluster.zookeeper)
    client.start(30)
    client.set("/admin/partitioned-topics/public/default/persistent/cut", encode(record))
    client.stop()
    client.close()
    call(broker, "PUT", f"{path}/properties", {"a": "b"})
    found = call(broker, "GET", f"{path}/partitions").json()
    assert (found["partitions"], found["properties"]) == (2, {"a": "b"})
    call(broker, "POST", f"{path}/partitions", 3)
    wait_for(lambda: call(broker, "GET", f"{path}/partitions").json()["partitions"] == 3, 30, "the growth")


def test_a_cluster_changes_hands_and_both_kinds_serve_it_together(brokers, cluster):
    theirs, ours = brokers
    written_by_pulsar(theirs.start())
    client = connect(theirs)
    client.subscribe(full("compacted"), "keeps", **HOW).close()  # Pulsar's readers miss keys of trimmed ledgers
    publish_keys(client, range(10))
    compact(theirs)
    check_compacted(theirs, newest=9)
    client.subscribe(full("delayed"), "d", **HOW)
    due = publish_delayed(client, 0, seconds=45)
    wait_for_buckets(cluster)
    client.close()
    theirs.terminate()
    served_by_ours(ours.start())
    check_compacted(ours, newest=9)
    client = connect(ours)
    publish_keys(client, range(10, 15))
    compact(ours)
    check_compacted(ours, newest=14)
    check_delayed(ours, 0, due)
    due = publish_delayed(client, 100, seconds=60)
    client.close()
    assert ours.terminate() == 0
    served_by_pulsar_again(theirs.start())
    check_cut_growth(theirs, cluster)
    check_compacted(theirs, newest=14)
    check_delayed(theirs, 100, due)
    ours.start()
    both = {each.http.removeprefix("http://") for each in brokers}
    for each in brokers:
        assert both <= set(call(each, "GET", "brokers/c1").json())
    client = connect(theirs, ours)
    owners = set()
    for number in range(16):
        publish(client, full(f"shared-{number}"), [number])
        found = {
            requests.get(f"{each.http}/lookup/v2/topic/persistent/public/default/shared-{number}", timeout=30).json()[
                "brokerUrl"
            ]
            for each in brokers
        }
        assert len(found) == 1
        owners |= found
    assert ours.url in owners
    assert ours.terminate() == 0  # the topics go to Pulsar at once
    for number in range(16):
        consumer = client.subscribe(full(f"shared-{number}"), "s", **HOW)
        assert numbers(receive(consumer, 1)) == [number]
    client.close()
