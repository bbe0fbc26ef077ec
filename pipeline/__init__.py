"""Topics as tables for PySpark: sources, sinks and jobs over the log.

The broker never imports this room, and it needs the extra `magnetar[spark]`. What stands below `source`, `sink` and
`jobs` runs without Spark: bytes in, Arrow record batches out.
"""
