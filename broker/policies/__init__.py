"""Tenants, namespaces and topic policies: their values, their records, their effect."""
