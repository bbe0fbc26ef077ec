"""Metadata of the embedded engine: a tree of small nodes in memory, a log and snapshots of it on the disk."""
