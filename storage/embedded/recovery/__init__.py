"""Start after any stop: frames are replayed into ledger files, damage is reported."""
