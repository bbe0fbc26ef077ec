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
"""

from __future__ import annotations

from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from magnetar.testing.client import Faults, Namespace

__all__ = [
    "BrokerProcess",
    "magnetar_broker",
    "magnetar_broker_factory",
    "magnetar_fault_broker",
    "magnetar_faults",
    "magnetar_namespace",
]


@pytest.fixture(scope="session")
def magnetar_broker_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers with settings by Pulsar's key names; all are stopped at the end of the session."""
    started: list[BrokerProcess] = []

    def start(*, faults: bool = False, **settings: Any) -> BrokerProcess:
        broker = BrokerProcess(tmp_path_factory.mktemp("magnetar") / "data", settings, faults=faults)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()


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
