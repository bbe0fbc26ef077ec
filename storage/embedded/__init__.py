"""The embedded engine: one journal for all ledgers, one file per ledger, a metadata log, one data directory.

Implements the interfaces of the room (``magnetar.storage.interfaces``).
"""
