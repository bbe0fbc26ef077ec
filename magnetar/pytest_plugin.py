"""Pytest fixtures for tests against Pulsar: a real broker process in a temporary directory, up in half a
second.

    def test_orders(magnetar_broker):
        client = pulsar.Client(magnetar_broker.url)

`magnetar_broker` serves the whole test session; `magnetar_broker_factory` starts further ones with settings of their
own, which may be killed and started again:

    def test_small_messages(magnetar_broker_factory):
        broker = magnetar_broker_factory(maxMessageSize=4096)
        broker.kill()
        broker.start()

`magnetar_faults` is a broker whose connections, disk and clock fail on demand, without faults at the start of each test
(docs/fault-kit.md); `magnetar_namespace` is a namespace of the test's own in it.

The report of a failed test that uses a fixture shows the lines that the brokers logged during the test.
"""

from __future__ import annotations

from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

import pytest

from magnetar.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from magnetar.testing.client import Faults, Namespace

__all__ = [
    "BrokerProcess",
    "magnetar_broker",
    "magnetar_broker_factory",
    "magnetar_fault_broker",
    "magnetar_faults",
    "magnetar_namespace",
]


_MOST_LOG_BYTES: Final = 16 << 10
_STARTED: Final = pytest.StashKey[list[BrokerProcess]]()
"""The brokers of the session, by its configuration."""
_LOGGED: Final = pytest.StashKey[list[int]]()
"""The sizes of the logs of these brokers at the start of a test."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where the part of the logs begins that belongs to the test."""
    item.stash[_LOGGED] = [_log_size(broker) for broker in _started(item.config)]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add to the report of a failure the lines that the brokers logged during the test."""
    report = (yield).get_result()
    if not report.failed or not any(name.startswith("magnetar_") for name in getattr(item, "fixturenames", ())):
        return
    began = item.stash.get(_LOGGED, [])
    for number, broker in enumerate(_started(item.config)):
        if text := _log_since(broker, began[number] if number < len(began) else 0):
            report.sections.append((f"log of the broker at {broker.url}, {broker.log_path}", text))


def _started(config: pytest.Config) -> list[BrokerProcess]:
    return config.stash.setdefault(_STARTED, [])


def _log_size(broker: BrokerProcess) -> int:
    return broker.log_path.stat().st_size if broker.log_path.exists() else 0


def _log_since(broker: BrokerProcess, begin: int) -> str:
    """The log from byte `begin` on, or its last lines if that is too much for a report."""
    try:
        with broker.log_path.open("rb") as log:
            log.seek(max(begin, _log_size(broker) - _MOST_LOG_BYTES))
            return log.read(_MOST_LOG_BYTES).decode(errors="replace")
    except OSError:  # a test may remove the directory
        return ""


@pytest.fixture(scope="session")
def magnetar_broker_factory(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers with settings by Pulsar's key names; all are stopped at the end of the session."""
    started = _started(pytestconfig)

    def start(*, faults: bool = False, **settings: Any) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("magnetar") / "data", settings, faults=faults)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()
    started.clear()


@pytest.fixture(scope="session")
def magnetar_broker(magnetar_broker_factory: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One broker with default settings for the whole test session."""
    return magnetar_broker_factory()


@pytest.fixture(scope="session")
def magnetar_fault_broker(magnetar_broker_factory: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One broker with the fault kit for the whole test session; `magnetar_faults` makes it fail."""
    return magnetar_broker_factory(faults=True)


@pytest.fixture
def magnetar_faults(magnetar_fault_broker: BrokerProcess) -> Iterator[Faults]:
    """The faults of `magnetar_fault_broker`; all end with the test. A broker that a test has ended starts again."""
    _end_faults(magnetar_fault_broker)
    yield magnetar_fault_broker.faults
    _end_faults(magnetar_fault_broker)


def _end_faults(broker: BrokerProcess) -> None:
    if broker.is_running:
        try:
            broker.faults.reset()
        except (OSError, HTTPException):  # the broker is about to end
            broker.wait_exit()
        else:
            return
    broker.start()


@pytest.fixture
def magnetar_namespace(magnetar_faults: Faults) -> Namespace:
    """A namespace of the test's own in `magnetar_fault_broker`: `magnetar_namespace.topic("orders")`."""
    return magnetar_faults.new_namespace()
