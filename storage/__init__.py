"""Stores entries, ledgers, cursors and metadata so that they survive crashes.

This folder holds the values and the interfaces. The engines and the managed layer are packages in it: ``embedded``
implements ``interfaces``, ``managed`` uses ``interfaces``, and neither imports the other.
"""
