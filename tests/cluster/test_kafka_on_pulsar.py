"""A topic that Kafka-on-Pulsar left behind in BookKeeper, taken over by this broker (docs/features/converters.md).

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (about 250 MB; part of `make cluster`).
"""

from __future__ import annotations

import pathlib
import struct
import subprocess
import sys

import pulsar
import pytest
import requests
from pyarrow.parquet import ParquetFile

from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.creation import NewMessage, OffsetAssigner, create_record_set
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, command, frame
from tests.cluster.broker_processes import Member, connect
from tests.cluster.conftest import LONG
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker, initialize_by_pulsar

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
TOPIC = "persistent://public/default/orders"
PARTITION = f"{TOPIC}-partition-0"
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
EACH = 4


def kop_entry(record_set, span):
    """The bytes that Kafka-on-Pulsar stores: without the mark of a checksum and without a producer's name."""
    metadata = pb.MessageMetadata(producer_name="", sequence_id=0, publish_time=1_700_000_000_000)
    metadata.num_messages_in_batch = span
    metadata.properties.add(key="entry.format", value="kafka")
    raw = metadata.SerializeToString()
    return struct.pack(">I", len(raw)) + raw + record_set


def written_by_kafka_on_pulsar(broker):
    """Record batches of each codec; those of one record too."""
    requests.put(f"{broker.http}/admin/v2/persistent/public/default/orders/partitions", json=1, timeout=60)
    client = connect(broker)
    client.subscribe(TOPIC, "before").close()  # the client would crash on an entry
    client.close()
    peer = RawPeer(broker.url)
    peer.find(PARTITION)
    peer.ask("PRODUCER", "producer", topic=PARTITION, producer_id=1)
    offset = 0
    for codec in CODECS:
        for span in (EACH, 1):
            messages = [
                NewMessage(b"k%d" % (n % 3), b"v%d" % n, 1_700_000_000_000 + n) for n in range(offset, offset + span)
            ]
            record_set = create_record_set(messages, OffsetAssigner.sequential(offset), codec=codec)
            send = command("SEND", "send", producer_id=1, sequence_id=0, num_messages=span)
            peer.write(frame(send, kop_entry(record_set, span)))
            assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
            offset += span
    return offset


def pipeline(broker, *arguments):
    command_line = [sys.executable, "-m", "magnetar", "pipeline", *arguments]
    command_line += ["--service-url", broker.url, "--admin-url", broker.http, "--master", "none"]
    return subprocess.run(command_line, capture_output=True, text=True, timeout=300, check=False)


def test_entries_of_kafka_on_pulsar_reach_every_client(cluster, tmp_path_factory):
    directory = pathlib.Path(tmp_path_factory.mktemp("kop"))
    initialize_by_pulsar(cluster)
    theirs = PulsarBroker(directory, "pulsar", cluster.zookeeper, **MORE)
    ours = Member(directory, "ours", cluster.zookeeper, **MORE, messageConverters="kafka")
    try:
        theirs.start()
        count = written_by_kafka_on_pulsar(theirs)
        theirs.end()
        ours.start()
        client = connect(ours)
        for name in ("before", "after"):
            consumer = client.subscribe(TOPIC, name, initial_position=pulsar.InitialPosition.Earliest)
            found = [consumer.receive(30_000) for _ in range(count)]
            assert [each.data() for each in found] == [b"v%d" % n for n in range(count)]
            assert [each.event_timestamp() for each in found] == [1_700_000_000_000 + n for n in range(count)]
            assert [each.ordering_key() for each in found] == [f"k{n % 3}" for n in range(count)]
            for message in found:
                consumer.acknowledge(message)
            consumer.close()
        stats = requests.get(f"{ours.http}/admin/v2/persistent/public/default/orders-partition-0/stats", timeout=60)
        assert {name: each["msgBacklog"] for name, each in stats.json()["subscriptions"].items()} == {
            "before": 0,
            "after": 0,
        }
        client.create_producer(TOPIC).send(b"native")
        client.close()
        made = pipeline(ours, "export", "--topic", TOPIC, "--table", str(directory / "table"), "--format", "parquet")
        assert made.returncode == 0, made.stderr
        parts = [
            ParquetFile(path).read(["__index", "value"]).to_pydict() for path in directory.glob("table/**/*.parquet")
        ]
        rows = sorted(row for part in parts for row in zip(part["__index"], part["value"], strict=True))
        assert rows == [*((n, b"v%d" % n) for n in range(count)), (count, b"native")]
        audit = pipeline(ours, "audit", "--topic", TOPIC)
        assert audit.returncode == 0, audit.stdout + audit.stderr
    finally:
        for each in (theirs, ours):
            each.end()
