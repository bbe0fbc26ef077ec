"""The read paths: ranges of topics to chunks of entries, from ledger files and through the broker."""
