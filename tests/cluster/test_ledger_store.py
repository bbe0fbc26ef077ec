"""The contract of LedgerStore on real bookies."""

from __future__ import annotations

import pytest

from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions
from magnetar.storage.bookkeeper.ledger_store import open_bookkeeper_ledgers
from tests.storage import test_ledger_store_contract as contract
from tests.storage.bookkeeper.store_for_tests import SETTINGS


@pytest.fixture
async def ledgers(cluster):
    session = await ZooKeeperSession.connect(ZooKeeperOptions(cluster.zookeeper))
    store = await open_bookkeeper_ledgers(session, "/ledgers", SETTINGS)
    yield store
    await store.close()
    await session.close()


globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
