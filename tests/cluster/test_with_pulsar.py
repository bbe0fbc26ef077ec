"""One cluster served by Apache Pulsar and by this broker, in turns and together.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (about 250 MB; part of `make cluster`).
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import time

import pulsar
import pytest
import requests
from pulsar.schema import AvroSchema, Record, String

from tests.cluster.broker_processes import Member, connect

LIB = os.environ.get("MAGNETAR_PULSAR_LIB", "")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not LIB, reason="MAGNETAR_PULSAR_LIB names no directory with the jars of Apache Pulsar"),
]
OPENED = (
    *(
        "jdk.internal.loader",
        "java.lang",
        "java.io",
        "java.util.zip",
        "java.nio",
        "java.net",
        "sun.nio.ch",
        "sun.net.dns",
    ),
    *("jdk.internal.misc", "jdk.internal.platform", "jdk.internal.util.random"),
)
TOPICS = ("a b%é", "plain", "batch", "parts")
NAME = "sub/1 x"
HOW = {"consumer_type": pulsar.ConsumerType.Shared, "initial_position": pulsar.InitialPosition.Earliest}


class R(Record):
    a = String()


def java(*arguments):
    opened = [part for name in OPENED for part in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    opened += ["--add-opens", "java.management/sun.management=ALL-UNNAMED"]
    opened += ["--add-opens", "jdk.management/com.sun.management.internal=ALL-UNNAMED"]
    flags = ["-Xmx768m", "-XX:MaxDirectMemorySize=1g", "-Dio.netty.tryReflectionSetAccessible=true"]
    return ["java", *flags, *opened, "-cp", f"{LIB}/*", *arguments]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class PulsarBroker(Member):
    """A broker of Apache Pulsar with the same settings."""

    def start(self):
        if not self.settings["brokerServicePort"]:
            self.settings |= {"brokerServicePort": free_port(), "webServicePort": free_port()}
        self.url = f"pulsar://127.0.0.1:{self.settings['brokerServicePort']}"
        self.http = f"http://127.0.0.1:{self.settings['webServicePort']}"
        path = self.directory / f"{self.name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        with (self.directory / f"{self.name}.log").open("ab") as log:
            command = java("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", str(path))
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if requests.get(f"{self.http}/admin/v2/brokers/health", timeout=5).ok:
                    return self
            except requests.RequestException:
                pass
            time.sleep(0.2)
        raise AssertionError(self.log_text())

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def brokers(cluster, tmp_path_factory):
    directory = pathlib.Path(tmp_path_factory.mktemp("kinds"))
    interceptors = ",".join(
        f"org.apache.pulsar.common.intercept.Append{kind}MetadataInterceptor" for kind in ("BrokerTimestamp", "Index")
    )
    more = {
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "brokerEntryMetadataInterceptors": interceptors,
        "allowAutoTopicCreationType": "non-partitioned",
    }
    store = f"zk:{cluster.zookeeper}"
    setup = java(
        *("org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", "c1"),
        *("--metadata-store", store, "--configuration-metadata-store", store),
        *("--web-service-url", "http://127.0.0.1:8080", "--broker-service-url", "pulsar://127.0.0.1:6650"),
        *("--existing-bk-metadata-service-uri", f"zk+null://{cluster.zookeeper}/ledgers"),
    )
    subprocess.run(setup, check=True, capture_output=True)
    made = (
        PulsarBroker(directory, "pulsar", cluster.zookeeper, **more),
        Member(directory, "ours", cluster.zookeeper, **more),
    )
    try:
        yield made
    finally:
        for each in made:
            each.end()


def call(broker, method, path, body=None):
    answer = requests.request(method, f"{broker.http}/admin/v2/{path}", json=body, timeout=60)
    assert answer.status_code < 300, (path, answer.status_code, answer.text)
    return answer


def receive(consumer, count):
    return sorted([consumer.receive(20_000) for _ in range(count)], key=lambda each: int(each.data()))


def numbers(messages):
    return [int(each.data()) for each in messages]


def publish(client, topic, wanted, *, batched=False):
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=500)
    for number in wanted:
        if batched:
            producer.send_async(str(number).encode(), lambda *_: None)
        else:
            producer.send(str(number).encode())
    producer.flush()
    producer.close()


def full(topic):
    return f"persistent://public/default/{topic}"


def written_by_pulsar(broker):
    """Topics with holes in their acknowledgements, parts of a batch, properties, a schema and policies."""
    client = connect(broker)
    call(broker, "PUT", "persistent/public/default/parts/partitions", 3)
    call(broker, "PUT", "namespaces/public/theirs", {"bundles": {"numBundles": 4}})
    call(broker, "POST", "namespaces/public/theirs/messageTTL", 100)
    for topic in TOPICS:
        consumer = client.subscribe(full(topic), NAME, properties={"k": "v"}, batch_index_ack_enabled=True, **HOW)
        publish(client, full(topic), range(20), batched=topic == "batch")
        for message in receive(consumer, 20):
            if int(message.data()) % 3 == 0:
                consumer.acknowledge(message)
        time.sleep(1.5)  # acknowledgements are durable a second later
    client.create_producer(full("schema"), schema=AvroSchema(R)).send(R(a="x"))
    client.close()


def served_by_ours(broker):
    client = connect(broker)
    assert set(call(broker, "GET", "namespaces/public").json()) >= {"public/default", "public/theirs"}
    assert call(broker, "GET", "namespaces/public/theirs/messageTTL").text == "100"
    versions = call(broker, "GET", "schemas/public/default/schema/schemas").json()["getSchemaResponses"]
    assert [each["version"] for each in versions] == [0]
    for topic in TOPICS:
        consumer = client.subscribe(full(topic), NAME, batch_index_ack_enabled=True, **HOW)
        left = receive(consumer, 13)
        assert numbers(left) == [number for number in range(20) if number % 3]
        for message in left:
            if int(message.data()) % 3 == 1:
                consumer.acknowledge(message)
        publish(client, full(topic), range(100, 110))
        for message in receive(consumer, 10):
            if int(message.data()) % 2 == 0:
                consumer.acknowledge(message)
        time.sleep(1.5)
    client.create_producer(full("schema of ours"), schema=AvroSchema(R)).send(R(a="y"))
    client.close()


def served_by_pulsar_again(broker):
    client = connect(broker)
    for topic in TOPICS:
        consumer = client.subscribe(full(topic), NAME, batch_index_ack_enabled=True, **HOW)
        wanted = [number for number in range(20) if number % 3 == 2] + [101, 103, 105, 107, 109]
        left = receive(consumer, len(wanted))
        assert numbers(left) == wanted, topic
        for message in left:
            consumer.acknowledge(message)
    reader = client.subscribe(full("schema of ours"), "s", schema=AvroSchema(R), **HOW)
    assert reader.receive(20_000).value().a == "y"
    client.close()


def test_a_cluster_changes_hands_and_both_kinds_serve_it_together(brokers):
    theirs, ours = brokers
    written_by_pulsar(theirs.start())
    theirs.terminate()
    served_by_ours(ours.start())
    assert ours.terminate() == 0
    served_by_pulsar_again(theirs.start())
    ours.start()
    both = {each.http.removeprefix("http://") for each in brokers}
    for each in brokers:
        assert both <= set(call(each, "GET", "brokers/c1").json())
    client = connect(theirs, ours)
    owners = set()
    for number in range(16):
        publish(client, full(f"shared-{number}"), [number])
        found = {
            requests.get(f"{each.http}/lookup/v2/topic/persistent/public/default/shared-{number}", timeout=30).json()[
                "brokerUrl"
            ]
            for each in brokers
        }
        assert len(found) == 1
        owners |= found
    assert ours.url in owners
    assert ours.terminate() == 0  # its topics are Pulsar's at once
    for number in range(16):
        consumer = client.subscribe(full(f"shared-{number}"), "s", **HOW)
        assert numbers(receive(consumer, 1)) == [number]
    client.close()
