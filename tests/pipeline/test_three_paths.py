"""One topic of mixed messages, read through the broker, out of its ledger files, and by the official client: equal rows.

Batches, single messages, chunks of several producers side by side, encrypted, delayed and Avro messages in all codecs;
Kafka entries in all codecs and control records; tombstones, null keys and markers.
MAGNETAR_PIPELINE_MESSAGES sets the number of messages; a million take some minutes (`make spark-long`).
"""

import base64
import datetime as dt
import itertools
import os
import random

import pulsar
import pytest
from pulsar import CompressionType
from pulsar.schema import AvroSchema, Integer, String
from pulsar.schema import Record as AvroRecord

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Header, Record
from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.encryption_keys import open_decryption
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.segments import SegmentMap, read_segment
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.pytest_plugin import BrokerProcess
from magnetar.storage.reading.data_directory import DataDirectory
from tests.blackbox import foreign
from tests.pipeline import entries_for_tests as entries
from tests.pipeline.keys_for_tests import Keys

MESSAGES = int(os.environ.get("MAGNETAR_PIPELINE_MESSAGES", "8000"))
TOPIC = "persistent://public/default/mixed"
CODECS = (
    CompressionType.NONE,
    CompressionType.LZ4,
    CompressionType.ZLib,
    CompressionType.ZSTD,
    CompressionType.SNAPPY,
)
ROUND = 1000
"""Messages of one codec, of all kinds."""
NOW = 1_700_000_000_000


class Order(AvroRecord):
    id = Integer()
    name = String()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return Keys(folder), f"{folder}/private.pem"


@pytest.fixture(scope="module")
def broker(tmp_path_factory, keys):
    settings = {
        "managedLedgerMaxEntriesPerLedger": 3000,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
        "maxMessageSize": 65_536,
        "messageConverters": "kafka",
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings)
    publish(broker, keys[0])
    yield broker
    broker.stop()


def publish(broker, keys):
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    rng = random.Random(5)
    batches = {"batching_enabled": True, "batching_max_publish_delay_ms": 20}
    batches["batching_max_allowed_size_in_bytes"] = 50_000
    alone, chunked = {"batching_enabled": False}, {"batching_enabled": False, "chunking_enabled": True}
    secret = {"encryption_key": "app", "crypto_key_reader": keys}
    for number in range(max(1, MESSAGES // ROUND)):
        codec = {"compression_type": CODECS[number % len(CODECS)]}
        send(client, rng, 480, **batches, **codec)
        send(client, rng, 166, **alone, **codec)
        send(client, rng, 3, size=150_000, **chunked, **codec)
        send(client, rng, 20, deliver_after=dt.timedelta(days=1), **batches, **codec)
        send(client, rng, 60, **batches, **codec, **secret)
        send(client, rng, 19, **alone, **codec, **secret)
        send(client, rng, 1, size=150_000, **chunked, **codec, **secret)
        orders = client.create_producer(TOPIC, schema=AvroSchema(Order), **batches, **codec)
        for k in range(40):
            orders.send_async(Order(id=k, name=None if k % 3 else "ü" * k), lambda *_: None)
        orders.flush()
        orders.close()
        foreign.publish(broker, TOPIC, by_hand(rng, number))
    client.close()


def send(client, rng, count, size=0, deliver_after=None, **options):
    producer = client.create_producer(TOPIC, block_if_queue_full=True, **options)
    for k in range(count):
        more = {}
        if k % 2:
            more["partition_key"] = f"key-{k % 37}"
        if k % 3 == 0:
            more["properties"] = {"n": str(k), "text": "ü" * (k % 5)}
        if k % 5 == 0:
            more["event_timestamp"] = NOW + k
        if k % 7 == 0:
            more["ordering_key"] = f"o{k}"
        data = rng.randbytes(size or 1 + k % 400)
        producer.send_async(data, lambda *_: None, deliver_after=deliver_after, **more)
    producer.flush()
    producer.close()


def by_hand(rng, number):
    """Entries that no official client writes; 211 messages of them have a row."""
    found = [kafka_entry(rng, 40, codec) for codec in Codec]
    control = [Record(0, NOW, b"\0\0\0\1", b"\0\0\0\0\0\0")]
    options = BatchOptions(control=True, transactional=True, producer_id=7, producer_epoch=0)
    found.append((foreign.foreign_entry(build_record_batch(control, options), "kafka", 1), 1))
    found.append(entries.plain(b"", null_value=True, partition_key="gone"))
    found.append(entries.plain(b"no key", partition_key="", null_partition_key=True))
    found.append(entries.plain(b"a marker", marker_type=10))
    kept = [entries.single(b"kept %d" % k, partition_key=f"k{k}") for k in range(5)]
    null = [entries.single(b"", null_value=True, partition_key=f"k{k}") for k in range(2)]
    codec = (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY)[number % 5]
    found.append((entries.batch([*kept, *null], codec=codec), 7))
    # Two producers, whose chunks come in turns.
    sizes = [30_000, 30_000]
    sides = [entries.chunks(rng.randbytes(70_000), sizes, uuid=f"{side}-{number}", codec=codec) for side in "ab"]
    found.extend(itertools.chain.from_iterable(zip(*sides, strict=True)))
    return found


def kafka_entry(rng, count, codec):
    records = [
        Record(
            k,
            NOW + k,
            b"kafka-%d" % k if k % 2 else None,
            rng.randbytes(k) if k % 9 else None,
            (Header("h", b"%d" % k),),
        )
        for k in range(count)
    ]
    data = build_record_batch(records, BatchOptions(codec=codec))
    return foreign.foreign_entry(data, "kafka", count, publish_time=NOW, producer_name="kafka"), count


def table(chunks, start, end, decoder):
    for chunk in chunks:
        for batch in decoder.decode(chunk, start, end):
            yield from batch.to_pylist()
    assert not decoder.quarantine.counts


def through_the_broker(broker, end, decrypting):
    reader = RangeReader(ReadSettings(connect(broker)))
    return table(reader.chunks(ReadRange(TOPIC, -1, 0, end)), 0, end, Decoder(decrypting=decrypting))


def out_of_files(broker, log, decrypting):
    """The rows of all ledgers, the last ledger included: the broker has stopped, so ledger files have every entry."""
    directory = DataDirectory(str(broker.data_dir))
    decoder = Decoder(decrypting=decrypting)
    for covered in SegmentMap(directory).covered(log, 0, log.end):
        piece = ReadRange(TOPIC, -1, covered.first, covered.end, covered.ledger_id)
        yield from table(read_segment(directory, piece, pytest.fail), covered.first, covered.end, decoder)


def connect(broker):
    return ConnectOptions.parse({"service.url": broker.url, "admin.url": broker.http_url})


def by_the_official_client(broker, keys):
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, crypto_key_reader=keys)
    while reader.has_message_available():
        message = reader.read_next(30_000)
        key = message.partition_key()
        yield {
            "value": message.data(),
            "key": base64.b64decode(key).decode() if key.startswith("a2Fma2Et") else key,  # kafka-...
            "ordering": message.ordering_key(),
            "id": message.message_id().serialize(),
            "publish": message.publish_timestamp(),
            "event": message.event_timestamp(),
            "properties": message.properties(),
            "producer": message.producer_name(),
            "schema": message.schema_version().encode(),
            "null": message.has_null_value(),
        }
    client.close()


def in_the_clients_terms(row):
    event = row["__eventTime"]
    return {
        "value": row["value"] or b"",
        "key": (row["__key"] or b"").decode(),
        "ordering": (row["__orderingKey"] or b"").decode(),
        "id": row["__messageId"],
        "publish": round(row["__publishTime"].timestamp() * 1000),
        "event": 0 if event is None else round(event.timestamp() * 1000),
        "properties": dict(row["__messageProperties"]),
        "producer": row["__producerName"],
        "schema": row["__schemaVersion"] or b"",
        "null": row["__nullValue"],
    }


@pytest.mark.timeout(60 + MESSAGES / 200)
def test_all_paths_give_the_same_rows(broker, keys):
    decrypting = open_decryption((("", keys[1]),))
    log = Catalog(connect(broker).admin()).range(TOPIC, ledgers=True)
    digests = []
    theirs = by_the_official_client(broker, keys[0])
    for row, message in itertools.zip_longest(through_the_broker(broker, log.end, decrypting), theirs):
        assert row is not None
        assert in_the_clients_terms(row) == message
        digests.append(hash(repr(row)))
    assert len(digests) == MESSAGES // ROUND * ROUND
    broker.stop()
    count = 0
    for row, digest in itertools.zip_longest(out_of_files(broker, log, decrypting), digests):
        assert row is not None
        assert hash(repr(row)) == digest, row
        count += 1
    assert count == len(digests)
