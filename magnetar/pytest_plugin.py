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

from typing import TYPE_CHECKING, Any

import pytest

from magnetar.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BrokerProcess", "magnetar_broker", "magnetar_broker_factory"]


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
