"""Requests for the topics of a namespace with tens of thousands of topics, on many connections at the same time."""

import contextlib
import threading

import pytest

from tests.blackbox.conftest import new_broker  # noqa: F401 - the fixture
from tests.blackbox.honest import HonestClient
from tests.blackbox.raw import RawPeer, command, frame
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
