"""Pytest fixtures for whoever tests against Pulsar: a real broker process in a temporary directory, up in half a
second.

    def test_orders(magnetar_broker):
        client = pulsar.Client(magnetar_broker.url)

`magnetar_broker` serves the whole test session; `magnetar_broker_factory` starts further ones with settings of their
own, which may be killed and started again:

    def test_small_messages(magnetar_broker_factory):
        broker = magnetar_broker_factory(maxMessageSize=4096)
        broker.kill()
        broker.start()
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
    """A broker in a process of its own.

    url        for clients; it stays the same over `stop`, `kill` and `start`, and so does the data
    http_url   of the admin API
    data_dir   where the broker keeps everything
    log_path   what it has said
    """

    def __init__(self, data_dir: pathlib.Path, settings: dict[str, Any]) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_suffix(".log")
        self._settings = {"brokerServicePort": 0, "webServicePort": 0} | settings
        self.start()

    def start(self) -> None:
        """Start it, and return when it takes clients. Raises RuntimeError with what it said when it does not start."""
        arguments = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(self.data_dir)]
        for key, value in self._settings.items():
            arguments += ["--set", f"{key}={_as_text(value)}"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - our own program
        self.url, self.http_url = self._wait_ready()
        for key, url in (("brokerServicePort", self.url), ("webServicePort", self.http_url)):
            if self._settings[key] == 0:
                self._settings[key] = int(url.rpartition(":")[2])

    def _wait_ready(self) -> tuple[str, str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_READY):
                url, http_url = line.removeprefix(_READY).split()
                return url, http_url
        code = self._ended()
        raise RuntimeError(f"the broker did not start, exit code {code}:\n{self.log_path.read_text()}")

    def stop(self) -> int:
        """SIGTERM, and wait until everything is on the disk; the exit code. Safe to call twice."""
        self._process.terminate()
        return self._ended()

    def kill(self) -> None:
        """SIGKILL: what a crash of the broker does to its clients. `start` begins where it was. Safe to call twice."""
        self._process.kill()
        self._ended()

    def _ended(self) -> int:
        code = self._process.wait(_STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code


def _as_text(value: Any) -> str:
    """A value as settings are written: lists with commas, None as nothing."""
    if isinstance(value, (list, tuple)):
        return ",".join(str(each) for each in value)
    return "" if value is None else str(value)


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
