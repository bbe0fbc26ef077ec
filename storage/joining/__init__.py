"""Joins two copies of a data directory, made at two moments, into the state of the store at a moment between them.

    from magnetar.storage.joining.stores import join_stores

No broker may use either directory. ``logs.py`` decides for one topic, ``stores.py`` reads and writes.
"""
