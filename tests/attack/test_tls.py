"""Peers without a role at the TLS port."""

import datetime as dt
import json
import socket
import urllib.parse

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.blackbox.honest import HonestClient
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


def test_four_hundred_handshakes_at_the_same_time(new_broker, rsa_files):
    """Each ClientHello costs a signature: a PING waited for the signatures of all connections."""
    broker = new_broker(pings=False, brokerServicePortTls=0, **rsa_files)
    found = json.loads(broker.admin("GET", "/lookup/v2/topic/persistent/public/default/t"))
    port = urllib.parse.urlsplit(found["brokerUrlTls"]).port
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
