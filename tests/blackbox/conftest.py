"""A broker process for tests that use the broker through real clients."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import typing
import urllib.request

import pytest

from tests.blackbox.clients import quiet_client
from tests.blackbox.honest import HonestClient

ZOOKEEPER = "MAGNETAR_TESTS_ZOOKEEPER"
MEMBER = {
    "clusterName": "c1",
    "advertisedAddress": "127.0.0.1",
    "managedLedgerDefaultEnsembleSize": 3,
    "managedLedgerDefaultWriteQuorum": 3,
    "managedLedgerDefaultAckQuorum": 2,
}
SKIPPED = "MAGNETAR_TESTS_SKIPPED"
"""Variable of the environment: a file for the names of tests whose broker finds the cluster taken."""
TAKEN = "a second broker while the first one has the cluster"
READY = re.compile(r"magnetar ready (\S+) (\S+)")
SLOW_CALLBACK = re.compile(r"loop\.slow_callback\W.*?\bcpu_ms\W+([0-9.]+).*")
SLOWEST_CALLBACK_MS = 200  # of the broker's processor time, which other processes do not change


class BrokerProcess:
    """`magnetar standalone` on free ports; kill -9 and restart keep the ports and the data directory."""

    members: typing.ClassVar = []

    def __init__(self, data_dir, settings=None, env=None):
        self.data_dir = pathlib.Path(data_dir)
        self.settings = {"brokerServicePort": 0, "webServicePort": 0} | (settings or {})
        self.env = env or {}
        self.process = None
        self.url = self.http = None

    def start(self):
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        arguments = [sys.executable, "-m", "magnetar", *self._command()]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        self.log = open(self.data_dir.parent / f"{self.data_dir.name}.log", "ab")
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=self.log, text=True, env=os.environ | self.env
        )
        for line in self.process.stdout:
            if found := READY.search(line):
                self.url, self.http = found.groups()
                self.settings["brokerServicePort"] = self.url.rpartition(":")[2]
                self.settings["webServicePort"] = self.http.rpartition(":")[2]
                return self
        raise AssertionError(f"the broker did not start (exit {self.process.wait()}): {self.log_text()[-4000:]}")

    def _command(self):
        """The command of `magnetar standalone` on the data directory; where a cluster is given (``on_bookkeeper``), of
        a member of that cluster, whose metadata are empty when the data directory is new.
        """
        zookeeper = os.environ.get(ZOOKEEPER)
        if not zookeeper:
            return ["standalone", "--data-dir", str(self.data_dir)]
        if not self.data_dir.exists():
            from tests.cluster.on_bookkeeper import fresh

            if any(other.process.poll() is None for other in BrokerProcess.members):
                pytest.skip(TAKEN)
            fresh(zookeeper)
            self.data_dir.mkdir()
        BrokerProcess.members.append(self)
        defaults = MEMBER | {"metadataStoreUrl": f"zk:{zookeeper}"}
        if self.settings.get("authenticationEnabled") == "true":
            defaults["topicLevelPoliciesEnabled"] = "false"  # else a member needs a proof of its own role
        self.settings = defaults | self.settings
        return ["broker"]

    def log_text(self):
        return (self.data_dir.parent / f"{self.data_dir.name}.log").read_text()

    def check_loop(self):
        """Fail when a callback has held the loop for longer than the limit; the error names its place from the broker's
        log.
        """
        slow = [found for found in SLOW_CALLBACK.finditer(self.log_text()) if float(found[1]) > SLOWEST_CALLBACK_MS]
        assert not slow, "the loop was held: " + "; ".join(found[0] for found in slow)

    def kill(self):
        """kill -9: data that the process has not written is lost."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.process is None or self.process.poll() is not None:
            self._close()
            return self.process and self.process.returncode
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._close()
        return code

    def wait_exit(self, timeout=60):
        """The exit code of a broker that ends by itself."""
        code = self.process.wait(timeout)
        self._close()
        return code

    def admin(self, method, path, body=None):
        """A call of the admin REST API; the body of the answer. Raises urllib.error.HTTPError."""
        request = urllib.request.Request(f"{self.http}{path}", method=method, data=body)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def unload(self, topic):
        self.admin("PUT", "/admin/v2/" + topic.replace("://", "/", 1) + "/unload")

    def metrics(self, name):
        """The sum of all samples of a metric; None when it is not there."""
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)", self.admin("GET", "/metrics"), re.MULTILINE)
        return sum(map(float, found)) if found else None

    @property
    def open_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    @property
    def cpu_seconds(self):
        """Processor time since the process was started."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _close(self):
        if self.process is not None and self.process.stdout:
            self.process.stdout.close()
        self.log.close()

    @property
    def rss_bytes(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pytest_runtest_logreport(report):
    if report.skipped and report.longrepr[2].endswith(TAKEN) and (found := os.environ.get(SKIPPED)):
        with open(found, "a") as names:
            names.write(f"{report.nodeid}\n")


@pytest.fixture
def new_broker(tmp_path):
    """Start brokers with settings of the test; all brokers stop at its end. Until then a second client checks that each
    broker answers PINGs; `pings` false leaves it out, for tests that count the cost of clients.
    """
    started, honest = [], contextlib.ExitStack()

    def start(name="data", env=None, pings=True, **settings):
        broker = BrokerProcess(tmp_path / name, settings, env).start()
        started.append(broker)
        if pings:
            honest.enter_context(HonestClient(broker))
        return broker

    try:
        yield start
        honest.close()
    finally:
        _end(started)
    for broker in started:
        broker.check_loop()


def _end(started):
    for broker in started:
        if broker.process.poll() is None:
            broker.process.kill()
            broker.process.wait()
        broker._close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for a module's tests; each test uses topics of its own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data").start()
    yield process
    assert process.stop() == 0, process.log_text()[-4000:]
    process.check_loop()


@pytest.fixture(autouse=True)
def _honest_client(request):
    """A second client checks during every test with the module's broker that the broker answers PINGs."""
    found = request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    if not isinstance(found, BrokerProcess):
        yield
        return
    with HonestClient(found):
        yield


@pytest.fixture
def client(broker):
    client = quiet_client(broker.url)
    yield client
    client.close()


@pytest.fixture
def topic(request):
    """A topic name of the test's own."""
    name = re.sub(r"\W+", "-", request.node.name)
    return f"persistent://public/default/{name}"
