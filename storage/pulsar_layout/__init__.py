"""Reads and writes Apache Pulsar's layout of managed ledgers and cursors in the metadata store and in ledgers."""
