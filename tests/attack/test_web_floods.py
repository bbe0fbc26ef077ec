"""Hundreds of connections of an address with pipelines of requests, beside the requests of another address."""

import socket
import urllib.parse

PEERS = 300
REQUEST = b"GET /admin/v2/tenants HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG_REQUEST = b"GET /status HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 1500 + b"\r\n"
PIPELINE = LONG_REQUEST * 10
GETS = 5
MOST_BUSY_S = 0.15
"""Processor time of the broker in the wait for one answer; a request of each connection costs several times as much."""


def test_pipelines_on_hundreds_of_connections_of_another_address(new_broker):
    """A GET waited for a request of each connection, for 1.2 s of processor time."""
    broker = new_broker(pings=False)
    broker.admin("GET", "/admin/v2/tenants")
    address = urllib.parse.urlsplit(broker.http)

    def connect(source):
        return socket.create_connection((address.hostname, address.port), 60, (source, 0))

    peers = [connect("127.0.0.2") for _ in range(PEERS)]
    before, waits = broker.cpu_seconds, []
    for peer in peers:
        peer.sendall(PIPELINE)
    for _ in range(GETS):
        honest, busy = connect("127.0.0.1"), broker.cpu_seconds
        honest.sendall(REQUEST)
        assert honest.recv(4096).startswith(b"HTTP/1.1 200 ")
        waits.append(broker.cpu_seconds - busy)
        honest.close()
    for peer in peers:
        assert peer.recv(4096).startswith(b"HTTP/1.1 200 ")
    cost = broker.cpu_seconds - before
    for peer in peers:
        peer.close()
    assert cost > 4 * MOST_BUSY_S, "the broker had no work"
    assert max(waits) < MOST_BUSY_S, f"a GET waited for {max(waits):.2f} s of the broker's work"
    assert broker.stop() == 0
