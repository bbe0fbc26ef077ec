"""Ledgers: writing, reading, recovery."""
