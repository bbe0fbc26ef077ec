"""Schemas of topics: stored, versioned, compared."""
