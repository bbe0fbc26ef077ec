"""Bookies: the connections to them, and the choice of bookies for a ledger."""
