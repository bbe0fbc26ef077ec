"""Pytest fixtures for whoever tests against Pulsar: a real broker process in a temporary directory, up in half a
second.

    def test_orders(magnetar_broker):
        client = pulsar.Client(magnetar_broker.url)

`magnetar_broker` serves the whole test session; `magnetar_broker_factory` starts further ones with settings of their
own:

    def test_small_messages(magnetar_broker_factory):
        broker = magnetar_broker_factory(maxMessageSize=1000)
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

_READY = "magnetar ready "
_STOP_TIMEOUT_S = 30


class BrokerProcess:
    """A broker in a process of its own. `url` is for clients, `http_url` for the admin API."""

    def __init__(self, data_dir: pathlib.Path, settings: dict[str, Any]) -> None:
        values = {"brokerServicePort": 0, "webServicePort": 0} | settings
        arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(data_dir)]
        for key, value in values.items():
            arguments += ["--set", f"{key}={value}"]
        self.log_path = data_dir.with_suffix(".log")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - our own program
        self.url, self.http_url = self._wait_ready()

    def _wait_ready(self) -> tuple[str, str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_READY):
                url, http_url = line.removeprefix(_READY).split()
                return url, http_url
        raise RuntimeError(f"the broker did not start, exit code {self._process.wait()}:\n{self.log_path.read_text()}")

    def stop(self) -> None:
        """SIGTERM, and wait until everything is on the disk; safe to call twice."""
        self._process.terminate()
        self._process.wait(_STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture(scope="session")
def magnetar_broker_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers with settings by Pulsar's key names; all are stopped at the end of the session."""
    started: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("magnetar") / "data", settings)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture(scope="session")
def magnetar_broker(magnetar_broker_factory: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One broker with default settings for the whole test session."""
    return magnetar_broker_factory()
