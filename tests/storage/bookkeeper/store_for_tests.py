"""The engine on BookKeeper over simulated bookies."""

from __future__ import annotations

import contextlib

from magnetar.storage.bookkeeper.ledger_store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.storage.entry_cache import EntryCache
from tests.bookkeeper.sim_cluster import SimCluster

SETTINGS = BookKeeperSettings(3, 3, 2, max_record_bytes=64 << 10)


@contextlib.asynccontextmanager
async def simulated_store(cache_bytes=1 << 20, cluster=None):
    cluster = cluster or SimCluster(3)
    store = BookKeeperLedgerStore(cluster.join().client, SETTINGS, EntryCache(cache_bytes))
    try:
        yield store
    finally:
        await store.close()
