"""Converted entries as the official client (C++ core) reads them, served by a scripted peer instead of a broker."""

import pathlib
import socketserver
import struct
import threading

import pulsar
import pytest

from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.records import Header, Record
from magnetar.converters.kafka_entry.converter import KafkaConverter
from magnetar.converters.kafka_entry.planning import plan_entry
from magnetar.protocol import pulsar_api_pb2 as pb

pytestmark = pytest.mark.blackbox
FOLDER = pathlib.Path(__file__).parents[1] / "vectors" / "kafka"


class Peer(socketserver.StreamRequestHandler):
    """Answers the requests of a consumer and pushes the server's entries to it after its first FLOW."""

    def handle(self):
        while head := self.rfile.read(8):
            total, size = struct.unpack(">II", head)
            body = self.rfile.read(total - 4)
            self.answer(pb.BaseCommand.FromString(body[:size]))

    def answer(self, command):
        kind = pb.BaseCommand.Type
        if command.type == kind.CONNECT:
            self.send(kind.CONNECTED, connected=pb.CommandConnected(server_version="scripted", protocol_version=19))
        elif command.type == kind.PARTITIONED_METADATA:
            response = pb.CommandPartitionedTopicMetadataResponse(
                request_id=command.partitionMetadata.request_id,
                partitions=0,
                response=pb.CommandPartitionedTopicMetadataResponse.Success,
            )
            self.send(kind.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response)
        elif command.type == kind.LOOKUP:
            response = pb.CommandLookupTopicResponse(
                request_id=command.lookupTopic.request_id,
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=f"pulsar://127.0.0.1:{self.server.server_address[1]}",
                authoritative=True,
            )
            self.send(kind.LOOKUP_RESPONSE, lookupTopicResponse=response)
        elif command.type == kind.SUBSCRIBE:
            self.send(kind.SUCCESS, success=pb.CommandSuccess(request_id=command.subscribe.request_id))
        elif command.type == kind.FLOW:
            self.push(command.flow.consumer_id)
        elif command.type == kind.PING:
            self.send(kind.PONG, pong=pb.CommandPong())
        elif command.type == kind.CLOSE_CONSUMER:
            self.send(kind.SUCCESS, success=pb.CommandSuccess(request_id=command.close_consumer.request_id))

    def push(self, consumer_id):
        entries, self.server.entries = self.server.entries, []
        for entry_id, (data, ack_set) in enumerate(entries):
            message = pb.CommandMessage(consumer_id=consumer_id, ack_set=ack_set)
            message.message_id.ledgerId, message.message_id.entryId = 1, entry_id
            self.send(pb.BaseCommand.MESSAGE, data, message=message)

    def send(self, kind, payload=b"", **fields):
        command = pb.BaseCommand(type=kind, **fields).SerializeToString()
        self.wfile.write(struct.pack(">II", 4 + len(command) + len(payload), len(command)) + command + payload)
        self.wfile.flush()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    entries: list = []  # noqa: RUF012 - set for each test


@pytest.fixture
def receive():
    """receive(entries, n): the n messages an official consumer gets when these entries are pushed."""
    with Server(("127.0.0.1", 0), Peer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(f"pulsar://127.0.0.1:{server.server_address[1]}", logger=logger)

        def receive(entries, count):
            server.entries = entries
            consumer = client.subscribe("converted", "s")
            return [consumer.receive(timeout_millis=10_000) for _ in range(count)]

        yield receive
        client.shutdown()
        server.shutdown()
        thread.join()


def converted(record_set):
    """A converted entry and the ack set a broker sends with it: bits of holes are cleared."""
    planned = plan_entry(record_set, publish_time=1_700_000_000_000, producer_name="kafka")
    chain = ConverterChain([loaded(KafkaConverter())])
    result = chain.convert(planned.data, chain.select(planned.data))
    if not result.holes:
        return result.entry, []
    bits = sum(1 << index for index in range(result.messages) if index not in result.holes)
    words = [bits >> shift & (1 << 64) - 1 for shift in range(0, result.messages, 64)]
    return result.entry, [word - (1 << 64) if word >> 63 else word for word in words]


RECORDS = [
    Record(10, 1_700_000_000_000, b"key", b"value", (Header("h", b"x"), Header("g", b"y"))),
    Record(11, -1, None, b""),
    Record(12, 5, b"\xff\x00", None, (Header("bin", b"\xfe"),)),
]


@pytest.mark.parametrize("codec", Codec)
def test_keys_values_headers_and_times(receive, codec):
    got = receive([converted(build_record_batch(RECORDS, BatchOptions(codec=codec)))], 3)
    assert [message.data() for message in got] == [b"value", b"", b""]
    assert [message.partition_key() for message in got] == ["a2V5", "", "/wA="]
    # The Python client can only show ordering keys that are text.
    assert [message.ordering_key() for message in got[:2]] == ["key", ""]
    assert [message.event_timestamp() for message in got] == [1_700_000_000_000, 0, 5]
    assert [message.properties() for message in got] == [
        {"h": "x", "g": "y"},
        {},
        {"bin": "/g==", "__kafka.header.b64": "0"},
    ]
    assert [message.message_id().batch_index() for message in got] == [0, 1, 2]


def test_large_entries_arrive_compressed(receive):
    records = [Record(n, 5, b"k", b"%d " % n * 400) for n in range(200)]
    entry = converted(build_record_batch(records, BatchOptions(codec=Codec.GZIP)))
    assert len(entry[0]) < 100_000
    assert [message.data() for message in receive([entry], 200)] == [record.value for record in records]


def test_holes_are_passed_over_by_the_ack_set(receive):
    sparse = build_record_batch([Record(offset, 5, None, b"%d" % offset) for offset in (0, 3, 70)])
    control = build_record_batch([Record(71, 5, b"\0\0\0\1", b"")], BatchOptions(control=True))
    last = build_message_set([Record(72, 5, None, b"72")], 1)
    got = receive([converted(sparse + control), converted(last)], 4)
    assert [(message.data(), message.message_id().batch_index()) for message in got] == [
        (b"0", 0),
        (b"3", 3),
        (b"70", 70),
        (b"72", 0),
    ]


@pytest.mark.parametrize(
    "name", ["java_m0_lz4", "java_m1_gzip_logappend", "java_m2_zstd_create", "m1_snappy_raw_no_xerial"]
)
def test_recorded_sets(receive, name):
    got = receive([converted((FOLDER / f"{name}.bin").read_bytes())], 4)
    assert [message.data() for message in got] == [b"value zero", b"v1", b"", b""]
