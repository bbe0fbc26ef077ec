"""Data that the broker keeps for topics, subscriptions and watchers must not grow with the texts of hostile clients."""

import json
import socket
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.attack.conftest import MIB, connect, http
from tests.blackbox.conftest import new_broker  # noqa: F401 - the fixture
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import command, frame, send

NAMESPACE = "public/default"
TOPIC = f"persistent://{NAMESPACE}/t"


@pytest.fixture
def new_writer(secured):
    """Return a connection of a role that may produce and consume in the namespace."""
    path = f"/admin/v2/namespaces/{NAMESPACE}/permissions/writer"
    assert http(secured.broker, "POST", path, json.dumps(["produce", "consume"]).encode(), "admin")[0] == 204
    peers = []

    def new():
        peers.append(connect(secured.broker.url, "writer"))
        return peers[-1]

    yield new
    for peer in peers:
        peer.close()


def test_chunks_with_uuids_of_a_megabyte(secured, new_writer):
    """A Shared subscription kept the uuids of a thousand unfinished messages: 600 of them cost 576 MiB."""
    count = 200
    writer, reader = new_writer(), new_writer()
    writer.producer(TOPIC)
    reader.subscribe(TOPIC, permits=count)
    with secured.watch() as watch:
        for number in range(count):
            uuid = f"{number}" + "u" * (MIB - 1000)
            writer.write(send(1, number, uuid=uuid, chunk_id=0, num_chunks_from_msg=3, total_chunk_msg_size=9))
            assert writer.receive().type == pb.BaseCommand.SEND_RECEIPT
            assert reader.receive().type == pb.BaseCommand.MESSAGE
    secured.unharmed(watch, most_mib=112)


def heavy_pattern(number):
    return rf"(?:\pL|\pN|\pS){{20}}|{number}"


def test_a_thousand_watchers_of_large_patterns(secured, new_writer):
    """A connection had 240 MiB of patterns, and a PING waited for 0.7 s while the broker compiled 64 of them."""
    watcher = new_writer()
    commands = [
        command("WATCH_TOPIC_LIST", "watchTopicList", topics_pattern=heavy_pattern(n), request_id=n, watcher_id=n)
        for n in range(1000)
    ]
    for each in commands:
        each.watchTopicList.namespace = NAMESPACE
    with secured.watch() as watch:
        watcher.write(b"".join(map(frame, commands)))
        answers = [watcher.receive() for _ in commands]
    refused = [answer for answer in answers if answer.type != pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS]
    assert len(refused) < 950
    assert {answer.error.error for answer in refused} == {pb.TooManyRequests}
    secured.unharmed(watch, most_mib=80)


def test_hundreds_of_web_sockets_with_large_patterns(new_broker):  # noqa: F811
    """A PING waited for 1.5 s of processor time while the broker compiled the patterns of all sessions in a round."""
    broker = new_broker(pings=False, webSocketServiceEnabled="true")
    address = urllib.parse.urlsplit(broker.http)
    peers = [socket.create_connection((address.hostname, address.port), 60) for _ in range(150)]
    with HonestClient(broker) as honest:
        for number, peer in enumerate(peers):
            pattern = urllib.parse.quote(f"persistent://{NAMESPACE}/{heavy_pattern(number)}", safe="")
            peer.sendall(
                f"GET /ws/v3/consumer/s?topicsPattern={pattern} HTTP/1.1\r\nHost: localhost\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
            )
        for peer in peers:
            assert peer.recv(64).startswith(b"HTTP/1.1 ")
    for peer in peers:
        peer.close()
    assert honest.answered
    assert honest.busiest_s < 0.4
    assert broker.stop() == 0


def test_large_schemas_for_clients_that_do_not_read(secured, new_writer):
    """A hundred connections with 60 small requests each made the broker hold 3.5 GB of answers."""
    writer = new_writer()
    writer.producer(TOPIC)
    fields = [{"name": "a", "type": "string"}]
    text = json.dumps({"type": "record", "name": "R", "doc": "x" * (MIB - 1000), "fields": fields}).encode()
    schema = pb.Schema(name="s", type=pb.Schema.Avro, schema_data=text)
    assert not writer.ask(
        "GET_OR_CREATE_SCHEMA", "getOrCreateSchema", topic=TOPIC, schema=schema
    ).getOrCreateSchemaResponse.HasField("error_code")
    requests = b"".join(
        frame(command("GET_SCHEMA", "getSchema", topic=TOPIC, request_id=number)) for number in range(60)
    )
    readers = [new_writer() for _ in range(40)]
    with secured.watch() as watch:
        for reader in readers:
            reader.write(requests)
        for reader in readers:
            assert reader.socket.recv(1, socket.MSG_PEEK)
    secured.unharmed(watch, most_mib=128)
