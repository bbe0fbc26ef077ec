"""Statistics of a topic with a thousand clients, on hundreds of connections that do not read."""

import socket
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.raw import RawPeer, command, frame
from tests.waiting import wait_for

CONNECTIONS, CONSUMERS = 300, 1000
MIB = 1 << 20


@pytest.mark.parametrize("route", ["stats", "internalStats"])
def test_statistics_of_a_thousand_clients_on_hundreds_of_connections(new_broker, topic, route):
    """All answers were made at the same time, 1.5 MB each beside the memory account: 466 MiB and more, now 70 MiB."""
    broker = new_broker(pings=False, keepAliveIntervalSeconds=600, maxClientMemoryInMB=96)
    peer, subscriptions = RawPeer(broker.url), 1 if route == "stats" else CONSUMERS
    for number in range(CONSUMERS):
        name = f"s{number % subscriptions}"
        values = {"topic": topic, "subscription": name, "subType": 1, "consumer_id": number, "request_id": number}
        peer.write(frame(command("SUBSCRIBE", "subscribe", **values)))
    assert all(peer.receive().type == pb.BaseCommand.SUCCESS for _ in range(CONSUMERS))
    address, before, cost = urllib.parse.urlsplit(broker.http), broker.rss_bytes, broker.cpu_seconds
    readers = []
    for _ in range(CONNECTIONS):
        readers.append(socket.socket())
        readers[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        readers[-1].connect((address.hostname, address.port))
        path = "/admin/v2/" + topic.replace("://", "/")
        readers[-1].sendall(f"GET {path}/{route} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    wait_for(lambda: broker.cpu_seconds - cost > 3, 60, "the work of the broker")
    grown = broker.rss_bytes - before
    for reader in readers:
        reader.close()
    peer.close()
    assert grown < 64 * MIB, f"{grown >> 20} MiB more"
    assert broker.stop() == 0
