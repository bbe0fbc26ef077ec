"""Heads of HTTP requests with thousands of headers, on many connections."""

import socket
import urllib.parse

from tests.blackbox.honest import HonestClient
from tests.waiting import wait_for

PEERS = 400
HEAD = b"GET /status HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 1500 + b"\r\n"
MOST_BUSY_S = 0.2
"""Processor time of the broker in the wait of one PING; all heads together cost several times as much."""


def test_four_hundred_long_heads_that_end_at_the_same_time(new_broker):
    """The parser took all of them in one round of the event loop."""
    broker = new_broker(pings=False)
    broker.admin("GET", "/status")
    address, peers = urllib.parse.urlsplit(broker.http), []
    with HonestClient(broker) as honest:
        wait_for(lambda: honest.answered)
        before = broker.cpu_seconds
        for _ in range(PEERS):
            peers.append(socket.create_connection((address.hostname, address.port), 60))
            peers[-1].sendall(HEAD[:-2])
        for peer in peers:
            peer.sendall(HEAD[-2:])
        for peer in peers:
            assert peer.recv(4096).startswith(b"HTTP/1.1 200 ")
        cost = broker.cpu_seconds - before
    for peer in peers:
        peer.close()
    assert cost > 2 * MOST_BUSY_S, "the broker had no work"
    assert honest.busiest_s < MOST_BUSY_S, f"a PING waited for {honest.busiest_s:.2f} s of the broker's work"
    assert broker.stop() == 0
