"""Bytes on the wire and in entries: pure, no I/O."""
