"""The cost of topics for ZooKeeper: nodes, bytes, watches, reads and writes, counted by a real ZooKeeper under one real
broker.

``python -m bench.zookeeper_counts_bench [TOPICS]``. Needs Java 17 and Maven. Each topic has one producer and two
subscriptions. The counts are those of ZooKeeper's command ``mntr``, less the counts of the same time without a change.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import socket
import sys
import tempfile
import time

import requests

from tests.cluster.broker_processes import Member, connect, initialize
from tests.cluster.network import process_of
from tests.cluster.real_cluster import RealCluster, missing

SETTLED_S = 8.0
STEADY_S = 20.0
MORE = 50
"""Namespaces and partitioned topics that the policies of a second broker meet."""
NAMES = (
    *("zk_znode_count", "zk_approximate_data_size", "zk_watch_count"),
    *("zk_cnt_readlatency", "zk_cnt_updatelatency"),
)


def ask(server, word):
    host, _, port = server.partition(":")
    with socket.create_connection((host, int(port)), 10) as link:
        link.sendall(word)
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def counts(server):
    found = dict(line.split("\t", 1) for line in ask(server, b"mntr").splitlines() if "\t" in line)
    return [int(float(found[name])) for name in NAMES]


def requests_of(server, process):
    """All requests of the process, pings too, on its present connections."""
    port = int(server.partition(":")[2])
    lines = re.findall(r"/[\d.]+:(\d+)\[.*?recved=(\d+)", ask(server, b"cons"))
    return sum(int(count) for theirs, count in lines if process_of(int(theirs), port) == process)


class Counter:
    """Prints the difference between two moments, for each topic."""

    def __init__(self, server, topics):
        self.server, self.topics, self.before, self.began_s = server, topics, counts(server), time.monotonic()
        self.idle = [0.0, 0.0]

    def count_idle(self):
        """Count the reads and writes of services and a broker without work."""
        time.sleep(STEADY_S)
        self.idle = [(new - old) / STEADY_S for new, old in zip(counts(self.server)[3:], self.before[3:], strict=True)]
        print(f"no topics: {self.idle[0]:.2f} reads, {self.idle[1]:.2f} writes a second", flush=True)
        self.again()

    def again(self):
        self.before, self.began_s = counts(self.server), time.monotonic()

    def show(self, event):
        time.sleep(SETTLED_S)
        now, elapsed_s = counts(self.server), time.monotonic() - self.began_s
        nodes, size, watches, reads, writes = (
            (new - old) / self.topics for new, old in zip(now, self.before, strict=True)
        )
        reads, writes = (
            count - idle * elapsed_s / self.topics for count, idle in zip((reads, writes), self.idle, strict=True)
        )
        print(
            f"{event}: {nodes:+.2f} nodes, {size:+.0f} bytes, {watches:+.2f} watches, {reads:.2f} reads, "
            f"{writes:.2f} writes",
            flush=True,
        )
        self.again()


def play(cluster, directory, topics):
    initialize(cluster)
    member = Member(directory, "n1", cluster.zookeeper, brokerDeleteInactiveTopicsEnabled="false").start()
    client = connect(member)
    second = None
    try:
        counter = Counter(cluster.zookeeper, topics)
        counter.count_idle()
        names = [f"persistent://public/default/topic-{number}" for number in range(topics)]
        producers = [client.create_producer(name, batching_enabled=False) for name in names]
        for producer in producers:
            producer.send(b"1")
        counter.show("a new topic and its first message")
        consumers = [client.subscribe(name, kind) for name in names for kind in ("a", "b")]
        counter.show("two subscriptions")
        for producer in producers:
            producer.send(b"2")
        for consumer in consumers:
            consumer.acknowledge(consumer.receive(30_000))
        counter.show("the first acknowledgement of both")
        asked = requests_of(cluster.zookeeper, member.process.pid)
        end_s = time.monotonic() + STEADY_S
        sent = 0
        while time.monotonic() < end_s:
            for producer in producers:
                producer.send_async(b"3", None)
                sent += 1
            for consumer in consumers:
                consumer.acknowledge(consumer.receive(30_000))
        asked = requests_of(cluster.zookeeper, member.process.pid) - asked
        counter.show(f"{sent / topics:.0f} messages and their acknowledgements")
        print(f"requests of the broker meanwhile: {asked} in {STEADY_S:g} s", flush=True)
        answer = requests.put(f"{member.http}/admin/v2/namespaces/public/default/unload", timeout=300)
        assert answer.ok, answer.text
        for producer in producers:
            producer.send(b"4")
        counter.show("unload, load and a message")
        time.sleep(STEADY_S)
        counter.show(f"{STEADY_S:g} s without messages")
        counter.topics = MORE
        for number in range(MORE):
            put(member, f"namespaces/public/more-{number}")
        counter.show("a namespace")
        for number in range(MORE):
            put(member, f"persistent/public/default/parts-{number}/partitions", 2)
        counter.show("a partitioned topic of two partitions")
        counter.topics = 1
        second = Member(directory, "n2", cluster.zookeeper, brokerDeleteInactiveTopicsEnabled="false").start()
        counter.show(f"another broker, with {MORE + 3} namespaces and {MORE + 1} partitioned topics")
        second.kill()
        time.sleep(2 * SETTLED_S)
        counter.show("the end of its session")
    finally:
        client.close()
        for each in (member, second):
            if each is not None:
                each.end()


def put(member, path, body=None):
    answer = requests.put(f"{member.http}/admin/v2/{path}", json=body, timeout=60)
    assert answer.ok, answer.text


def main(topics=200):
    if (reason := missing()) is not None:
        sys.exit(reason)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-counts-"))
    cluster = RealCluster(directory)
    try:
        cluster.up(3)
        play(cluster, directory, topics)
    finally:
        with contextlib.suppress(AssertionError):
            cluster.down()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
