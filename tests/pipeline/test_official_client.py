"""Rows out of a broker process's log equal the messages that the official client reads from it."""

import json
import random
import urllib.request

import pulsar
import pytest
from pulsar import BatchingType, CompressionType
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema

PAYLOAD = b"0123456789" * 30


@pytest.fixture
def client(log_broker):
    client = pulsar.Client(log_broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def table(broker, topic, start=0, end=None, **options):
    """All rows of a range of the topic, through the decoder."""
    settings = ReadSettings(ConnectOptions.parse({"service.url": broker.url, "admin.url": broker.http_url}))
    if end is None:
        end = Catalog(settings.connect.admin()).range(topic, ledgers=True).end
    reader = RangeReader(settings)
    decoder = Decoder(look_back=reader.look_back, **options)
    rows = []
    for chunk in reader.chunks(ReadRange(topic, -1, start, end)):
        for batch in decoder.decode(chunk, start, end):
            rows += batch.to_pylist()
    assert not decoder.quarantine.counts
    return rows


def as_read(client, topic):
    """The same topic as the official client's reader gives it."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = []
    while reader.has_message_available():
        messages.append(reader.read_next(10_000))
    reader.close()
    return [
        {
            "value": message.data(),
            "__key": message.partition_key().encode() or None,
            "__topic": message.topic_name(),
            "__messageId": message.message_id().serialize(),
            "publish": message.publish_timestamp(),
            "event": message.event_timestamp(),
            "__messageProperties": message.properties(),
            "__orderingKey": message.ordering_key().encode() or None,
        }
        for message in messages
    ]


def comparable(row):
    """A row in the client's terms."""
    kept = {name: row[name] for name in ("value", "__key", "__topic", "__messageId", "__orderingKey")}
    event = row["__eventTime"]
    return {
        **kept,
        "publish": round(row["__publishTime"].timestamp() * 1000),
        "event": 0 if event is None else round(event.timestamp() * 1000),
        "__messageProperties": dict(row["__messageProperties"]),
    }


def publish(client, topic, count, **options):
    producer = client.create_producer(topic, **options)
    for k in range(count):
        more = [
            {},
            {"partition_key": f"key-{k}"},
            {"properties": {"a": str(k), "empty": ""}, "event_timestamp": 1_700_000_000_000 + k},
            {"ordering_key": "o", "partition_key": "ü"},
        ][k % 4]
        producer.send_async(PAYLOAD[: 1 + k * 7 % 300], lambda *_: None, **more)
    producer.flush()
    producer.close()


def test_rows_are_the_official_readers_messages(log_broker, client, fresh_topic):
    for codec in (
        CompressionType.NONE,
        CompressionType.LZ4,
        CompressionType.ZLib,
        CompressionType.ZSTD,
        CompressionType.SNAPPY,
    ):
        publish(client, fresh_topic, 9, batching_enabled=False, compression_type=codec)
        publish(
            client, fresh_topic, 21, batching_enabled=True, batching_max_publish_delay_ms=500, compression_type=codec
        )
    publish(
        client,
        fresh_topic,
        12,
        batching_enabled=True,
        batching_type=BatchingType.KeyBased,
        batching_max_publish_delay_ms=500,
    )
    rows = table(log_broker, fresh_topic)
    assert [comparable(row) for row in rows] == as_read(client, fresh_topic)
    assert [row["__index"] for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_chunked_messages_too(log_broker, client, fresh_topic, codec):
    producer = client.create_producer(
        fresh_topic, batching_enabled=False, chunking_enabled=True, max_pending_messages=1000, compression_type=codec
    )
    payload = bytes(range(256)) * 50_000 if codec == CompressionType.NONE else random_bytes(12_000_000)
    producer.send(b"before")
    producer.send(payload, partition_key="k", properties={"p": "1"})
    producer.send(b"behind")
    rows = table(log_broker, fresh_topic)
    assert [comparable(row) for row in rows] == as_read(client, fresh_topic)
    index = rows[1]["__index"]
    assert index > 2
    assert table(log_broker, fresh_topic, index, index + 1) == [rows[1]], "found by looking back"
    assert table(log_broker, fresh_topic, 0, index) == [rows[0]]


def random_bytes(n):
    return random.Random(1).randbytes(n)


class First(Record):
    id = Integer()
    name = String()


class Second(Record):
    id = Integer()
    city = String(required_default=True)
    name = String()


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_values_follow_the_schema_as_it_evolves(log_broker, client, fresh_topic, kind):
    for record, more in ((First, {}), (Second, {"city": "Osaka"})):
        producer = client.create_producer(fresh_topic, schema=kind(record), batching_enabled=record is Second)
        for k in range(5):
            producer.send(record(id=k, name=None if k % 2 else f"n{k}", **more))
        producer.close()
    path = f"{log_broker.http_url}/admin/v2/schemas/{fresh_topic.removeprefix('persistent://')}/schema"
    schemas = [TopicSchema.from_admin(asked(f"{path}/{version}")) for version in (0, 1)]
    decoder = value_decoder(TopicSchema.from_admin(asked(path)), dict(enumerate(schemas)).get)
    rows = table(log_broker, fresh_topic, value=decoder, columns=["id", "name", "city", "__schemaVersion"])
    expected = [
        {
            "id": k,
            "name": None if k % 2 else f"n{k}",
            "city": city,
            "__schemaVersion": version.to_bytes(8, "big"),
        }
        for version, city in ((0, None), (1, "Osaka"))
        for k in range(5)
    ]
    assert [{name: row[name] for name in expected[0]} for row in rows] == expected


def asked(url):
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)
