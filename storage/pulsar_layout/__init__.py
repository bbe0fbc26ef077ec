"""Apache Pulsar's own layout of managed ledgers and cursors in the metadata store and in ledgers, both ways."""
