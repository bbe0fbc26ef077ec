"""Servers that `bench/contenders.py` compares with, beside this broker and the limit server: each started once, then
kept.

Missing contenders are omitted, with the reason: `pulsar-lite` is the package of that name (0.2.0 was measured), Apache
Pulsar needs Java 17 and its jars, which `make bench-pulsar` has Maven fetch, or MAGNETAR_PULSAR_LIB names.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

from bench import servers

JARS = pathlib.Path(os.environ.get("MAGNETAR_PULSAR_LIB") or os.path.expanduser("~/.cache/magnetar/pulsar-standalone"))
_OPENED = ("jdk.internal.loader", "java.lang", "java.io", "java.util.zip", "java.nio", "java.net", "sun.nio.ch")
_OPENED += ("sun.net.dns", "jdk.internal.misc", "jdk.internal.platform", "jdk.internal.util.random")
_SETTINGS = {
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "clusterName": "standalone",
    "metadataStoreUrl": "",
    "configurationMetadataStoreUrl": "",
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
    "allowAutoTopicCreationType": "non-partitioned",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "functionsWorkerEnabled": "false",
}
"""Apache Pulsar's own defaults but for one machine and one bookie; each write is synced there too."""


class AbsentError(Exception):
    """This contender is not on this machine; the text has the reason and the remedy."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Listening(servers.Server):
    """A server that does not print its port, and is ready when the given port takes connections."""

    def __init__(self, name: str, command: list[str], folder: str, port: int):
        super().__init__(name, command, folder)
        self.port = port

    def wait_ready(self) -> servers.Server:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self
        raise RuntimeError(f"{self.name} did not start")


class Standalone(servers.Server):
    """Apache Pulsar with one bookie; ready when its health check passes."""

    def __init__(self, folder: str):
        self.http, port = free_port(), free_port()
        conf = pathlib.Path(folder, "standalone.conf")
        settings = _SETTINGS | {"brokerServicePort": port, "webServicePort": self.http}
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        opened += ["--add-opens=java.management/sun.management=ALL-UNNAMED"]
        opened += ["--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED"]
        command = ["java", "-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=2g", *opened]
        command += ["-Dio.netty.tryReflectionSetAccessible=true", "-cp", f"{JARS}/*"]
        command += ["org.apache.pulsar.PulsarStandaloneStarter", "--config", str(conf), "--no-functions-worker", "-nss"]
        command += [
            "--num-bookies",
            "1",
            "--metadata-dir",
            f"{folder}/metadata",
            "--bookkeeper-dir",
            f"{folder}/bookies",
        ]
        command += ["--advertised-address", "127.0.0.1"]
        super().__init__("pulsar", command, folder, output=subprocess.DEVNULL, cwd=folder)
        self.port = port

    def wait_ready(self) -> servers.Server:
        until = time.monotonic() + 180
        while time.monotonic() < until and self.process.poll() is None:
            try:
                url = f"http://127.0.0.1:{self.http}/admin/v2/brokers/health"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.read() == b"ok":
                        return self
            except OSError:
                time.sleep(0.5)
        raise RuntimeError("Apache Pulsar did not start")


def without_sync(work: str) -> servers.Server:
    """This broker, with a preloaded library that makes syncs do nothing."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise AbsentError("needs a C compiler")
    library = os.path.join(work, "no_sync.so")
    source = pathlib.Path(__file__).with_name("no_sync.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", library], check=True)
    return servers.broker(environment={"LD_PRELOAD": library})


def lite() -> servers.Server:
    found = importlib.util.find_spec("pulsar_lite")
    if found is None or found.origin is None:
        raise AbsentError("pip install pulsar-lite==0.2.0")
    folder, port = tempfile.mkdtemp(prefix="lite-bench-"), free_port()
    program = pathlib.Path(found.origin).parent / "bin" / "pulsar-lite"
    command = [str(program), "--addr", f"127.0.0.1:{port}", "--db-path", f"{folder}/db", "--log-level", "error"]
    return Listening("lite", command, folder, port)


def pulsar() -> servers.Server:
    if shutil.which("java") is None:
        raise AbsentError("needs Java 17")
    if not any(JARS.glob("pulsar-broker-*.jar")):
        raise AbsentError("make bench-pulsar, or MAGNETAR_PULSAR_LIB=DIR with its jars")
    return Standalone(tempfile.mkdtemp(prefix="pulsar-bench-"))
