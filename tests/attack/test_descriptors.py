"""More connections than the process has descriptors for (docs/security.md)."""

import resource
import socket
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.attack.conftest import SECURED, Http, Target, connect, http
from tests.blackbox.raw import RawPeer, send
from tests.waiting import wait_for

LIMIT = 1024


@pytest.fixture(autouse=True)
def _many_sockets_of_our_own():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def few(new_broker, monkeypatch, request):
    """A secured broker that may open 1,024 descriptors, or as many as the test's parameter says."""
    limit = getattr(request, "param", LIMIT)
    import tests.blackbox.conftest as blackbox

    popen = blackbox.subprocess.Popen

    def limited(arguments, **more):
        return popen(arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)), **more)

    monkeypatch.setattr(blackbox.subprocess, "Popen", limited)
    target = Target(new_broker(**SECURED))
    monkeypatch.undo()
    yield target
    assert "Traceback" not in target.broker.log_text()
    assert target.broker.stop() == 0


def idle_sockets(url, count):
    """Connections that say nothing; those that cannot be had are left out."""
    address = urllib.parse.urlsplit(url)
    opened = []
    for _ in range(count):
        try:
            opened.append(socket.create_connection((address.hostname, address.port), 5))
        except OSError:
            break
    return opened


def publish(broker, topic, size, count=1):
    peer = connect(broker.url, "admin")
    peer.producer(topic)
    for number in range(count):
        peer.write(send(1, number, bytes(size)))
        assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    peer.close()


def test_eleven_hundred_idle_connections_and_a_large_publish(few, topic):
    with few.watch() as watch:
        held = idle_sockets(few.broker.url, 1100)
        assert len(held) == 1100
        publish(few.broker, topic, 4_000_000, count=20)  # several journal segments and ledger files
    few.unharmed(watch, most_mib=160)
    assert few.broker.process.poll() is None
    assert few.broker.open_files < LIMIT
    for each in held:
        each.close()


@pytest.mark.parametrize("few", [128], indirect=True)
def test_more_topics_and_idle_connections_than_128_descriptors(few, topic):
    """Each publish gets its receipt: clients, web port, ledger files and the rest of the process share the limit."""
    held = idle_sockets(few.broker.url, 200) + idle_sockets(few.broker.http, 50)
    with few.watch() as watch:
        peer = connect(few.broker.url, "admin")
        for number in range(60):
            peer.producer(f"{topic}-{number}", number)
            peer.write(send(number, 0, bytes(100_000)))
            assert peer.receive().type == pb.BaseCommand.SEND_RECEIPT
    few.unharmed(watch, most_mib=96)
    assert "append.failed" not in few.broker.log_text()
    for each in (*held, peer):
        each.close()


def test_connections_that_come_and_stay_for_ever(few, topic):
    """Each newer connection replaces an older connection: the honest client waits no longer than the others."""
    held = idle_sockets(few.broker.url, 700)
    for _ in range(10):
        publish(few.broker, topic, 100)
        held += idle_sockets(few.broker.url, 50)
    assert few.broker.open_files < LIMIT
    for each in held:
        each.close()


def test_proven_connections_are_not_closed_for_unproven_ones(few):
    proven = [connect(few.broker.url, "admin") for _ in range(50)]
    held = idle_sockets(few.broker.url, 1100)
    for peer in proven:
        peer.producer("persistent://public/default/proven", 1)
        peer.close()
    for each in held:
        each.close()


def test_idle_http_connections_do_not_keep_health_and_metrics_from_answering(few):
    held = idle_sockets(few.broker.http, 2050)
    with few.watch() as watch:
        for path in ("/status", "/metrics", "/admin/v2/brokers/ready"):
            assert http(few.broker, "GET", path)[0] == 200
        assert http(few.broker, "GET", "/admin/v2/tenants", role="admin")[0] == 200
    few.unharmed(watch)
    for each in held:
        each.close()


def test_requests_that_never_end_do_not_keep_health_and_metrics_from_answering(few):
    """Bodies that do not arrive hold all seats of the web port; probes have some of their own."""
    held = []
    for _ in range(400):
        try:
            each = Http(few.broker.http, 5)
        except OSError:
            break
        each.socket.sendall(
            b"POST /admin/v2/tenants/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
            b"Content-Type: application/json\r\nAuthorization: Bearer x\r\n\r\n{"
        )
        held.append(each)
    for path in ("/status", "/metrics"):
        assert http(few.broker, "GET", path)[0] == 200
    for each in held:
        each.close()


def test_a_client_that_must_wait_gets_its_turn_when_others_leave(few, topic):
    held = idle_sockets(few.broker.url, 1100)
    for each in held:
        each.close()
    wait_for(lambda: few.broker.open_files <= 300, subject="closing of the idle sockets")
    publish(few.broker, topic, 10)


def test_a_peer_without_a_seat_is_refused_or_waits_but_never_hangs_up_the_broker(few):
    peers = [RawPeer(few.broker.url, handshake=False) for _ in range(600)]
    assert few.broker.process.poll() is None
    for peer in peers:
        peer.close()
