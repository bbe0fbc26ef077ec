"""Connections that come through a proxy: the PROXY header, whole, in parts, wrong and missing."""

import contextlib
import json
import re
import socket
import struct
import threading
import urllib.request

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.proxy_header import V2_SIGNATURE
from tests.attack.conftest import SECURED, connect
from tests.blackbox.clients import quiet_client
from tests.blackbox.raw import RawPeer, command, frame
from tests.broker.admin.test_admin_server import Certificates
from tests.trusting import trusting

V1 = b"PROXY TCP4 203.0.113.7 198.51.100.2 4711 6650\r\n"
V2 = (
    V2_SIGNATURE
    + b"\x21\x11"
    + struct.pack(">H", 12)
    + socket.inet_aton("203.0.113.9")
    + socket.inet_aton("198.51.100.2")
    + struct.pack(">HH", 4712, 6650)
)
LOCAL = V2_SIGNATURE + b"\x20\x00\x00\x00"
CONNECT = frame(command("CONNECT", "connect", client_version="raw", protocol_version=21))


@pytest.fixture(scope="module")
def proxied(magnetar_broker_factory):
    broker = magnetar_broker_factory(haProxyProtocolEnabled=True)
    yield broker
    assert broker.stop() == 0


def address_of_producer(broker, peer, topic):
    peer.producer(topic)
    url = f"{broker.http_url}/admin/v2/persistent/public/default/{topic}/stats"
    with urllib.request.urlopen(url, timeout=10) as answer:
        (producer,) = json.load(answer)["publishers"]
    return producer["address"]


@pytest.mark.parametrize(
    ("header", "address"),
    [(V1, "203.0.113.7:4711"), (V2, "203.0.113.9:4712"), (LOCAL, "/127.0.0.1:"), (b"", "/127.0.0.1:")],
    ids=["v1", "v2", "local", "none"],
)
@pytest.mark.parametrize("cut", [None, 1, 5, -1])
def test_statistics_show_the_client_behind_the_proxy(proxied, header, address, cut):
    peer = RawPeer(proxied.url, handshake=False)
    if cut is None:
        peer.write(header + CONNECT)
    else:
        for part in (header[:cut], header[cut:], CONNECT[:cut], CONNECT[cut:]):
            peer.write(part)
    assert peer.receive().type == pb.BaseCommand.CONNECTED
    topic = f"proxied-{hash((header, cut)) & 0xFFFFFF}"
    assert address_of_producer(proxied, peer, topic).startswith(address)
    peer.socket.close()


@pytest.mark.parametrize(
    "data", [b"PROXY nonsense\r\n", V1 + V1, b"PROXY " + b"x" * 300, V2_SIGNATURE + b"\x21\x11\xff\xff"]
)
def test_a_wrong_header_closes_its_connection_alone(proxied, data):
    good = RawPeer(proxied.url)
    peer = RawPeer(proxied.url, handshake=False)
    peer.write(data + CONNECT)
    assert peer.is_closed()
    assert good.ask("LOOKUP", "lookupTopic", topic="any", authoritative=False).type == pb.BaseCommand.LOOKUP_RESPONSE


def test_reads_behind_a_header_are_as_small_as_those_of_other_peers_without_a_role(new_broker):
    broker = new_broker(haProxyProtocolEnabled=True, **SECURED)
    pings = V1 + frame(command("PING", "ping")) * 20_000
    before = broker.rss_bytes
    peers = [RawPeer(broker.url, handshake=False) for _ in range(100)]
    for peer in peers:
        peer.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.socket.send(pings)
    connect(broker.url, "admin").producer("behind-the-others")
    assert broker.rss_bytes - before < 64 << 20
    for peer in peers:
        peer.reset()
    assert broker.stop() == 0


def test_without_the_setting_a_header_is_no_command(magnetar_broker):
    peer = RawPeer(magnetar_broker.url, handshake=False)
    peer.write(V1 + CONNECT)
    assert peer.is_closed()


def test_the_header_comes_behind_the_tls_handshake(magnetar_broker_factory, tmp_path):
    authority = Certificates(tmp_path)
    certificate, key = authority.make("localhost")
    broker = magnetar_broker_factory(
        haProxyProtocolEnabled=True,
        brokerServicePort=None,
        brokerServicePortTls=0,
        tlsCertificateFilePath=certificate,
        tlsKeyFilePath=key,
    )
    peer = RawPeer(broker.url, handshake=False)
    peer.socket = trusting(authority.authority[0]).wrap_socket(peer.socket, server_hostname="localhost")
    for part in (V2[:3], V2[3:] + CONNECT):
        peer.write(part)
    assert peer.receive().type == pb.BaseCommand.CONNECTED
    assert address_of_producer(broker, peer, "behind-tls") == "203.0.113.9:4712"
    peer.socket.close()
    broker.stop()


class Forwarder:
    """A proxy: writes the header in front of each client's bytes."""

    def __init__(self, header):
        self.target = None
        self._header = header
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = [self._listener]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            broker = socket.create_connection(self.target)
            self._open.append(broker)
            broker.sendall(self._header)
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # ends the thread that waits for the socket
            each.close()


def test_an_official_client_behind_a_proxy(magnetar_broker_factory):
    with contextlib.closing(Forwarder(V2)) as proxy:
        broker = magnetar_broker_factory(
            haProxyProtocolEnabled=True, advertisedListeners=f"outside:pulsar://127.0.0.1:{proxy.port}"
        )
        started = re.search(r"event=broker\.started port=(\d+)", broker.log_path.read_text())
        proxy.target = ("127.0.0.1", int(started.group(1)))
        client = quiet_client(f"pulsar://127.0.0.1:{proxy.port}")
        consumer = client.subscribe("through", "sub")
        producer = client.create_producer("through")
        for number in range(100):
            producer.send(b"%d" % number)
            assert consumer.receive(20_000).data() == b"%d" % number
        client.close()
        broker.stop()
