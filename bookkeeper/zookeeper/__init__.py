"""ZooKeeper for asyncio: one session per process, shared by ledger metadata and by the broker's metadata store."""
