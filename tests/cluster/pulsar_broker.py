"""Brokers of Apache Pulsar 4.2 as processes, where their jars are (``pulsar_jars.py``)."""

from __future__ import annotations

import subprocess

import requests

from tests.cluster.broker_processes import Member, free_port
from tests.cluster.pulsar_jars import NO_JARS, find
from tests.waiting import wait_for

__all__ = ["LIB", "MORE", "NO_LIB", "PulsarBroker", "initialize_by_pulsar", "java"]

LIB, NO_LIB = find(), NO_JARS
INTERCEPTORS = ",".join(
    f"org.apache.pulsar.common.intercept.Append{kind}MetadataInterceptor" for kind in ("BrokerTimestamp", "Index")
)
MORE = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerEntryMetadataInterceptors": INTERCEPTORS,
    "allowAutoTopicCreationType": "non-partitioned",
}
"""Settings of brokers of both kinds in one cluster."""
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


def java(*arguments):
    opened = [part for name in OPENED for part in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    opened += ["--add-opens", "java.management/sun.management=ALL-UNNAMED"]
    opened += ["--add-opens", "jdk.management/com.sun.management.internal=ALL-UNNAMED"]
    flags = ["-Xmx768m", "-XX:MaxDirectMemorySize=1g", "-Dio.netty.tryReflectionSetAccessible=true"]
    return ["java", *flags, *opened, "-cp", f"{LIB}/*", *arguments]


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
        wait_for(lambda: self.process.poll() is not None or self._answers(), 400, "a broker of Apache Pulsar")
        assert self.process.poll() is None, self.log_text()
        return self

    def _answers(self):
        try:
            return requests.get(f"{self.http}/admin/v2/brokers/health", timeout=5).ok
        except requests.RequestException:
            return False


def initialize_by_pulsar(cluster):
    """Initialize the metadata for the first broker with Pulsar's own command."""
    store = f"zk:{cluster.zookeeper}"
    setup = java(
        *("org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", "c1"),
        *("--metadata-store", store, "--configuration-metadata-store", store),
        *("--web-service-url", "http://127.0.0.1:8080", "--broker-service-url", "pulsar://127.0.0.1:6650"),
        *("--existing-bk-metadata-service-uri", f"zk+null://{cluster.zookeeper}/ledgers"),
    )
    subprocess.run(setup, check=True, capture_output=True)
