"""Peers that stop: each connection ends, and its unacknowledged messages go to others (docs/security.md)."""

import contextlib
import socket

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, command, frame, send
from tests.broker.admin.test_admin_server import Certificates
from tests.trusting import trusting
from tests.waiting import wait_for

PATIENCE_S = 40


@pytest.fixture
def broker(new_broker):
    broker = new_broker(keepAliveIntervalSeconds=1)
    yield broker
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0


def filled(broker, topic, count=400):
    """A topic with more than the system's socket buffers hold."""
    peer = RawPeer(broker.url)
    peer.producer(topic)
    for number in range(count):
        peer.write(send(1, number, bytes(100_000)))
        while peer.receive().type != pb.BaseCommand.SEND_RECEIPT:
            pass
    peer.close()


def test_a_consumer_that_stops_reading_is_closed_though_it_goes_on_sending(broker, topic):
    filled(broker, topic)
    deaf = RawPeer(broker.url, receive_buffer=4096)
    deaf.subscribe(topic, permits=1_000_000)
    wait_for(lambda: "does not read" in broker.log_text(), PATIENCE_S)
    deaf.close()


def test_the_standby_of_a_consumer_that_stops_reading_takes_over(broker, topic):
    filled(broker, topic)
    failover = {"subType": pb.CommandSubscribe.Failover}
    active = RawPeer(broker.url, receive_buffer=4096)
    active.subscribe(topic, consumer_id=1, permits=1_000_000, consumer_name="a", **failover)
    standby = RawPeer(broker.url)
    standby.subscribe(topic, consumer_id=1, permits=10, consumer_name="b", **failover)
    standby.socket.settimeout(PATIENCE_S)
    while (found := standby.receive()) is not None and found.type != pb.BaseCommand.MESSAGE:
        pass
    assert found is not None, "the standby got nothing"
    active.close()
    standby.close()


def test_a_connection_is_closed_behind_output_that_is_not_read(broker, topic):
    """A violation of the protocol ends the connection, also when the peer never reads the last frames."""
    filled(broker, topic)
    before = broker.open_files
    deaf = RawPeer(broker.url, receive_buffer=4096)
    deaf.subscribe(topic, permits=1_000_000)
    deaf.write(frame(command("FLOW", "flow", consumer_id=1, messagePermits=0)))
    wait_for(lambda: broker.open_files <= before, PATIENCE_S)
    deaf.close()


def test_a_large_frame_that_trickles_in_is_given_up(broker):
    slow = RawPeer(broker.url)
    slow.producer("persistent://public/default/slow")
    slow.write(send(1, 0, bytes(4_000_000))[:1_500_000])

    def given_up():
        with contextlib.suppress(ConnectionError):
            slow.write(b"x")  # the peer sends, but never a whole frame
        return "a frame that does not arrive" in broker.log_text()

    wait_for(given_up, PATIENCE_S, every=0.1)
    slow.close()


@pytest.fixture
def over_tls(new_broker, tmp_path):
    """A function that opens connections over TLS, to the broker whose log it has."""
    authority = Certificates(tmp_path)
    certificate, key = authority.make("localhost")
    broker = new_broker(
        "tls",
        pings=False,
        keepAliveIntervalSeconds=1,
        brokerServicePort="",
        brokerServicePortTls=0,
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
    )
    trust = trusting(authority.authority[0])

    def opened(**more):
        peer = RawPeer(broker.url, handshake=False, **more)
        peer.socket = trust.wrap_socket(peer.socket, server_hostname="localhost")
        peer.write(frame(command("CONNECT", "connect", client_version="raw", protocol_version=21)))
        assert peer.receive().type == pb.BaseCommand.CONNECTED
        return peer

    opened.broker = broker
    yield opened
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0


def test_a_consumer_over_tls_that_stops_reading_is_closed(over_tls, topic):
    """Bytes that wait in the TLS layer count as output, too."""
    writer, broker = over_tls(), over_tls.broker
    writer.producer(topic)
    for number in range(100):
        writer.write(send(1, number, bytes(100_000)))
        while writer.receive().type != pb.BaseCommand.SEND_RECEIPT:
            pass
    before, files = broker.rss_bytes, broker.open_files
    deaf = over_tls(receive_buffer=4096)
    deaf.subscribe(topic, permits=1_000_000)
    wait_for(lambda: "does not read" in broker.log_text(), PATIENCE_S)
    assert broker.rss_bytes - before < 48 << 20
    wait_for(lambda: broker.open_files <= files, PATIENCE_S)
    for peer in (writer, deaf, over_tls()):
        peer.socket.close()


def test_half_closed_connections_end(over_tls, broker):
    """A peer that closes its sending half has ended, whatever it would still read."""
    peers = [RawPeer(broker.url), over_tls()]
    for peer in peers:
        socket.socket.shutdown(peer.socket, socket.SHUT_WR)
    for peer in peers:
        assert peer.is_closed()
        peer.socket.close()
