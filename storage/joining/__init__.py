"""Joining two states of one store, copies of its data directory from two moments, into its state at a moment between.

    from magnetar.storage.joining.stores import join_stores

No broker may use either directory. ``logs.py`` decides for one topic, ``stores.py`` reads and writes.
"""
