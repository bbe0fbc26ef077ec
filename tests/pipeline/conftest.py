"""Time limits of single examples say more about the machine than about the code: there are none."""

import uuid

import pytest
from hypothesis import settings

from magnetar.pytest_plugin import BrokerProcess

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def log_broker(tmp_path_factory):
    """A broker process whose topics are read by the tests of the read paths; small ledgers."""
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
    """A topic name nobody has used."""
    return f"persistent://public/default/t-{uuid.uuid4().hex[:12]}"
