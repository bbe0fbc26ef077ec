"""Requests for the topics of a namespace with tens of thousands of topics, on many connections at the same time."""

import contextlib
import json
import threading

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.conftest import new_broker  # noqa: F401 - the fixture
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame
from tests.broker.admin.test_admin_server import Certificates
from tests.trusting import trusting
from tests.waiting import wait_for

NAMESPACE = "public/default"
TOPICS = 30_000
MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait of one PING."""


@pytest.fixture
def crowded(new_broker):  # noqa: F811
    """A broker with many topics."""
    broker = new_broker(pings=False)
    for name in "abc":
        path = f"/admin/v2/persistent/{NAMESPACE}/{name * 60}/partitions"
        broker.admin("PUT", path, str(TOPICS // 3).encode())
    return broker


def read_all(peer):
    with contextlib.suppress(OSError):
        while peer.socket.recv(1 << 20):
            pass


def test_lists_for_forty_clients_at_the_same_time(crowded):
    """Each list was hashed and encoded in one turn: a PING waited for the lists of all clients."""
    peers = [RawPeer(crowded.url) for _ in range(40)]
    request = frame(
        command("GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", namespace=NAMESPACE, request_id=1, mode=2)
    )
    readers = [threading.Thread(target=read_all, args=(peer,)) for peer in peers]
    with HonestClient(crowded) as honest:
        wait_for(lambda: honest.answered)
        before = crowded.cpu_seconds
        for reader in readers:
            reader.start()
        for peer in peers:
            peer.write(5 * request)
        wait_for(lambda: crowded.cpu_seconds - before > 2 * MOST_BUSY_S, subject="the work of the broker")
        pings = honest.answered
        wait_for(lambda: honest.answered > pings + 1)
    for peer in peers:
        peer.reset()
    for reader in readers:
        reader.join()
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert crowded.stop() == 0


MIB = 1 << 20
REFUSALS = "magnetar_client_memory_refusals_total"
LONG_LIST = frame(command("GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", namespace=NAMESPACE, request_id=1, mode=2))


@pytest.fixture
def long_names(new_broker, tmp_path):  # noqa: F811
    """A broker with a list of 9 MiB, 64 MiB for the clients of an address; and a function for connections by a port."""
    authority = Certificates(tmp_path)
    certificate, key = authority.make("localhost")
    files = {"tlsCertificateFilePath": certificate, "tlsKeyFilePath": key}
    broker = new_broker(pings=False, maxClientMemoryInMB="128", brokerServicePortTls=0, **files)
    for name in "ab":
        broker.admin("PUT", f"/admin/v2/persistent/{NAMESPACE}/{name * 960}/partitions", b"4700")
    trust = trusting(authority.authority[0])

    def connected(url):
        peer = RawPeer(url, handshake=False, receive_buffer=8192)
        if url.startswith("pulsar+ssl"):
            peer.socket = trust.wrap_socket(peer.socket, server_hostname="localhost")
        peer.write(frame(command("CONNECT", "connect", client_version="raw", protocol_version=21)))
        assert peer.receive().type == pb.BaseCommand.CONNECTED
        return peer

    return broker, connected


@pytest.mark.parametrize("port", ["brokerUrl", "brokerUrlTls"])
def test_long_lists_for_clients_that_read_nothing(long_names, port):
    """All lists were admitted before the first was made, and over TLS none counted: 60 of 24 MB took 1.6 and 2.8 GB."""
    broker, connected = long_names
    url = json.loads(broker.admin("GET", f"/lookup/v2/topic/persistent/{NAMESPACE}/t"))[port]
    peers, before = [connected(url) for _ in range(30)], broker.rss_bytes
    with HonestClient(broker) as honest:
        wait_for(lambda: honest.answered)
        for peer in peers:
            peer.write(LONG_LIST)
        wait_for(lambda: broker.metrics(REFUSALS) > len(peers) // 3, 60, "the refusals")
        pings = honest.answered
        wait_for(lambda: honest.answered > pings + 1)
    grown = broker.rss_bytes - before
    assert grown < 120 * MIB, f"{grown // MIB} MiB more"
    for peer in peers:
        peer.socket.close()
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0
