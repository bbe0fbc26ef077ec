"""`magnetar broker` processes on a real cluster, and clients that record acknowledged messages."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pulsar
import requests

from tests.waiting import wait_for

READY = re.compile(r"magnetar ready (\S+) (\S+)")
SESSION_MS = 4000


class Member:
    """One broker of the cluster ``c1``, on free ports that it keeps when it is started again."""

    program = "magnetar"

    def __init__(self, directory, name, zookeeper, **settings):
        self.name, self.directory = name, directory
        self.settings = {
            "clusterName": "c1",
            "metadataStoreUrl": f"zk:{zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{zookeeper}",
            "bookkeeperMetadataServiceUri": f"zk+null://{zookeeper}/ledgers",
            "brokerServicePort": 0,
            "webServicePort": 0,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "managedLedgerDefaultEnsembleSize": 3,
            "managedLedgerDefaultWriteQuorum": 3,
            "managedLedgerDefaultAckQuorum": 2,
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "functionsWorkerEnabled": "false",
            "brokerDeleteInactiveTopicsEnabled": "false",
            **settings,
        }
        self.process = self.url = self.http = None

    def start(self):
        path = self.directory / f"{self.name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        with (self.directory / f"{self.name}.log").open("ab") as log:
            arguments = [sys.executable, "-m", self.program, "broker", "--config", str(path)]
            self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        with self.process.stdout as output:
            found = READY.search(output.readline())
        assert found, self.log_text()
        self.url, self.http = found.groups()
        self.settings["brokerServicePort"] = self.url.rpartition(":")[2]
        self.settings["webServicePort"] = self.http.rpartition(":")[2]
        return self

    def log_text(self):
        return (self.directory / f"{self.name}.log").read_text()[-4000:]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def ended(self, seconds=1.0):
        """Whether the process ends within so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)
            self.kill()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def initialize(cluster, name="c1"):
    """Initialize the metadata for the first broker, twice: a repetition changes nothing. Returns the output of both
    calls.
    """
    arguments = [
        *(sys.executable, "-m", "magnetar", "initialize-cluster-metadata", "--cluster", name),
        *("--metadata-store", f"zk:{cluster.zookeeper}", "--configuration-metadata-store", f"zk:{cluster.zookeeper}"),
        *("--web-service-url", "http://127.0.0.1:8080", "--broker-service-url", "pulsar://127.0.0.1:6650"),
        *("--existing-bk-metadata-service-uri", f"zk+null://{cluster.zookeeper}/ledgers"),
    ]
    return [subprocess.run(arguments, check=True, capture_output=True, text=True).stdout for _ in range(2)]


def wait_until_alone(*members):
    """Wait until the cluster lists no other brokers: a killed broker of an earlier test stays listed, perhaps as the
    leader, until its session ends.
    """
    ours = {each.http.removeprefix("http://") for each in members}

    def alone():
        listed = [requests.get(f"{each.http}/admin/v2/brokers/c1", timeout=30).json() for each in members]
        leaders = [requests.get(f"{each.http}/admin/v2/brokers/leaderBroker", timeout=30).json() for each in members]
        return all(set(each) == ours for each in listed) and all(each["brokerId"] in ours for each in leaders)

    wait_for(alone, subject="brokers of earlier tests to be gone")


@contextlib.contextmanager
def serving(members):
    """Start the brokers and wait until the cluster lists no others; kill them at the end of the block."""
    try:
        for each in members:
            each.start()
        wait_until_alone(*members)
        yield members
    finally:
        for each in members:
            each.end()


def connect(*members):
    addresses = ",".join(each.url.removeprefix("pulsar://") for each in members)
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(members[0].directory / "client.log"))
    return pulsar.Client(f"pulsar://{addresses}", logger=logger, operation_timeout_seconds=60)


class Publisher(threading.Thread):
    """Publishes numbers to one topic, each after the receipt of the previous number."""

    def __init__(self, client, topic):
        super().__init__(daemon=True)
        self.producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
        self.acknowledged = 0
        self.longest_silence_s = 0.0
        self._finished = False

    def run(self):
        before = time.monotonic()
        while not self._finished:
            self.producer.send(str(self.acknowledged).encode())
            self.acknowledged += 1
            now = time.monotonic()
            self.longest_silence_s = max(self.longest_silence_s, now - before)
            before = now

    def until(self, count):
        wait_for(lambda: self.acknowledged >= count, 120, f"receipt {count}", every=0.01)

    def finish(self):
        self._finished = True
        self.join(90)
        assert not self.is_alive(), f"stuck at {self.acknowledged}"


def read_numbers(consumer, last):
    """The numbers of the topic up to ``last`` in the order in which they came, all acknowledged."""
    found = []
    while not found or found[-1] != last:
        message = consumer.receive(30_000)
        found.append(int(message.data()))
        consumer.acknowledge(message)
    return found


def check_complete(found, acknowledged):
    """Check that every acknowledged message came, in order; messages that the client sent again may have come twice."""
    firsts = list(dict.fromkeys(found))
    assert firsts == list(range(firsts[0], firsts[0] + len(firsts)))
    assert firsts[-1] >= acknowledged - 1
