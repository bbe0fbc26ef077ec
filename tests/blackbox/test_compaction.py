"""Topic compaction through the official client: readers, consumers and table views of compacted topics."""

import json
import urllib.error
import urllib.request

import pulsar
import pytest
from pulsar import CompressionType, MessageId

from tests.waiting import wait_for

RECEIVE_MS = 60_000
NOTHING_MS = 500


def http(broker, method, path, body=None):
    request = urllib.request.Request(broker.http + path, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def rest(topic, suffix=""):
    return "/admin/v2/" + topic.replace("://", "/") + suffix


def compaction_status(broker, topic):
    return http(broker, "GET", rest(topic, "/compaction"))["status"]


def compact(broker, topic):
    http(broker, "PUT", rest(topic, "/compaction"))
    wait_for(lambda: compaction_status(broker, topic) != "RUNNING", subject="the end of the compaction")
    assert compaction_status(broker, topic) == "SUCCESS"


def contents(messages):
    """Keys and values. This client shows messages removed from a batch as empty messages without a key, with Apache
    Pulsar too.
    """
    pairs = [(message.partition_key(), message.data()) for message in messages]
    return [pair for pair in pairs if pair != ("", b"")]


def drain(consumer, ack=False):
    found = []
    while True:
        try:
            message = consumer.receive(RECEIVE_MS if not found else NOTHING_MS)
        except pulsar.Timeout:
            return contents(found)
        if ack:
            consumer.acknowledge(message)
        found.append(message)


def subscribe(client, topic):
    return client.subscribe(topic, "sub", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest)


def compacted_reader(client, topic, start=MessageId.earliest):
    return client.create_reader(topic, start, is_read_compacted=True)


def read_all(reader):
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(RECEIVE_MS))
    return contents(found)


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_last_value_of_each_key(broker, client, topic, batching, codec):
    topic += f"-{batching}-{codec.name}"
    producer = client.create_producer(
        topic,
        batching_enabled=batching,
        batching_max_messages=7,
        batching_max_publish_delay_ms=50,
        compression_type=codec,
    )
    for i in range(100):
        producer.send_async(b"value %d" % i, None, partition_key=f"k{i % 10}")
    producer.send_async(b"", None, partition_key="k3")
    producer.send_async(b"no key", None)
    producer.flush()
    compact(broker, topic)
    expected = [(f"k{i % 10}", b"value %d" % i) for i in range(90, 100) if i != 93]
    assert (
        drain(client.subscribe(topic, "sub", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest))
        == expected
    )
    assert read_all(compacted_reader(client, topic)) == expected
    producer.send(b"later", partition_key="k3")
    assert read_all(compacted_reader(client, topic)) == [*expected, ("k3", b"later")]
    plain = client.create_reader(topic, MessageId.earliest)
    assert len(read_all(plain)) == 103


def test_message_ids_stay(broker, client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % i, partition_key=f"k{i % 3}") for i in range(9)]
    compact(broker, topic)
    reader = compacted_reader(client, topic)
    found = [reader.read_next(RECEIVE_MS).message_id() for _ in range(3)]
    assert [(m.ledger_id(), m.entry_id()) for m in found] == [(m.ledger_id(), m.entry_id()) for m in ids[6:]]
    from_there = compacted_reader(client, topic, found[1])
    assert read_all(from_there) == [("k2", b"8")]


def test_acknowledgements_of_a_durable_consumer(broker, client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(40):
        producer.send(b"%d" % i, partition_key=f"k{i % 20}")
    compact(broker, topic)

    consumer = subscribe(client, topic)
    for i in range(20, 30):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == b"%d" % i
        consumer.acknowledge(message)
    consumer.close()
    http(broker, "PUT", rest(topic, "/unload"))
    consumer = subscribe(client, topic)
    assert drain(consumer, ack=True) == [(f"k{i % 20}", b"%d" % i) for i in range(30, 40)]
    consumer.close()
    consumer = subscribe(client, topic)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(NOTHING_MS)


def test_table_view(broker, client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(50):
        producer.send(b"%d" % i, partition_key=f"k{i % 5}")
    producer.send(b"", partition_key="k0")
    compact(broker, topic)
    http(broker, "PUT", rest(topic, "/unload"))
    view = client.create_table_view(topic)
    seen = {}
    view.for_each(seen.__setitem__)
    assert seen == {f"k{i}": b"%d" % (45 + i) for i in range(1, 5)}
    producer.send(b"new", partition_key="k1")
    wait_for(lambda: view.get("k1") == b"new", subject="the new value in the table view")
    view.close()


def test_again_and_again_with_kills(new_broker):
    """Compaction survives kill -9; each round replaces the compacted ledger."""
    broker = new_broker(
        managedLedgerMaxEntriesPerLedger=10,
        managedLedgerMinLedgerRolloverTimeMinutes=0,
        defaultRetentionTimeInMinutes=0,
    )
    topic = "persistent://public/default/rounds"
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.create_producer(topic).send(b"first", partition_key="first")
    compact(broker, topic)  # from now on the compaction's cursor holds the log
    client.close()
    expected = {"first": b"first"}
    for round_ in range(4):
        client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, batching_enabled=False)
        for i in range(60):
            key, value = f"k{(i * (round_ + 1)) % 25}", b"" if i % 7 == 6 else b"%d/%d" % (round_, i)
            producer.send(value, partition_key=key)
            expected[key] = value
        compact(broker, topic)
        client.close()
        broker.kill()
        broker.start()
        client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        assert dict(read_all(compacted_reader(client, topic))) == {k: v for k, v in expected.items() if v}
        client.close()
    internal = http(broker, "GET", rest(topic, "/internalStats"))
    assert internal["compactedLedger"]["entries"] == sum(1 for value in expected.values() if value)
    assert sum(ledger["entries"] for ledger in internal["ledgers"]) < 4 * 60


def test_threshold(new_broker):
    broker = new_broker(brokerServiceCompactionMonitorIntervalInSeconds=1)
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    http(broker, "PUT", "/admin/v2/namespaces/public/default/compactionThreshold", 10_000)
    topic = "persistent://public/default/threshold"
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(30):
        producer.send(bytes(1000), partition_key="k")
    wait_for(lambda: compaction_status(broker, topic) == "SUCCESS", subject="the compaction", every=0.1)
    stats = http(broker, "GET", rest(topic, "/stats"))["compaction"]
    removed = stats["lastCompactionRemovedEventCount"]  # of the messages stored when the threshold was passed
    assert 9 <= removed <= 29
    assert len(read_all(compacted_reader(client, topic))) == 30 - removed
    client.close()


def test_status_before_any_compaction(broker, client, topic):
    client.create_producer(topic).close()
    assert http(broker, "GET", rest(topic, "/compaction"))["status"] == "NOT_RUN"
    with pytest.raises(urllib.error.HTTPError) as missing:
        http(broker, "GET", rest(topic + "-missing", "/compaction"))
    assert missing.value.code == 404
    missing.value.close()
