"""Metadata of the embedded engine: what changes rarely, in SQLite."""
