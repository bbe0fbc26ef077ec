"""Entries, ledgers, cursors, metadata; survives crashes.

The values and interfaces of the room stand in this folder, engines and the managed layer in packages beside each other:
``embedded`` implements ``interfaces``, ``managed`` uses ``interfaces``, and neither knows the other.
"""
