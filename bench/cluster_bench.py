"""A broker of this project and a broker of Apache Pulsar in one cluster, in turn: the same ZooKeeper and bookies (E3 W3
A2).

``python -m bench.cluster_bench [ROUNDS [WORD OF A CASE]]``; needs Java 17 and Maven, and the jars of Apache Pulsar 4.2 in the directory
that MAGNETAR_PULSAR_LIB names (without them this project's broker is measured alone). The load generator is that of the
other benchmarks. Printed are medians over the rounds: rate, and processor time of the broker a message.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import tempfile
import time
import uuid

import requests

from bench import load
from tests.cluster.broker_processes import Member, initialize
from tests.cluster.pulsar_broker import LIB, MORE, PulsarBroker
from tests.cluster.real_cluster import RealCluster, missing

SETTINGS = {**MORE, "managedLedgerCacheSizeMB": 16, "standstillGuardEnabled": "false"}
"""A cache that holds no backlog."""
BOOKIES = {"BK_STORAGE": "db", "BK_JVM": "-Xms64m -Xmx192m -XX:MaxDirectMemorySize=192m -XX:TieredStopAtLevel=4"}


def port(broker):
    return int(broker.url.rpartition(":")[2])


def new_topic(broker):
    """A new topic that this broker serves. Tries names: the cluster's leader may give a bundle to the other broker."""
    for _ in range(100):
        name = f"public/bench-{broker.name}/{uuid.uuid4().hex}"
        found = requests.get(f"{broker.http}/lookup/v2/topic/persistent/{name}?authoritative=true", timeout=60)
        if found.json()["brokerUrl"] == broker.url:
            return f"persistent://{name}"
    raise AssertionError(f"no bundle of public/bench-{broker.name} is at {broker.url}: {found.text}")


def cpu_s(broker):
    fields = pathlib.Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def publish(broker, count, size, window, batch=1, producers=1):
    """(messages a second, microseconds of processor time a message)."""
    load.publish([load.Producer(port(broker), new_topic(broker), count // 10, size, batch)], window)
    crowd = [load.Producer(port(broker), new_topic(broker), count // producers, size, batch) for _ in range(producers)]
    before = cpu_s(broker)
    took = load.publish(crowd, window)
    messages = count // producers * producers * batch
    for each in crowd:
        each.close()
    return messages / took, (cpu_s(broker) - before) / messages * 1e6


def one_in_flight(broker, count):
    """(messages a second, microseconds of processor time a message), with one message under way."""
    producer = load.Producer(port(broker), new_topic(broker), count, 1024)
    before = cpu_s(broker)
    took = load.one_in_flight(producer)
    producer.close()
    return 1 / statistics.median(took), (cpu_s(broker) - before) / count * 1e6


def backlog(broker, count):
    """Rate and processor time, as above, of reading a backlog that is larger than the cache, after the topic was
    unloaded: the broker reads the entries from the bookies.
    """
    topic = new_topic(broker)
    load.Consumer(port(broker), topic).close()
    producer = load.Producer(port(broker), topic, count, 1024)
    load.publish([producer], 1000)
    producer.close()
    path = topic.replace("://", "/")
    assert requests.put(f"{broker.http}/admin/v2/{path}/unload", timeout=60).status_code == 204
    time.sleep(0.5)
    requests.get(f"{broker.http}/lookup/v2/topic/{path}?authoritative=true", timeout=60)
    consumer = load.Consumer(port(broker), topic)
    before = cpu_s(broker)
    took = load.drain(consumer, count)
    consumer.close()
    return count / took, (cpu_s(broker) - before) / count * 1e6


CASES = {
    "1 KiB, no batches, 1 producer": lambda broker: publish(broker, 30_000, 1024, 1000),
    "1 KiB, no batches, 8 producers": lambda broker: publish(broker, 30_000, 1024, 1000, producers=8),
    "1 KiB, no batches, one under way": lambda broker: one_in_flight(broker, 1000),
    "batches of 100 messages of 100 bytes": lambda broker: publish(broker, 5_000, 100, 100, batch=100),
    "backlog of 1 KiB messages": lambda broker: backlog(broker, 60_000),
}


def main(rounds=3, word=""):
    if (reason := missing()) is not None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        cluster = RealCluster(directory / "bk")
        brokers = []
        try:
            cluster.up(3, **BOOKIES)
            initialize(cluster)
            brokers.append(Member(directory, "ours", cluster.zookeeper, **SETTINGS))
            if LIB:
                theirs = {key: value for key, value in SETTINGS.items() if key != "standstillGuardEnabled"}
                brokers.append(PulsarBroker(directory, "pulsar", cluster.zookeeper, **theirs))
            for each in brokers:
                began_s = time.monotonic()
                each.start()
                print(f"{each.name}: ready in {time.monotonic() - began_s:.1f} s")
                answer = requests.put(f"{each.http}/admin/v2/namespaces/public/bench-{each.name}", timeout=60)
                assert answer.status_code == 204, answer.text
            run(brokers, rounds, word)
        finally:
            for each in brokers:
                each.end()
            cluster.down()


def run(brokers, rounds, word):
    print("| case | " + " | ".join(f"{each.name}/s | us CPU" for each in brokers) + " | ratio |")
    print("|---" * (2 * len(brokers) + 2) + "|")
    for case, measure in CASES.items():
        if word not in case:
            continue
        figures = {each.name: [] for each in brokers}
        for number in range(rounds):
            for each in brokers if number % 2 else reversed(brokers):
                figures[each.name].append(measure(each))
        medians = [[statistics.median(column) for column in zip(*found, strict=True)] for found in figures.values()]
        ratio = f"{medians[0][0] / medians[1][0]:.2f}" if len(medians) > 1 else "-"
        columns = " | ".join(f"{rate:,.0f} | {cpu:.0f}" for rate, cpu in medians)
        print(f"| {case} | {columns} | {ratio} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, *sys.argv[2:])
