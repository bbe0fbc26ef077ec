"""Peers without a role at the TLS port."""

import contextlib
import ctypes
import datetime as dt
import json
import socket
import ssl
import threading
import urllib.parse

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame, send
from tests.broker.network.test_tls_greeting import HELLO
from tests.waiting import wait_for

PEERS = 400
MOST_BUSY_S = 0.1
"""Processor time of the broker in the wait of one PING; all handshakes together cost more than twice as much."""


@pytest.fixture
def rsa_files(tmp_path):
    """A certificate and its key, of the kind whose signatures cost the most."""
    key = rsa.generate_private_key(65537, 2048)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), dt.datetime.now(dt.UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now).not_valid_after(now + dt.timedelta(hours=1))
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    files[0].write_bytes(built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return {"tlsCertificateFilePath": files[0], "tlsKeyFilePath": files[1]}


@pytest.fixture
def tls_port(new_broker, rsa_files):
    broker = new_broker(pings=False, brokerServicePortTls=0, **rsa_files)
    found = json.loads(broker.admin("GET", "/lookup/v2/topic/persistent/public/default/t"))
    return broker, urllib.parse.urlsplit(found["brokerUrlTls"]).port


def test_four_hundred_handshakes_at_the_same_time(tls_port):
    """Each ClientHello costs a signature: a PING waited for the signatures of all connections."""
    broker, port = tls_port
    peers = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(PEERS)]
    with HonestClient(broker) as honest:
        wait_for(lambda: honest.answered)
        before = broker.cpu_seconds
        for peer in peers:
            peer.sendall(HELLO)
        for peer in peers:
            assert peer.recv(1)[0] == 22, "no answer to the ClientHello"
        cost = broker.cpu_seconds - before
    for peer in peers:
        peer.close()
    assert cost > MOST_BUSY_S, "the broker had no work"
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0


def slow_socket(port):
    """A socket over TLS that takes little until the client reads."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(60)
    plain.connect(("127.0.0.1", port))
    return context.wrap_socket(plain)


class TlsReader(RawPeer):
    """A client over TLS whose socket takes little until the client reads."""

    def __init__(self, port):
        self.socket = slow_socket(port)
        self._buffer, self._requests = bytearray(), 0
        self.write(frame(command("CONNECT", "connect", client_version="raw", protocol_version=21)))
        assert self.receive().type == pb.BaseCommand.CONNECTED


def test_consumers_that_do_not_read_their_messages(tls_port, topic):
    """TLS encrypted all of them: a copy for each consumer, and a buffer that kept its size, 2.6 MiB a connection."""
    broker, port = tls_port
    producer, readers, messages = RawPeer(broker.url), [TlsReader(port) for _ in range(40)], 60
    producer.producer(topic)
    producer.write(b"".join(send(1, number, bytes(100_000)) for number in range(messages)))
    assert all(producer.receive().type == pb.BaseCommand.SEND_RECEIPT for _ in range(messages))
    for number, reader in enumerate(readers):
        reader.subscribe(topic, f"s{number}")
    before, waiting = broker.rss_bytes, "magnetar_client_memory_used_bytes"
    for reader in readers:
        reader.flow(messages)
    wait_for(lambda: broker.metrics(waiting) > len(readers) << 19, subject="output that waits")
    grown = broker.rss_bytes - before
    assert grown < len(readers) * 3 << 19, f"{grown >> 20} MiB more"
    for reader in readers:
        assert all(reader.receive().type == pb.BaseCommand.MESSAGE for _ in range(messages))
        reader.close()
    producer.close()
    assert broker.stop() == 0


def test_web_socket_consumers_that_do_not_read_their_messages(new_broker, rsa_files, topic):
    """The text of a message was encrypted as a whole: 40 sessions with texts of 4 MB cost 342 MiB, now 81 MiB."""
    broker = new_broker(
        pings=False, brokerServicePortTls=0, webServicePortTls=0, webSocketServiceEnabled="true", **rsa_files
    )
    found = json.loads(broker.admin("GET", "/lookup/v2/topic/persistent/public/default/t"))
    port, producer, count = urllib.parse.urlsplit(found["httpUrlTls"]).port, RawPeer(broker.url), 40
    producer.producer(topic)
    path = "/ws/v2/consumer/" + topic.replace("://", "/")
    head = "GET {} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    readers = [slow_socket(port) for _ in range(count)]
    for number, reader in enumerate(readers):
        reader.sendall(head.format(f"{path}/s{number}").encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += reader.recv(1)
        assert answer.startswith(b"HTTP/1.1 101 ")
    before, size, messages = broker.rss_bytes, 3_000_000, 2
    producer.write(b"".join(send(1, number, bytes(size)) for number in range(messages)))
    assert all(producer.receive().type == pb.BaseCommand.SEND_RECEIPT for _ in range(messages))
    for reader in readers:
        assert reader.recv(1), "the first byte of a text"
    grown = broker.rss_bytes - before
    assert grown < count * 7 << 19, f"{grown >> 20} MiB more"
    for reader in readers:
        left = messages * size * 4 // 3
        while left > 0:
            left -= len(reader.recv(1 << 18))
        reader.close()
    producer.close()
    assert broker.stop() == 0


class OpenSsl:
    """A TLS client that can do more than Python's: it updates its keys at will."""

    def __init__(self, port):
        try:
            self._tls, self._bytes = ctypes.CDLL("libssl.so.3"), ctypes.CDLL("libcrypto.so.3")
        except OSError:
            pytest.skip("no OpenSSL 3")
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        context = self._new(self._tls, "SSL_CTX_new", self._new(self._tls, "TLS_client_method"))
        self._session = self._new(self._tls, "SSL_new", context)
        kind = self._new(self._bytes, "BIO_s_mem")
        self._incoming, self._outgoing = (self._new(self._bytes, "BIO_new", kind) for _ in range(2))
        self._tls.SSL_set_bio(self._session, self._incoming, self._outgoing)
        self._tls.SSL_set_connect_state(self._session)
        while self._tls.SSL_do_handshake(self._session) != 1:
            self.socket.sendall(self._written())
            data = self.socket.recv(1 << 16)
            self._bytes.BIO_write(self._incoming, data, len(data))
        self.socket.sendall(self._written())

    @staticmethod
    def _new(library, name, *arguments):
        function = getattr(library, name)
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*arguments))

    def _written(self):
        room, found = ctypes.create_string_buffer(1 << 16), b""
        while (size := self._bytes.BIO_read(self._outgoing, room, len(room))) > 0:
            found += room.raw[:size]
        return found

    def key_updates(self, count):
        """The bytes of so many updates of the keys."""
        for _ in range(count):
            self._tls.SSL_key_update(self._session, 0)
            self._tls.SSL_do_handshake(self._session)
        return self._written()


def test_updates_of_the_keys_without_end(tls_port):
    """One read has ten thousand records without data: a PING waited for more than a second of processor time."""
    broker, port = tls_port
    peers = [OpenSsl(port) for _ in range(4)]
    updates = [peer.key_updates(10_000) for peer in peers]

    def write(peer, data):
        with contextlib.suppress(ConnectionError):
            peer.socket.sendall(data)

    with HonestClient(broker) as honest:
        wait_for(lambda: honest.answered)
        before = broker.cpu_seconds
        writers = [threading.Thread(target=write, args=each) for each in zip(peers, updates, strict=True)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        wait_for(lambda: broker.cpu_seconds - before > 2 * MOST_BUSY_S, subject="the work of the broker")
        pings = honest.answered
        wait_for(lambda: honest.answered > pings + 1)
    for peer in peers:
        peer.socket.close()
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0


def chain_file(path, count):
    """A file with a key and a chain of so many certificates, which no broker trusts."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(count + 1)]
    now, parts = dt.datetime.now(dt.UTC), []
    for number in range(count):
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"c{n}")]) for n in (number, number + 1))
        built = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).serial_number(1 + number)
        built = built.public_key(keys[number].public_key()).not_valid_before(now)
        built = built.not_valid_after(now + dt.timedelta(hours=1)).sign(keys[number + 1], hashes.SHA256())
        parts.append(built.public_bytes(Encoding.PEM))
    key = keys[0].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(b"".join(parts) + key)
    return path


class CertifiedPeer:
    """A client whose certificates are ready to be sent: the broker waits for them."""

    def __init__(self, port, context):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                session.do_handshake()
                break
            self.socket.sendall(outgoing.read())
            incoming.write(self.socket.recv(1 << 16))
        self.flight = outgoing.read()


@pytest.mark.parametrize("certificates", [80, 240])
def test_long_chains_of_certificates_at_the_same_time(new_broker, rsa_files, tmp_path, certificates):
    """TLS parses all certificates of a client before it trusts any: 60 chains made a PING wait for seconds."""
    broker = new_broker(
        pings=False, brokerServicePortTls=0, tlsTrustCertsFilePath=rsa_files["tlsCertificateFilePath"], **rsa_files
    )
    found = json.loads(broker.admin("GET", "/lookup/v2/topic/persistent/public/default/t"))
    port = urllib.parse.urlsplit(found["brokerUrlTls"]).port
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(chain_file(tmp_path / "chain.pem", certificates))
    peers = [CertifiedPeer(port, context) for _ in range(60)]
    with HonestClient(broker) as honest:
        wait_for(lambda: honest.answered)
        for peer in peers:
            peer.socket.sendall(peer.flight)
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                while peer.socket.recv(1 << 16):
                    pass
    for peer in peers:
        peer.socket.close()
    assert honest.busiest_s < 2 * MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0
