"""A broker process whose topics the tests of the read paths read."""

import uuid

import pytest

from magnetar.pytest_plugin import BrokerProcess


@pytest.fixture(scope="session")
def log_broker(tmp_path_factory):
    """Ledgers of twenty entries, and nothing is ever trimmed."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker") / "data",
        {
            "managedLedgerMaxEntriesPerLedger": 20,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
        },
    )
    yield broker
    broker.stop()


@pytest.fixture
def fresh_topic():
    """An unused topic name."""
    return f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"
