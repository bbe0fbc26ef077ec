"""Cursors: the acknowledgements of subscriptions, stored in cursor ledgers."""
