"""A whole broker without ports, for tests of topics."""

from __future__ import annotations

import pytest

from magnetar.broker.broker import Broker
from magnetar.broker.settings import Settings


@pytest.fixture
async def broker(tmp_path):
    broker = Broker(Settings(data_dir=str(tmp_path / "data"), broker_service_port=None, web_service_port=None))
    await broker.start()
    yield broker
    await broker.stop()
