"""A client of Apache BookKeeper for asyncio: ledgers on real bookies, metadata on ZooKeeper. Usable without the broker.

Start with docs/bookkeeper.md.
"""
