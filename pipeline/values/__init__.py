"""Typed values by the schema of a topic."""
