"""Many topics, each with a producer, and many connections: the load of one loop on one core.

    python -m bench.many_bench [--topics 10000] [--connections 10000] [--rounds 4] [--bytes 1024]

Topics are spread over the connections, one outstanding message a topic. Printed are the broker's processor time (of all
threads), which other work of the machine changes little, and its resident memory. Process and broker each need as many
descriptors as there are connections (``ulimit -n``).
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from functools import partial
from typing import TYPE_CHECKING

from bench import servers
from bench.load import HOST, PING, SEND_RECEIPT, SILENCE, encode_entry
from magnetar.broker.descriptors import raise_limit
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command

if TYPE_CHECKING:
    from collections.abc import Callable

Command = pb.BaseCommand
TOPIC = "persistent://public/default/many-%d"
AT_ONCE = 500
"""Requests under way while connections and producers open; a round of messages has no such limit."""
IDLE_S = 10.0
_PAIR = struct.Struct(">II")


class Peer:
    """A connection and the numbers of its topics."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.settimeout(SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.topics: list[int] = []
        self._buffer = b""

    def send(self, command: pb.BaseCommand, entry: bytes = b"") -> None:
        self.socket.sendall(encode_command(command, entry))

    def expect(self, kind: int, count: int = 1) -> None:
        """Read `count` answers, all of type `kind`."""
        while count:
            self._buffer += self.socket.recv(1 << 16)
            at = 0
            while len(self._buffer) - at >= 8:
                total, size = _PAIR.unpack_from(self._buffer, at)
                if len(self._buffer) - at < 4 + total:
                    break
                command = self._buffer[at + 8 : at + 8 + size]
                at += 4 + total
                if command[1] == PING:
                    self.send(Command(type=Command.PONG, pong=pb.CommandPong()))
                elif command[1] == kind:
                    count -= 1
                else:
                    raise RuntimeError(f"unexpected {Command.FromString(command)}")
            self._buffer = self._buffer[at:]


def by_groups(peers: list[Peer], send: Callable[[Peer], int], kind: int, at_once: int) -> None:
    """Send to `at_once` peers (``send`` returns the number of requests), read all their answers, then continue with the
    next peers.
    """
    for start in range(0, len(peers), at_once):
        waiting = [(peer, send(peer)) for peer in peers[start : start + at_once]]
        for peer, count in waiting:
            peer.expect(kind, count)


def connect(peer: Peer) -> int:
    peer.send(Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="bench", protocol_version=19)))
    return 1


def open_producers(peer: Peer) -> int:
    for number in peer.topics:
        body = pb.CommandProducer(topic=TOPIC % number, producer_id=number, request_id=number)
        peer.send(Command(type=Command.PRODUCER, producer=body))
    return len(peer.topics)


def measure(name: str, server: servers.Server, count: int, work: Callable[[], None]) -> None:
    before, started = server.cpu_seconds(), time.perf_counter()
    work()
    took, cpu_s = time.perf_counter() - started, server.cpu_seconds() - before
    print(
        f"{name:<36}{took:8.2f} s {cpu_s:8.2f} s CPU {cpu_s / max(count, 1) * 1e6:8.1f} us each, {server.rss_mb():.0f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=1024)
    options = parser.parse_args()
    raise_limit()
    with servers.broker().wait_ready() as server:
        run(server, options.topics, options.connections, options.rounds, options.bytes)


def run(server: servers.Server, topics: int, connections: int, rounds: int, size: int) -> None:
    peers: list[Peer] = []

    def open_connections() -> None:
        for _ in range(0, connections, AT_ONCE):
            new = [Peer(server.port) for _ in range(min(AT_ONCE, connections - len(peers)))]
            by_groups(new, connect, Command.CONNECTED, AT_ONCE)
            peers.extend(new)

    measure("start", server, 0, lambda: None)
    measure(f"{connections} connections", server, connections, open_connections)
    for number in range(topics):
        peers[number % connections].topics.append(number)
    used = [peer for peer in peers if peer.topics]
    at_once = max(1, AT_ONCE // len(used[0].topics))
    measure(
        f"{topics} topics with a producer",
        server,
        topics,
        lambda: by_groups(used, open_producers, Command.PRODUCER_SUCCESS, at_once),
    )
    entry = encode_entry("bench", 0, bytes(size), 1)

    def publish(sequence_id: int) -> None:
        def send(peer: Peer) -> int:
            for number in peer.topics:
                body = pb.CommandSend(producer_id=number, sequence_id=sequence_id)
                peer.send(Command(type=Command.SEND, send=body), entry)
            return len(peer.topics)

        by_groups(used, send, SEND_RECEIPT, len(used))

    for sequence_id in range(rounds):
        measure(f"a message to each, round {sequence_id + 1}", server, topics, partial(publish, sequence_id))
    measure(f"idle for {IDLE_S:.0f} s", server, 0, lambda: time.sleep(IDLE_S))

    def close() -> None:
        for peer in peers:
            peer.socket.close()
        last = Peer(server.port)
        connect(last)
        last.expect(Command.CONNECTED)

    measure("all connections close", server, connections, close)
    measure(f"idle for {IDLE_S:.0f} s", server, 0, lambda: time.sleep(IDLE_S))


if __name__ == "__main__":
    main()
