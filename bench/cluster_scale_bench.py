"""The cost of many topics in a cluster: a real ZooKeeper, three real bookies, two brokers.

``python -m bench.cluster_scale_bench [TOPICS]``; needs Java 17 and Maven. Printed: the start of a broker beside so many
topics (100,000), lookups, and the cost of the topics of one of sixteen brokers for its successors when it is killed,
with the transactions and requests that ZooKeeper counted.
"""

from __future__ import annotations

import pathlib
import re
import socket
import sys
import tempfile
import time

import requests
from kazoo.client import KazooClient

from bench.load import Connection, encode_entry
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from tests.cluster.broker_processes import Member, initialize
from tests.cluster.real_cluster import RealCluster, missing

NAMESPACES, BROKERS = 16, 16
SESSION_S = 6
AT_ONCE = 100


def counters(zookeeper):
    """(transactions, requests received) since the service began."""
    host, port = zookeeper.split(":")
    with socket.create_connection((host, int(port))) as opened:
        opened.sendall(b"srvr")
        text = b"".join(iter(lambda: opened.recv(4096), b"")).decode()
    return int(re.search(r"Zxid: (0x\w+)", text)[1], 16), int(re.search(r"Received: (\d+)", text)[1])


class Metered:
    """``with Metered(zookeeper) as cost``: seconds, transactions, requests."""

    def __init__(self, zookeeper):
        self.zookeeper = zookeeper

    def __enter__(self):
        self.before, self.began_s = counters(self.zookeeper), time.monotonic()
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.began_s
        self.writes, self.requests = (
            now - then for now, then in zip(counters(self.zookeeper), self.before, strict=True)
        )


class Client(Connection):
    """Many requests at the same time over one connection."""

    def ask(self, commands):
        """Send requests, `AT_ONCE` of them under way; returns (request id -> answer, seconds)."""
        waiting, answers, sent = iter(commands), {}, 0
        began_s = time.monotonic()
        for command in waiting:
            self.send(command)
            sent += 1
            while sent - len(answers) >= AT_ONCE:
                self._take(answers)
        while len(answers) < sent:
            self._take(answers)
        return answers, time.monotonic() - began_s

    def _take(self, answers):
        for start, _ in self.receive():
            size = int.from_bytes(self.buffer[start : start + 4], "big")
            command = pb.BaseCommand.FromString(bytes(self.buffer[start + 4 : start + 4 + size]))
            for field in ("lookupTopicResponse", "producer_success", "error"):
                if command.HasField(field):
                    answers[getattr(command, field).request_id] = getattr(command, field)
        self.drop()


def lookup(number, topic, *, authoritative=False):
    body = pb.CommandLookupTopic(topic=topic, request_id=number, authoritative=authoritative)
    return pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=body)


def producer(number, topic):
    body = pb.CommandProducer(topic=topic, producer_id=number, request_id=number)
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=body)


def first_message(number):
    """The SEND of one message: with it the topic has an entry that its next owner has to recover."""
    send = pb.CommandSend(producer_id=number, sequence_id=0)
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.SEND, send=send), encode_entry("bench", 0, b"x" * 100, 1))


def port(broker):
    return int(broker.url.rpartition(":")[2])


def fill(zookeeper, topics):
    """Create the nodes of topics without entries in ZooKeeper."""
    client = KazooClient(zookeeper)
    client.start(30)
    for number in range(NAMESPACES):
        client.ensure_path(f"/managed-ledgers/public/scale-{number}/persistent")
    for start in range(0, topics, 1000):
        answers = [
            client.create_async(f"/managed-ledgers/public/scale-{number % NAMESPACES}/persistent/topic-{number}", b"")
            for number in range(start, min(start + 1000, topics))
        ]
        for answer in answers:
            answer.get(60)
    client.stop()
    client.close()


def memory_mb(broker):
    return int(pathlib.Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * 4096 / 1e6


def serve(client, topics):
    """Look up topics, which assigns an owner to topics without an owner, and open a producer on each.

    Returns the seconds of the lookups, those of the producers, and the failed answers.
    """
    _, looked_s = client.ask([lookup(number, topic, authoritative=True) for number, topic in enumerate(topics)])
    answers, opened_s = client.ask([producer(number, topic) for number, topic in enumerate(topics)])
    failed = [answer for answer in answers.values() if not isinstance(answer, pb.CommandProducerSuccess)]
    return looked_s, opened_s, failed


def main(topics=100_000):
    if (reason := missing()) is not None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        cluster = RealCluster(directory / "bk")
        settings = {"metadataStoreSessionTimeoutMillis": SESSION_S * 1000, "standstillGuardEnabled": "false"}
        members = []
        try:
            cluster.up(3)
            initialize(cluster)
            members = [Member(directory, each, cluster.zookeeper, **settings) for each in ("one", "two")]
            measure(cluster.zookeeper, members, topics)
        finally:
            for each in members:
                each.end()
            cluster.down()


def measure(zookeeper, members, topics):
    one, two = members
    with Metered(zookeeper) as cost:
        one.start()
    print(f"start beside no topics: {cost.seconds:.2f} s, {memory_mb(one):.0f} MB, {cost.requests} requests")
    for number in range(NAMESPACES):
        body = {"bundles": {"numBundles": 64}}
        requests.put(f"{one.http}/admin/v2/namespaces/public/scale-{number}", json=body, timeout=60)
    fill(zookeeper, topics)
    with Metered(zookeeper) as cost:
        two.start()
    print(f"start beside {topics} topics: {cost.seconds:.2f} s, {memory_mb(two):.0f} MB, {cost.requests} requests")
    share = [f"persistent://public/scale-{number % NAMESPACES}/topic-{number}" for number in range(topics // BROKERS)]
    part = share[: len(share) // (BROKERS - 1)]
    first, second = Client(port(one)), Client(port(two))
    with Metered(zookeeper) as cost:
        looked_s, opened_s, failed = serve(first, part)
    print(
        f"{len(part)} topics served for the first time: lookups {looked_s:.1f} s, loads {opened_s:.1f} s, {per(cost, part)}"
    )
    assert not failed, failed[:3]
    for number in range(len(part)):
        first.socket.sendall(first_message(number))
    for client, who in ((first, "the owner"), (second, "another broker")):
        with Metered(zookeeper) as cost:
            _, took_s = client.ask([lookup(number, topic) for number, topic in enumerate(part * 10)])
        print(f"lookups at {who}: {len(part) * 10 / took_s:,.0f}/s, {per(cost, part * 10)}")
    one.kill()
    time.sleep(SESSION_S + 2)
    with Metered(zookeeper) as cost:
        looked_s, opened_s, failed = serve(second, part)
    print(f"the same taken over: lookups {looked_s:.1f} s, loads {opened_s:.1f} s, {per(cost, part)}")
    assert not failed, failed[:3]


def per(cost, topics):
    return f"ZooKeeper: {cost.writes / len(topics):.2f} writes, {cost.requests / len(topics):.2f} requests a topic"


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
