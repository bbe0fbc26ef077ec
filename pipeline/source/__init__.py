"""Spark's side of the source: `spark.read.format("pulsar")` and `spark.readStream.format("pulsar")`."""
