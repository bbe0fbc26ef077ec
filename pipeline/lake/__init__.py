"""Tables outside the broker: Parquet with a manifest, Delta, Iceberg, behind one protocol (`committer.Committer`).

Tasks write Parquet files (`writer.SplitWriter`), the driver commits them once. A commit names, per topic partition, the
half-open range of broker entry indexes that it adds, and succeeds only when the table ends where that range begins.
Restarts, replays and overlapping jobs therefore give each index exactly once.
"""
