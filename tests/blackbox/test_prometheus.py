"""A real Prometheus scrapes a broker by the files of conf/ and fires an alert."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import urllib.request

import pytest
import yaml

from tests.blackbox.clients import quiet_client
from tests.waiting import wait_for

CONF = pathlib.Path(__file__).resolve().parents[2] / "conf"
pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is missing: install the package prometheus"
)
DEADLINE_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """Prometheus with conf/prometheus.yml, of which the address and the intervals are changed."""

    def __init__(self, folder, broker):
        config = yaml.safe_load((CONF / "prometheus.yml").read_text())
        shutil.copy(CONF / "alerts.yml", folder)
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["scrape_interval"] = "1s"
        job["static_configs"] = [{"targets": [broker.http.removeprefix("http://")]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"),
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"GOMAXPROCS": "1"},
        )

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)["data"]

    def wait_for(self, path, wanted):
        """The first answer of which `wanted` is true."""
        found = None

        def answered():
            nonlocal found
            found = self.get(path)
            return wanted(found)

        wait_for(answered, DEADLINE_S, path, every=0.2, ignoring=OSError)
        return found

    def stop(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture
def prometheus(tmp_path):
    started = []

    def start(broker):
        folder = tmp_path / "prometheus"
        folder.mkdir()
        started.append(Prometheus(folder, broker))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def alerts_firing(found):
    return {alert["labels"]["alertname"] for alert in found["alerts"] if alert["state"] == "firing"}


def test_a_full_disk_and_messages_reach_prometheus(new_broker, prometheus):
    least = 0.01
    used = shutil.disk_usage(CONF)
    if used.used / used.total < 2 * least:
        pytest.skip("the disk is too empty for diskUsageThreshold")
    broker = new_broker(diskUsageThreshold=least, diskUsageWarnThreshold=least)
    server = prometheus(broker)
    targets = server.wait_for(
        "/api/v1/targets", lambda found: any(each["health"] == "up" for each in found["activeTargets"])
    )
    assert targets["activeTargets"][0]["labels"]["job"] == "magnetar"
    fired = server.wait_for("/api/v1/alerts", lambda found: "MagnetarDiskFull" in alerts_firing(found))
    (alert,) = [each for each in fired["alerts"] if each["labels"]["alertname"] == "MagnetarDiskFull"]
    assert alert["labels"]["source"] == "disk-usage"
    metadata = server.get("/api/v1/metadata?metric=magnetar_storage_full")
    assert metadata["magnetar_storage_full"][0]["help"]


def test_published_messages_are_counted_by_prometheus(new_broker, prometheus):
    broker = new_broker()
    server = prometheus(broker)
    client = quiet_client(broker.url)
    producer = client.create_producer("persistent://public/default/scraped")
    for _ in range(7):
        producer.send(b"x")
    query = "/api/v1/query?query=pulsar_in_messages_total"
    found = server.wait_for(query, lambda got: got["result"] and got["result"][0]["value"][1] == "7")
    assert found["result"][0]["metric"]["topic"] == "persistent://public/default/scraped"
    assert not alerts_firing(server.get("/api/v1/alerts"))
    client.close()
