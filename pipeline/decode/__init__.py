"""Entries to Arrow record batches."""
