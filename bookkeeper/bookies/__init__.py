"""Bookies: connections to them, and which of them a ledger gets."""
