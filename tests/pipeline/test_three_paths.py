"""One topic of mixed messages, read through the broker, out of its ledger files, and by the official client: equal rows.

MAGNETAR_PIPELINE_MESSAGES sets the number of messages; a million take some minutes.
"""

import base64
import itertools
import os
import random

import pulsar
import pytest
from pulsar import CompressionType

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Header, Record
from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.connect_options import ConnectOptions
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.segments import SegmentMap, read_segment
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.pytest_plugin import BrokerProcess
from magnetar.storage.reading.data_directory import DataDirectory
from tests.blackbox import foreign

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
"""Messages of one codec: in batches, alone, chunked, out of Kafka."""
NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "managedLedgerMaxEntriesPerLedger": 3000,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
        "maxMessageSize": 65_536,
        "messageConverters": "kafka",
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings)
    publish(broker)
    yield broker
    broker.stop()


def publish(broker):
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    rng = random.Random(5)
    for number in range(max(1, MESSAGES // ROUND)):
        codec = CODECS[number % len(CODECS)]
        send(
            client,
            rng,
            700,
            batching_enabled=True,
            batching_max_publish_delay_ms=20,
            batching_max_allowed_size_in_bytes=50_000,
            compression_type=codec,
        )
        send(client, rng, 148, batching_enabled=False, compression_type=codec)
        send(client, rng, 2, size=150_000, batching_enabled=False, chunking_enabled=True, compression_type=codec)
        foreign.publish(broker, TOPIC, [kafka_entry(rng, 50, kind) for kind in (Codec.NONE, Codec.GZIP, Codec.ZSTD)])
    client.close()


def send(client, rng, count, size=0, **options):
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
        producer.send_async(rng.randbytes(size or 1 + k % 400), lambda *_: None, **more)
    producer.flush()
    producer.close()


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


def through_the_broker(broker, end):
    reader = RangeReader(ReadSettings(connect(broker)))
    return table(reader.chunks(ReadRange(TOPIC, -1, 0, end)), 0, end, Decoder())


def out_of_files(broker, log):
    """All ledgers, the open one too: the broker has stopped, so its file holds everything."""
    directory = DataDirectory(str(broker.data_dir))
    decoder = Decoder()
    for covered in SegmentMap(directory).covered(log, 0, log.end):
        piece = ReadRange(TOPIC, -1, covered.first, covered.end, covered.ledger_id)
        yield from table(read_segment(directory, piece, pytest.fail), covered.first, covered.end, decoder)


def connect(broker):
    return ConnectOptions.parse({"service.url": broker.url, "admin.url": broker.http_url})


def by_the_official_client(broker):
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
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
    }


@pytest.mark.timeout(60 + MESSAGES / 200)
def test_all_paths_give_the_same_rows(broker):
    log = Catalog(connect(broker).admin()).range(TOPIC, ledgers=True)
    digests = []
    theirs = by_the_official_client(broker)
    for row, message in itertools.zip_longest(through_the_broker(broker, log.end), theirs):
        assert row is not None
        assert in_the_clients_terms(row) == message
        digests.append(hash(repr(row)))
    assert len(digests) == MESSAGES // ROUND * ROUND
    broker.stop()
    count = 0
    for row, digest in itertools.zip_longest(out_of_files(broker, log), digests):
        assert row is not None
        assert hash(repr(row)) == digest, row
        count += 1
    assert count == len(digests)
