"""Spark looks for data sources in packages called `pyspark_*`: with this one `format("pulsar")` needs no code."""

from magnetar.pipeline.source.data_source import PulsarDataSource as DefaultSource

__all__ = ["DefaultSource"]
