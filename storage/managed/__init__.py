"""The managed layer: logs made of ledgers. It uses only the interfaces of storage, so it works with every engine."""
