"""Metadata of ledgers and the registry of bookies: values, the formats BookKeeper writes, the store on ZooKeeper."""
