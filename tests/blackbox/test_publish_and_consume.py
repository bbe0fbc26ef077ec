"""The official client's everyday calls, each in a test."""

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

RECEIVE_MS = 60_000
NOTHING_MS = 400


def receive_all(consumer, count, ack=True):
    out = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        out.append(message)
        if ack:
            consumer.acknowledge(message)
    return out


def nothing_more(consumer):
    with pytest.raises(pulsar.Timeout):
        consumer.receive(NOTHING_MS)


@pytest.mark.parametrize(
    "kind", [ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared]
)
def test_produce_and_consume(client, topic, kind):
    consumer = client.subscribe(topic, "sub", consumer_type=kind)
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"m%d" % i, properties={"i": str(i)}, partition_key="k") for i in range(100)]
    got = receive_all(consumer, 100)
    assert [m.data() for m in got] == [b"m%d" % i for i in range(100)]
    assert [m.properties()["i"] for m in got] == [str(i) for i in range(100)]
    assert [(m.message_id().ledger_id(), m.message_id().entry_id()) for m in got] == [
        (i.ledger_id(), i.entry_id()) for i in ids
    ]
    nothing_more(consumer)


@pytest.mark.parametrize(
    "compression",
    [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
)
def test_batches_of_every_codec(client, topic, compression):
    topic += f"-{compression.name}"
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=10,
        batching_max_publish_delay_ms=20,
        compression_type=compression,
    )
    for i in range(95):
        producer.send_async(b"payload %d " % i * 20, None)
    producer.flush()
    got = receive_all(consumer, 95)
    assert [m.data() for m in got] == [b"payload %d " % i * 20 for i in range(95)]


def test_chunked_messages(client, topic):
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True, max_pending_messages=100)
    body = bytes(range(256)) * (12 << 12)  # 12 MiB: three chunks
    producer.send(body)
    producer.send(b"after")
    assert consumer.receive(RECEIVE_MS).data() == body
    assert consumer.receive(RECEIVE_MS).data() == b"after"


def test_a_message_over_the_limit_is_refused_by_name(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(6 << 20))
    producer.send(b"small")


def test_initial_positions_and_readers(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"m%d" % i) for i in range(10)]
    earliest = client.subscribe(topic, "earliest", initial_position=InitialPosition.Earliest)
    latest = client.subscribe(topic, "latest")
    assert [m.data() for m in receive_all(earliest, 10)] == [b"m%d" % i for i in range(10)]
    nothing_more(latest)
    reader = client.create_reader(topic, ids[4])
    assert reader.read_next(RECEIVE_MS).data() == b"m5"
    inclusive = client.create_reader(topic, ids[4], start_message_id_inclusive=True)
    assert inclusive.read_next(RECEIVE_MS).data() == b"m4"
    from_start = client.create_reader(topic, MessageId.earliest)
    count = 0
    while from_start.has_message_available():
        from_start.read_next(RECEIVE_MS)
        count += 1
    assert count == 10
    tail = client.create_reader(topic, MessageId.latest)
    assert not tail.has_message_available()
    producer.send(b"new")
    assert tail.read_next(RECEIVE_MS).data() == b"new"


def test_unacknowledged_messages_come_again_after_reconnect(client, topic):
    consumer = client.subscribe(topic, "sub", consumer_type=ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(10):
        producer.send(b"m%d" % i)
    got = receive_all(consumer, 10, ack=False)
    for i in (0, 2, 4, 6, 8):
        consumer.acknowledge(got[i])
    consumer.close()
    consumer = client.subscribe(topic, "sub", consumer_type=ConsumerType.Shared)
    assert [m.data() for m in receive_all(consumer, 5)] == [b"m1", b"m3", b"m5", b"m7", b"m9"]
    nothing_more(consumer)


def test_negative_acknowledgement_counts(client, topic):
    consumer = client.subscribe(topic, "sub", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"again")
    for expected in range(3):
        message = consumer.receive(RECEIVE_MS)
        assert (message.data(), message.redelivery_count()) == (b"again", expected)
        consumer.negative_acknowledge(message)
    consumer.acknowledge(consumer.receive(RECEIVE_MS))
    nothing_more(consumer)


def test_cumulative_acknowledgement(client, topic):
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(10):
        producer.send(b"m%d" % i)
    got = receive_all(consumer, 10, ack=False)
    consumer.acknowledge_cumulative(got[6])
    consumer.close()
    consumer = client.subscribe(topic, "sub")
    assert [m.data() for m in receive_all(consumer, 3)] == [b"m7", b"m8", b"m9"]


def test_seek_by_id_and_by_time(client, topic):
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"m%d" % i) for i in range(10)]
    receive_all(consumer, 10)
    consumer.seek(ids[3])
    assert consumer.receive(RECEIVE_MS).data() in (
        b"m3",
        b"m4",
    )  # whether the named message is included is the client's setting
    consumer.seek(MessageId.earliest)
    assert consumer.receive(RECEIVE_MS).data() == b"m0"
    consumer.seek(1)  # the first millisecond of 1970: everything is later
    assert consumer.receive(RECEIVE_MS).data() == b"m0"
    consumer.seek(MessageId.latest)
    nothing_more(consumer)


def test_exclusive_refuses_a_second_consumer(client, topic):
    client.subscribe(topic, "sub")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "sub")


def test_producer_names_are_unique(client, topic):
    client.create_producer(topic, producer_name="me")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="me")


def test_unsubscribe_forgets_the_position(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    consumer = client.subscribe(topic, "sub")
    producer.send(b"old")
    consumer.unsubscribe()
    consumer = client.subscribe(topic, "sub")
    nothing_more(consumer)


def test_last_message_id(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    consumer = client.subscribe(topic, "sub")
    last = [producer.send(b"x") for _ in range(5)][-1]
    found = consumer.get_last_message_id()
    assert (found.ledger_id(), found.entry_id()) == (last.ledger_id(), last.entry_id())


async def test_the_asyncio_client(broker, topic):
    from pulsar.asyncio import Client

    client = Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = await client.subscribe(topic, "sub")
    producer = await client.create_producer(topic)
    for i in range(20):
        await producer.send(b"m%d" % i)
    for i in range(20):
        message = await consumer.receive()
        assert message.data() == b"m%d" % i
        await consumer.acknowledge(message)
    await client.close()
