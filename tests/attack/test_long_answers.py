"""Answers about thousands of topics, and large texts of many WebSocket sessions that end together."""

import base64
import json
import os
import socket
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.attack.conftest import http
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame
from tests.waiting import wait_for

PARTITIONS = 2000
PEERS = 60
PRODUCERS = 8000
MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait of one PING."""
MIB = 1 << 20


@pytest.mark.parametrize("path", ["/metrics", "/admin/v2/persistent/public/default/{}/partitioned-stats"])
def test_answers_about_all_topics_that_peers_do_not_read(new_broker, request, path):
    """Each of them held the figures of all topics: 16 of 10,000 topics 800 MiB, and a PING waited for 1.4 s."""
    broker = new_broker(pings=False)
    name = request.node.name.partition("[")[0]
    topic = f"/admin/v2/persistent/public/default/{name}"
    assert http(broker, "PUT", topic + "/partitions", b"%d" % PARTITIONS)[0] == 204
    assert http(broker, "GET", topic + "/partitioned-stats?perPartition=false")[0] == 200  # loads the partitions
    address = urllib.parse.urlsplit(broker.http)
    before, peers = broker.rss_bytes, []
    with HonestClient(broker) as honest:
        for _ in range(PEERS):
            peers.append(socket.create_connection((address.hostname, address.port), 60))
            peers[-1].sendall(f"GET {path.format(name)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert peers[0].recv(1) == b"H"
        for _ in range(10):
            assert http(broker, "GET", "/status")[0] == 200
        answered = honest.answered
        while honest.answered < answered + 100:
            assert http(broker, "GET", "/status")[0] == 200
    assert broker.rss_bytes - before < 80 * MIB
    for peer in peers:
        peer.close()
    assert http(broker, "GET", path.format(name))[0] == 200
    assert broker.stop() == 0


def test_statistics_of_producers_with_much_metadata(new_broker, topic):
    """The rows of 900 producers were encoded in one turn: a PING waited for 0.3 s, with more producers for seconds."""
    broker = new_broker(pings=False, keepAliveIntervalSeconds=600)
    path = "/admin/v2/" + topic.replace("://", "/")
    assert http(broker, "PUT", path + "/partitions", b"2")[0] == 204
    metadata = [pb.KeyValue(key="k", value="\x01" * 60_000)]
    peers = [RawPeer(broker.url) for _ in range(2)]
    for number in range(400):
        part = f"{topic}-partition-{number % 2}"
        found = peers[number % 2].ask("PRODUCER", "producer", topic=part, producer_id=number, metadata=metadata)
        assert found.type == pb.BaseCommand.PRODUCER_SUCCESS, found
    before = broker.rss_bytes
    with HonestClient(broker) as honest:
        for _ in range(2):
            for each in ("-partition-0/stats", "/partitioned-stats"):
                assert http(broker, "GET", path + each)[0] == 429
                assert http(broker, "GET", path + each + "?excludePublishers=true")[0] == 200
            assert http(broker, "GET", "/admin/v2/broker-stats/topics")[0] == 200
    assert honest.busiest_s < 0.1, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.rss_bytes - before < 200 * MIB
    for peer in peers:
        peer.close()
    assert broker.stop() == 0


def test_statistics_of_a_topic_with_thousands_of_producers(new_broker, topic):
    """The producers were gathered in one turn for each request: a PING waited for 0.6 s of processor time."""
    broker = new_broker(pings=False, keepAliveIntervalSeconds=600)
    peer, path = RawPeer(broker.url), "/admin/v2/" + topic.replace("://", "/")
    for start in range(0, PRODUCERS, 500):
        numbers = range(start, start + 500)
        peer.write(b"".join(frame(opened(topic, number)) for number in numbers))
        assert all(peer.receive().type == pb.BaseCommand.PRODUCER_SUCCESS for _ in numbers)
    address = urllib.parse.urlsplit(broker.http)
    before, readers = broker.cpu_seconds, []
    with HonestClient(broker) as honest:
        wait_for(lambda: honest.answered)
        for _ in range(PEERS):
            readers.append(socket.create_connection((address.hostname, address.port), 60))
            readers[-1].sendall(f"GET {path}/stats HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_for(lambda: broker.cpu_seconds - before > 1, 60, "the work of the broker")
        pings = honest.answered
        wait_for(lambda: honest.answered > pings + 1)
    for each in readers:
        each.close()
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    peer.close()
    assert broker.stop() == 0


def opened(topic, number):
    return command("PRODUCER", "producer", topic=topic, producer_id=number, request_id=number)


def masked(opcode, data):
    return bytes([0x80 | opcode, 0x80 | 127]) + len(data).to_bytes(8, "big") + bytes(4) + data


def test_large_texts_of_many_sessions_that_end_together(new_broker, topic):
    """Each text took 0.1 s, and those of all sessions came in one round of the event loop: a PING waited for 5 s."""
    broker = new_broker(pings=False, webSocketServiceEnabled="true", maxClientMemoryInMB=2048)
    address, sessions = urllib.parse.urlsplit(broker.http), []
    path = "/ws/v2/producer/" + topic.replace("://", "/")
    properties = {f"{number}": "" for number in range(70_000)}
    text = masked(1, json.dumps({"payload": "", "properties": properties}).encode())
    for _ in range(PEERS):
        peer = socket.create_connection((address.hostname, address.port), 60)
        key = base64.b64encode(os.urandom(16)).decode()
        peer.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert peer.recv(4096).startswith(b"HTTP/1.1 101")
        peer.sendall(text[:-10])
        sessions.append(peer)
    with HonestClient(broker) as honest:
        for peer in sessions:
            peer.sendall(text[-10:])
        for peer in sessions:
            assert b"ok" in peer.recv(4096)
    assert honest.busiest_s < 0.6, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    for peer in sessions:
        peer.close()
    assert broker.stop() == 0
