"""Peers that misbehave: their neighbours go on unharmed, the broker's memory stays bounded."""

import os
import struct
import time

import pulsar
import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import quiet_client
from tests.blackbox.raw import RawPeer, command, frame, lookup, send

MIB = 1 << 20


class Neighbour:
    """An official client that produces and consumes; `is_well` tells whether each message is still delivered."""

    def __init__(self, broker, topic):
        self.client = quiet_client(broker.url)
        self.consumer = self.client.subscribe(topic + "-neighbour", "sub")
        self.producer = self.client.create_producer(topic + "-neighbour")
        self._sent = 0

    def check(self, count=20):
        for _ in range(count):
            self._sent += 1
            self.producer.send(b"%d" % self._sent)
            message = self.consumer.receive(20_000)
            assert int(message.data()) == self._sent
            self.consumer.acknowledge(message)

    def close(self):
        self.client.close()


@pytest.fixture
def small(new_broker, topic):
    """A broker with little room, and its neighbour."""
    broker = new_broker(managedLedgerCacheSizeMB=8, maxMessagePublishBufferSizeInMB=16)
    neighbour = Neighbour(broker, topic)
    neighbour.check()
    yield broker, neighbour
    neighbour.check()
    neighbour.close()
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0


def test_a_consumer_that_never_reads(small, topic):
    broker, neighbour = small
    peer = RawPeer(broker.url)
    peer.producer(topic)
    deaf = [RawPeer(broker.url, receive_buffer=4096) for _ in range(5)]
    for number, each in enumerate(deaf):
        each.subscribe(topic, subscription=f"deaf-{number}", permits=1_000_000)
    before = broker.rss_bytes
    for number in range(600):  # 60 MB, to each of five
        peer.write(send(1, number, os.urandom(100_000)))
        assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    neighbour.check()
    assert broker.rss_bytes < before + 64 * MIB
    for each in (peer, *deaf):
        each.close()


def test_two_hundred_announce_five_mebibytes_and_send_nothing(small):
    broker, neighbour = small
    before = broker.rss_bytes
    peers = [RawPeer(broker.url) for _ in range(200)]
    for peer in peers:
        peer.write(struct.pack(">II", 5 * MIB, 20) + b"\x08\x06")
    neighbour.check()
    assert broker.rss_bytes < before + 64 * MIB
    for peer in peers:
        peer.close()


def test_half_a_frame_and_then_the_end(small):
    broker, neighbour = small
    data = frame(command("CONNECT", "connect", client_version="raw", protocol_version=21))
    for cut in range(len(data)):
        peer = RawPeer(broker.url, handshake=False)
        peer.write(data[:cut])
        peer.close()
    neighbour.check()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\xff" * 5000,
        struct.pack(">II", 1 << 30, 10),
        struct.pack(">II", 8, 100) + b"\x00" * 4,
        struct.pack(">II", 14, 10) + b"\xff" * 10,
        send(99, 0),
    ],
    ids=["http", "ones", "huge", "size-beyond-frame", "no-command", "unknown-producer"],
)
@pytest.mark.parametrize("handshake", [False, True])
def test_garbage_closes_its_connection_only(broker, topic, data, handshake):
    neighbour = Neighbour(broker, topic)
    peer = RawPeer(broker.url, handshake=handshake)
    peer.write(data)
    assert peer.is_closed()
    neighbour.check(5)
    neighbour.close()
    peer.close()


def test_lookups_without_reading_the_answers(small, topic):
    broker, neighbour = small
    before = broker.rss_bytes
    peers = [RawPeer(broker.url, receive_buffer=4096) for _ in range(4)]
    flood = b"".join(lookup(number, topic) for number in range(1000))
    for peer in peers:
        peer.write_until_stuck(flood, seconds=0.5, most_bytes=32 * MIB)
    neighbour.check()
    assert broker.rss_bytes < before + 64 * MIB
    for peer in peers:
        peer.close()


def test_producers_at_the_limit_of_pending_publishes(small, topic):
    broker, neighbour = small
    before = broker.rss_bytes
    peers = [RawPeer(broker.url, receive_buffer=4096) for _ in range(20)]
    body = os.urandom(10_000)
    for number, peer in enumerate(peers):
        peer.producer(f"{topic}-{number % 4}")
    flood = b"".join(send(1, number, body) for number in range(300))
    for peer in peers:
        peer.write(flood)
    neighbour.check()
    read_bytes = 2 * len(peers) * MIB  # a receive buffer and the run of its last read, of each connection
    cached, pending, unwritten, direct = 8 * MIB, 16 * MIB, 8 * MIB, 16 * MIB  # settings of `small`, and buffers
    assert broker.rss_bytes < before + read_bytes + cached + pending + unwritten + direct
    for peer in peers:
        numbers = []
        while len(numbers) < 300:
            found = peer.receive()
            assert found.type == pb.BaseCommand.SEND_RECEIPT
            numbers.append(found.send_receipt.sequence_id)
        assert numbers == list(range(300))
        peer.close()


def test_a_silent_peer_is_sent_away(new_broker):
    broker = new_broker(keepAliveIntervalSeconds=1)
    mute = RawPeer(broker.url, handshake=False)
    deaf = RawPeer(broker.url)
    assert mute.is_closed(5)
    began = time.monotonic()
    deaf.socket.settimeout(6)
    assert deaf.is_closed(6)  # the peer reads PING and never answers
    assert time.monotonic() - began < 6
    client = quiet_client(broker.url)
    assert isinstance(client.create_producer("after"), pulsar.Producer)
    client.close()
    for each in (mute, deaf):
        each.close()


def test_requests_of_a_peer_that_is_gone_leave_nothing_half_done(small, topic):
    """The connection ends at any moment: topic, epoch, schema and subscriptions work for the next client."""
    broker, _ = small
    schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
    request = frame(
        command(
            "PRODUCER", "producer", topic=topic, producer_id=1, request_id=1, schema=schema,
            producer_access_mode=pb.ExclusiveWithFencing,
        )
    )  # fmt: skip
    for round_ in range(40):
        name = f"{topic}-{round_ % 8}"
        data = b"".join(
            frame(command("SUBSCRIBE", "subscribe", topic=name, subscription=f"s{round_}-{i}", consumer_id=i,
                          request_id=10 + i, subType=pb.CommandSubscribe.Shared))
            for i in range(3)
        )  # fmt: skip
        peer = RawPeer(broker.url)
        peer.write(request + data)
        time.sleep(round_ % 10 * 0.0005)
        peer.reset()
    after = RawPeer(broker.url)
    after.producer(topic, schema=schema, producer_access_mode=pb.ExclusiveWithFencing)
    for round_ in range(40):
        for i in range(3):
            after.subscribe(f"{topic}-{round_ % 8}", f"s{round_}-{i}", consumer_id=round_ * 10 + i)
    after.close()
